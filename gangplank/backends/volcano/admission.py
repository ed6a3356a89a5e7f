"""Where Volcano's own kinds of work name queues, pods, priorities and schedulers, in CEL."""

from __future__ import annotations

from gangplank.backends.base import Path
from gangplank.backends.queueing import VOLCANO


def of_job(job: str) -> dict[str, str]:
    """Where a Volcano job's spec has all that."""
    return {
        "queues": f"[{job}.?queue.orValue('')]",
        "templates": f"{job}.?tasks.orValue([]).map(t, t.template)",
        "priorities": f"[{job}.?priorityClassName.orValue('')]",
        "schedulers": f"[{job}.?schedulerName.orValue('{VOLCANO.scheduler}')]",
    }


INNER = "[[object.spec.jobTemplate]]"
PATCHES = "object.spec.?flows.orValue([]).filter(f, has(f.patch) && has(f.patch.jobSpec))"
PATHS = (
    Path("volcano-jobs", "batch.volcano.sh", ("jobs",), **of_job("object.spec")),
    Path("volcano-cronjobs", "batch.volcano.sh", ("cronjobs",), inner=INNER, **of_job("object.spec.jobTemplate.spec")),
    Path("jobtemplates", "flow.volcano.sh", ("jobtemplates",), **of_job("object.spec")),
    Path(
        "jobflows",
        "flow.volcano.sh",
        ("jobflows",),
        queues=f"{PATCHES}.map(f, f.patch.jobSpec.?queue.orValue(''))",
        priorities=f"{PATCHES}.map(f, f.patch.jobSpec.?priorityClassName.orValue(''))",
        schedulers=f"{PATCHES}.map(f, f.patch.jobSpec.?schedulerName.orValue('{VOLCANO.scheduler}'))",
        patches=f"{PATCHES}.map(f, f.patch.jobSpec.?tasks.orValue([]).map(t, t.template))",
    ),
)
