"""Wait until the quotas of all teams count what they limit; until then, the cluster refuses jobs of such a kind."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.errors import KubeError
from gangplank.teams.quota_ready import settle


class ActionModule(ClusterAction):
    """Documented in plugins/modules/team_counted.py."""

    OPTIONS: ClassVar = {"timeout_s": {"type": "float", "required": True}, **KUBECONFIG}

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        late = settle(self.kube, args["timeout_s"])
        if late:
            fix = "Fix: look at the log of kube-controller-manager (resource quota), then run this again"
            raise KubeError("\n  ".join(["quotas that do not yet count what they limit:", *late]) + f"\n{fix}")
        return {"changed": False}
