"""Wait until the cluster accepts an object, or refuses it for the expected reason; nothing is created."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_accepts.py."""

    OPTIONS: ClassVar = {
        "definition": {"type": "dict", "required": True},
        "refusal": {"type": "str", "default": ""},
        "timeout_s": {"type": "float", "required": True},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Ask until the answer is right."""
        answer = self.kube.accepts(args["definition"], args["timeout_s"], args["refusal"])
        return {"changed": False, "msg": answer}
