"""Compare a site's teams with the cluster: what to do, step by step, and its consequences."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.teams import inventory_of

from gangplank.teams.compare import plan_teams


class ActionModule(ClusterAction):
    """Documented in plugins/modules/team_plan.py."""

    OPTIONS: ClassVar = {
        "group": {"type": "str", "required": True},
        "limit": {"type": "list", "elements": "str"},
        "remove": {"type": "list", "elements": "str", "default": []},
        "remove_claims": {"type": "list", "elements": "str", "default": []},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        plan = plan_teams(
            self.kube,
            inventory_of(self.variables, args["group"]),
            args["remove"],
            args["remove_claims"],
            limit=args["limit"],
        )
        if plan.refused:
            return {"failed": True, "msg": "\n".join(plan.refused)}
        lines = [str(item) for item in plan.differences]
        return {
            "changed": self.dry and plan.changes,
            "remove": list(plan.remove),
            "remove_last": list(plan.remove_last),
            "steps": [{"name": step.name, "objects": list(step.objects)} for step in plan.steps],
            "notes": list(plan.notes),
            "differences": lines,
            "probes": list(plan.probes),
            "diff": [{"before": "", "after": "".join(f"{line}\n" for line in lines), "after_header": "teams"}],
        }
