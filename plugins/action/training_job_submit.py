"""Ensure that a training job runs as its manifests say; a job that is there and differs is refused or replaced."""

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

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        found = submit.plan(self.kube, given["manifests"], given["volumes"], replace=given["replace"])
        if found.refused:
            raise KubeError("\n".join(found.refused))
        submit.carry_out(self.kube, found, dry_run=self.dry)
        before = "".join(f"{line}\n" for line in found.differences)
        diff = {"before": before, "after": yaml.safe_dump_all(found.write) if found.write else before}
        return {"changed": found.changes, "diff": [{**diff, "after_header": "the job and what it needs"}]}
