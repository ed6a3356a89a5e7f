"""Ensure that a training job runs as its manifests say; an existing job that differs is refused or replaced."""

from __future__ import annotations

from typing import Any, ClassVar

import yaml
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.cluster import submit
from gangplank.errors import KubeError


class ActionModule(ClusterAction):
    """Documented in plugins/modules/training_job_submit.py."""

    OPTIONS: ClassVar = {
        "manifests": {"type": "list", "elements": "dict", "required": True},
        "volumes": {"type": "list", "elements": "dict", "default": []},
        "replace": {"type": "bool", "default": False},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        plan = submit.plan(self.kube, args["manifests"], args["volumes"], replace=args["replace"])
        if plan.refused:
            raise KubeError("\n".join(plan.refused))
        submit.carry_out(self.kube, plan, dry_run=self.dry)
        without = submit.gangless(self.kube, args["manifests"][-1]) if plan.write else ""
        before = "".join(f"{line}\n" for line in plan.differences)
        diff = {"before": before, "after": yaml.safe_dump_all(plan.write) if plan.write else before}
        told = {"warnings": [without]} if without else {}
        return {"changed": plan.changes, "diff": [{**diff, "after_header": "the job and what it needs"}], **told}
