"""Where Volcano's own kinds of work name queues, pods, priorities and schedulers, in CEL."""

from __future__ import annotations

from typing import Any

from gangplank.backends.admission import PROBE_POD
from gangplank.backends.base import Path
from gangplank.backends.queueing import VOLCANO


def replicas(job: str) -> str:
    """How many pods a job's spec asks for: the controller makes all of them in its memory, then creates the first."""
    return f"{job}.?tasks.orValue([]).map(t, t.?replicas.orValue(1)).sum()"


def of_job(job: str) -> dict[str, Any]:
    """Where a Volcano job's spec has all that."""
    return {
        "queues": f"[{job}.?queue.orValue('')]",
        "templates": f"{job}.?tasks.orValue([]).map(t, t.template)",
        "priorities": f"[{job}.?priorityClassName.orValue('')]",
        "schedulers": f"[{job}.?schedulerName.orValue('{VOLCANO.scheduler}')]",
        "replicas": f"[{replicas(job)}]",
    }


INNER = "[[object.spec.jobTemplate]]"
PATCHES = "object.spec.?flows.orValue([]).filter(f, has(f.patch) && has(f.patch.jobSpec))"
BATCH, FLOW = "batch.volcano.sh/v1alpha1", "flow.volcano.sh/v1alpha1"
PROBE: dict[str, Any] = {
    "minAvailable": 1,
    "schedulerName": VOLCANO.scheduler,
    "tasks": [{"name": "probe", "replicas": 1, "template": {"spec": PROBE_POD}}],
}
PATHS = (
    Path(
        "volcano-jobs",
        "batch.volcano.sh",
        ("jobs",),
        **of_job("object.spec"),
        probe={"apiVersion": BATCH, "kind": "Job", "spec": PROBE},
    ),
    Path(
        "volcano-cronjobs",
        "batch.volcano.sh",
        ("cronjobs",),
        inner=INNER,
        **of_job("object.spec.jobTemplate.spec"),
        probe={
            "apiVersion": BATCH,
            "kind": "CronJob",
            "spec": {"schedule": "0 0 1 1 *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": PROBE}},
        },
    ),
    Path(
        "jobtemplates",
        "flow.volcano.sh",
        ("jobtemplates",),
        unread="['JobTemplate']",
        **of_job("object.spec"),
        probe={"apiVersion": FLOW, "kind": "JobTemplate", "spec": PROBE},
    ),
    Path(
        "jobflows",
        "flow.volcano.sh",
        ("jobflows",),
        unread="['JobFlow']",
        queues=f"{PATCHES}.map(f, f.patch.jobSpec.?queue.orValue(''))",
        priorities=f"{PATCHES}.map(f, f.patch.jobSpec.?priorityClassName.orValue(''))",
        schedulers=f"{PATCHES}.map(f, f.patch.jobSpec.?schedulerName.orValue('{VOLCANO.scheduler}'))",
        replicas=f"{PATCHES}.map(f, {replicas('f.patch.jobSpec')})",
        patches=f"{PATCHES}.map(f, f.patch.jobSpec.?tasks.orValue([]).map(t, t.template))",
        probe={
            "apiVersion": FLOW,
            "kind": "JobFlow",
            "spec": {"jobRetainPolicy": "retain", "flows": [{"name": "probe"}]},
        },
    ),
)
