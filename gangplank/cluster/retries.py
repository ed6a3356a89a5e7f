"""Whether a job failed because its retries are used up, and how often it had failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of
from gangplank.backends.pod_template import JOB_LABEL
from gangplank.cluster.attempts import attempts
from gangplank.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.spec import Json


def used_up(job: Json, pods: Sequence[Json]) -> str:
    """How often a failed job failed, and that it has no retry left; "" for one that failed otherwise, or had none.

    >>> job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {}, "spec": {"maxRetry": 2}}
    >>> used_up({**job, "status": {"retryCount": 2}}, [])
    'it failed 2 times, its `spec.maxRetry` is used up'
    """
    name = backend_of(job)
    if not name:
        return ""
    backend = BACKENDS[name]
    restarts = max((run.number for pod in pods for run in attempts(job, [pod])), default=1) - 1
    times = backend.retries.failures(job, restarts)
    ours = JOB_LABEL in (job["metadata"].get("labels") or {}) and "max_retries" not in backend.refuses
    limit = "`max_retries` are" if ours else f"`{backend.retries.field}` is"
    return f"it failed {counted(times, 'time')}, its {limit} used up" if times else ""
