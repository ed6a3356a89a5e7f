"""Read objects of the cluster, several kinds at once: a module would start a Python for each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gangplank.kube import KubeError
from plugins.cluster import KUBECONFIG, Asking


class ActionModule(Asking):
    """Arguments: paths (of the API, as `kubectl get --raw` takes them), kubeconfig.

    Returns found: for each path a list of objects, empty where the cluster knows no such object or kind.
    """

    OPTIONS: ClassVar = {"paths": {"type": "list", "elements": "str", "required": True}, **KUBECONFIG}

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        return {"changed": False, "found": [self.read(path) for path in given["paths"]]}

    def read(self, path: str) -> list[Any]:
        """The objects at a path."""
        where, _, query = path.partition("?")
        try:
            found = self.kube.call("GET", where, query=dict(part.split("=", 1) for part in query.split("&") if part))
        except KubeError as error:
            if error.status == 404:
                return []
            raise
        return list(found["items"]) if "items" in found else [found]
