"""Wait for a submitted training job and show its progress; return its ranks and their evidence."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.cluster.evidence import created, gather
from gangplank.cluster.follow import JobWatch, follow
from gangplank.cluster.progress import table
from gangplank.errors import KubeError


class ActionModule(ClusterAction):
    """Documented in plugins/modules/training_job_wait.py."""

    OPTIONS: ClassVar = {
        "manifest": {"type": "dict", "required": True},
        "world_size": {"type": "int", "required": True},
        "timeout_s": {"type": "float", "required": True},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        watch = JobWatch(args["manifest"], self.kube)
        end = follow(watch, self.say, args["timeout_s"])
        if end is None:
            what = f"did not end within {args['timeout_s']:.0f} s, and continues"
            fix = "run the same command again to follow it; -e training_job_timeout_s=SECONDS sets another limit"
        elif end.failed:
            what = f"{end.name} {end.reason}"
            fix = "correct what these lines name, and run the job again with -e training_job_replace=true"
        if end is None or end.failed:
            raise KubeError(f"job {watch.name}: {what}\n{watch.trouble()}\nFix: {fix}")
        rows = watch.progress().rows
        records = gather(self.kube, watch.job, watch.records, args["world_size"])
        evidence = [json.dumps(record) for record in records]
        lines = table(rows).splitlines() if rows else []
        return {"changed": False, "rows": rows, "table": lines, "evidence": evidence, "job_uid": watch.job_uid,
                "uid": watch.job["metadata"]["uid"], "created": created(watch.job), "pods": watch.nodes}  # fmt: skip
