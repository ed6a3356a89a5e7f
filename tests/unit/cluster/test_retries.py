"""How often a job failed whose retries are used up, by what its controller writes."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.retries import used_up
from gangplank.jobs.parse import parse_job
from tests.support.raw_jobs import INDEXED_JOB, PYTORCHJOB, VOLCANO_JOB, by_hand

Json = dict[str, Any]
# as kube-controller-manager, the training operator and JobSet write them
OF_JOB = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
          "message": "Job has reached the specified backoff limit"}  # fmt: skip
OF_OPERATOR = {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed",
               "message": "Job a has failed because it has reached the specified backoff limit"}  # fmt: skip
OF_JOBSET = {"type": "Failed", "status": "True", "reason": "ReachedMaxRestarts",
             "message": "jobset failed due to reaching max number of restarts"}  # fmt: skip
DEADLINE = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "was active longer"}


def made(backend: str, **fields: Any) -> Json:
    described = {"name": "a", "image": "i", "script": "/a.py", "backend": backend, "workers": 2, **fields}
    return BACKENDS[backend].manifests(parse_job(described))[-1]


def pod(restarted: int = 0, attempt: int = 0) -> Json:
    meta = {"name": "a-0", "labels": {"jobset.sigs.k8s.io/restart-attempt": str(attempt)}}
    statuses = [{"name": "a", "restartCount": restarted}]
    return {"metadata": meta, "spec": {"containers": [{"name": "a"}]}, "status": {"containerStatuses": statuses}}


def limited(text: str, **spec: Any) -> Json:
    return by_hand(text, lambda manifest: manifest["spec"].update(spec))


TWICE = "it failed 2 times, its `max_retries` are used up"


@pytest.mark.parametrize(("job", "status", "pods", "said"), [
    (made("volcano", max_retries=1), {"retryCount": 2}, [], TWICE),
    (made("volcano", max_retries=1), {"retryCount": 1}, [], ""),
    (made("volcano", max_retries=0), {"retryCount": 1}, [], ""),
    (made("indexed", max_retries=1), {"failed": 3, "conditions": [OF_JOB]}, [], TWICE),
    (made("indexed", max_retries=1), {"failed": 3, "conditions": [DEADLINE]}, [], ""),
    (made("indexed", max_retries=0), {"failed": 1, "conditions": [OF_JOB]}, [], ""),
    (made("pytorchjob", max_retries=2), {"conditions": [OF_OPERATOR]}, [pod(1), pod(2)], TWICE),
    (made("pytorchjob", max_retries=2), {"conditions": [DEADLINE]}, [pod(1), pod(2)], ""),
    (made("trainjob"), {"conditions": [OF_JOBSET]}, [pod(attempt=1)],
     "it failed 2 times, its `failurePolicy.maxRestarts` is used up"),
    (limited(VOLCANO_JOB, maxRetry=3), {"retryCount": 3}, [], "it failed 3 times, its `spec.maxRetry` is used up"),
    (limited(INDEXED_JOB, backoffLimit=6), {"failed": 7, "conditions": [OF_JOB]}, [],
     "it failed 7 times, its `spec.backoffLimit` is used up"),
    (limited(PYTORCHJOB, runPolicy={"backoffLimit": 1}), {"conditions": [OF_OPERATOR]}, [pod(1)],
     "it failed 1 time, its `spec.runPolicy.backoffLimit` is used up"),
    ({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}}, {}, [], ""),
])  # fmt: skip
def test_how_often_a_job_failed_is_counted_as_its_controller_does(
    job: Json, status: Json, pods: list[Json], said: str
) -> None:
    assert used_up({**job, "status": status}, pods) == said
