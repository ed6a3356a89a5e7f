"""Read objects of the cluster, several kinds at once: a module would start a Python for each."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_read.py."""

    OPTIONS: ClassVar = {"paths": {"type": "list", "elements": "str", "required": True}, **KUBECONFIG}

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        return {"changed": False, "found": [self.read(path) for path in given["paths"]]}

    def read(self, path: str) -> list[Any]:
        """The objects at a path."""
        where, _, query = path.partition("?")
        found = self.kube.get(where, dict(part.split("=", 1) for part in query.split("&") if part))
        if found is None:
            return []
        return list(found["items"]) if "items" in found else [found]
