"""How many workers a running job is given: which back-ends can be told so, and the patch that tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import backend_of
from gangplank.errors import Problem, SpecError

if TYPE_CHECKING:
    from gangplank.spec import Json

ANEW = "submit the job anew with other workers: gangplank delete, then gangplank submit"
WHY_NOT = {
    "trainjob": "a TrainJob's nodes are fixed when its pods are made",
    "indexed": "WORLD_SIZE of an Indexed Job's pods is fixed when they are made",
}


def patch(job: Json, workers: int) -> Json:
    """The merge patch that gives a live job so many workers; SpecError where that cannot be.

    >>> elastic = {"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 3}
    >>> spec = {"elasticPolicy": elastic, "pytorchReplicaSpecs": {"Worker": {}}}
    >>> job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": spec}
    >>> patch(job, 2)
    {'spec': {'pytorchReplicaSpecs': {'Worker': {'replicas': 2}}}}
    """
    backend = backend_of(job)
    if backend == "pytorchjob":
        return _pytorchjob(job, workers)
    if backend == "volcano":
        return _volcano(job, workers)
    raise _refused(job, workers, f"no scaling on {backend}", f"{WHY_NOT[str(backend)]}; {ANEW}")


def _pytorchjob(job: Json, workers: int) -> Json:
    """An elastic PyTorchJob goes where its bounds allow; its ranks meet anew."""
    elastic = job["spec"].get("elasticPolicy")
    if elastic is None:
        raise _refused(job, workers, "a job with elastic", f"its ranks and WORLD_SIZE are fixed; {ANEW}")
    count = job["spec"]["pytorchReplicaSpecs"]["Worker"].get("replicas", 1)
    least, most = elastic.get("minReplicas", count), elastic.get("maxReplicas", count)
    if not least <= workers <= most:
        raise _refused(job, workers, f"from elastic.min {least} to elastic.max {most} workers", "")
    if elastic.get("maxRestarts", 0) < 1:  # a rank that sees another leave to meet anew counts that as a failure
        cure = f"without one, worker 0 would fail, where the ranks meet; {ANEW}, and with max_retries"
        raise _refused(job, workers, "a job whose elasticPolicy.maxRestarts is at least 1", cure)
    return {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}}


def _volcano(job: Json, workers: int) -> Json:
    """Volcano adds and removes pods of a task, but those that run keep the WORLD_SIZE that they were made with."""
    spec = job["spec"]
    if "pytorch" in (spec.get("plugins") or {}):
        cure = f"running pods keep the WORLD_SIZE they were made with; {ANEW}, or use pytorchjob with elastic"
        raise _refused(job, workers, "a job without the plugin pytorch", cure)
    tasks: list[Json] = [dict(task) for task in spec["tasks"]]
    task = next((item for item in tasks if item["name"] == "worker"), None)
    if task is None:
        raise _refused(job, workers, f"a task worker among {', '.join(item['name'] for item in tasks)}", "")
    task["minAvailable"] = min(task["minAvailable"], workers)  # the webhook has filled it in
    task["replicas"] = workers
    return {"spec": {"tasks": tasks, "minAvailable": min(spec["minAvailable"], sum(t["replicas"] for t in tasks))}}


def _refused(job: Json, workers: int, expected: str, cure: str) -> SpecError:
    """Why a job cannot be scaled."""
    return SpecError([Problem("workers", str(workers), expected, cure)], job["metadata"]["name"])
