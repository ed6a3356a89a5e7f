"""Hold a cluster, or one of its jobs, for this run of ansible-playbook, so that no other run changes it meanwhile."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_lock.py."""

    OPTIONS: ClassVar = {
        "job": {"type": "str", "default": ""},
        "namespace": {"type": "str", "default": ""},
        "state": {"type": "str", "choices": ["held", "free"], "default": "held"},
        "timeout_s": {"type": "int"},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call; neither is a change."""
        job, namespace = args["job"], args["namespace"]
        if self.dry:
            return {"changed": False}
        if args["state"] == "free":
            self.free(job, namespace)
        else:
            self.hold(args["timeout_s"], job, namespace)
            if job:
                self.wait_for_cluster(args["timeout_s"])
        return {"changed": False}
