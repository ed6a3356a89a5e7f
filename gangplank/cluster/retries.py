"""Whether a job failed because its retries are used up, and how often it had failed: each controller counts its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import backend_of
from gangplank.backends.pod_template import JOB_LABEL
from gangplank.cluster.attempts import attempts
from gangplank.cluster.logs import restarts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.spec import Json

# Reasons of conditions of batch Jobs and JobSets (a TrainJob has its JobSet's), words of the training operator
REASONS = {"BackoffLimitExceeded", "ReachedMaxRestarts"}
WORDS = "has reached the specified backoff limit"
FIELDS = {
    "volcano": "spec.maxRetry",
    "indexed": "spec.backoffLimit",
    "pytorchjob": "spec.runPolicy.backoffLimit",
    "trainjob": "failurePolicy.maxRestarts",  # of its runtime
}


def used_up(job: Json, pods: Sequence[Json]) -> str:
    """How often a failed job failed, and that it has no retry left; "" for one that failed otherwise, or had none.

    >>> job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {}, "spec": {"maxRetry": 2}}
    >>> used_up({**job, "status": {"retryCount": 2}}, [])
    'it failed 2 times, its `spec.maxRetry` is used up'
    """
    backend, spec, status = backend_of(job), job["spec"], job.get("status") or {}
    by_us = JOB_LABEL in (job["metadata"].get("labels") or {})
    conditions = [one for one in status.get("conditions") or () if one.get("status") == "True"]
    said = any(one.get("reason") in REASONS or WORDS in (one.get("message") or "") for one in conditions)
    if backend == "volcano":
        most, times = spec.get("maxRetry") or 0, status.get("retryCount") or 0
        said, most = times >= most, most - 1  # it counts the last failure, after which nothing begins again
    elif backend == "indexed":
        most = spec.get("backoffLimit") or 0
        in_place = spec["template"]["spec"].get("restartPolicy") == "OnFailure"  # one failure restarts every rank of us
        together = spec.get("parallelism") or 1 if by_us else 1
        times = -(-most // together) if in_place else status.get("failed") or 0
    elif backend == "pytorchjob":
        most = (spec.get("runPolicy") or {}).get("backoffLimit") or 0
        times = max((restarts(pod, "") for pod in pods), default=0)
    else:
        most, times = int(said), max((run.number for run in attempts(job, pods)), default=0)
    if not backend or not said or most < 1:
        return ""
    name = f"`{FIELDS[backend]}` is" if backend == "trainjob" or not by_us else "`max_retries` are"
    often = f"failed {times} time{'s' if times > 1 else ''}, " if times else "failed: "
    return f"it {often}its {name} used up"
