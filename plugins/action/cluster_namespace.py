"""What others keep in a namespace, of every kind that the cluster has."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.cluster.namespace import of_others


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_namespace.py."""

    OPTIONS: ClassVar = {
        "name": {"type": "str", "required": True},
        "labels": {"type": "dict", "default": {}},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Look at the namespace, and into it if it has the labels."""
        namespace = self.kube.get(f"/api/v1/namespaces/{args['name']}") or {"metadata": {}}
        labels = namespace["metadata"].get("labels") or {}
        ours = "name" in namespace["metadata"] and args["labels"].items() <= labels.items()
        return {"changed": False, "ours": ours, "kept_by": of_others(self.kube, args["name"]) if ours else []}
