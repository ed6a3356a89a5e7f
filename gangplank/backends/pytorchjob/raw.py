"""Facts about any PyTorchJob, ours or third-party: pitfalls, templates, its queue, and how to scale it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends.base import RESUBMIT, Site, Template, failed_for, unscalable
from gangplank.backends.gang import unrequested
from gangplank.backends.pytorchjob.objects import LABEL, admitted
from gangplank.backends.queueing import NO_QUEUE, VOLCANO, Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.spec import Json


def pitfalls(manifest: Json) -> Iterator[str]:
    """What the operator accepts although its author hardly intends it."""
    spec: Json = manifest["spec"]
    replicas, processes = spec.get("pytorchReplicaSpecs") or {}, spec.get("nprocPerNode")
    if "Master" not in replicas and spec.get("elasticPolicy") is None:
        yield "there is no Master and no elasticPolicy, so no rank, address or WORLD_SIZE is set"
    if processes is None and spec.get("elasticPolicy") is None:
        yield "nprocPerNode is not set, so torchrun starts one process per CPU if the node has no GPU"
    if processes and processes.isdigit() and int(processes) > 1:
        yield "WORLD_SIZE counts processes and RANK counts nodes: that is right for torchrun only"
    yield from unrequested(replicas.items(), limits_count=True)


def failures(live: Json, restarts: int) -> int:
    """Its operator counts restarts of containers."""
    most = (live["spec"].get("runPolicy") or {}).get("backoffLimit") or 0
    return restarts if most and failed_for(live, "has reached the specified backoff limit") else 0


def templates(manifest: Json, _: Site) -> tuple[Json, list[Template]]:
    """The job with its defaults, and its replica types."""
    job = admitted(manifest)
    replicas = job["spec"]["pytorchReplicaSpecs"]
    return job, [Template(replicas[kind], f"{LABEL}/replica-type", kind.lower()) for kind in replicas]


def queue(manifest: Json) -> Queue:
    """The queue of its gang; without a gang there is none."""
    policy = ((manifest.get("spec") or {}).get("runPolicy") or {}).get("schedulingPolicy")
    if policy is None:
        return NO_QUEUE
    return Queue("spec.runPolicy.schedulingPolicy.queue", str(policy.get("queue") or VOLCANO.default))


def without_queues(manifest: Json) -> str:
    """A job without a gang has the usual scheduler."""
    replicas = (manifest["spec"].get("pytorchReplicaSpecs") or {}).values()
    schedulers = {((item.get("template") or {}).get("spec") or {}).get("schedulerName") for item in replicas}
    return "set pytorchjob: {gang: false} in the job's file" if VOLCANO.scheduler in schedulers else ""


def evidence_id(live: Json) -> str | None:
    """The job's name: its pods do not know the job's uid."""
    return str(live["metadata"]["name"])


def resumed(manifest: Json) -> Json:
    """A manifest with which the operator makes pods at once.

    >>> resumed({"spec": {"runPolicy": {"suspend": True, "backoffLimit": 3}}})
    {'spec': {'runPolicy': {'backoffLimit': 3}}}
    """
    policy = manifest["spec"].get("runPolicy")
    if not isinstance(policy, dict):
        return manifest
    kept = {key: value for key, value in policy.items() if key != "suspend"}
    return {**manifest, "spec": {**manifest["spec"], "runPolicy": kept}}


def with_changes(manifest: Json, live: Json) -> Json:
    """A manifest with the live job's number of workers, if it is elastic, and without its suspension once resumed.

    >>> elastic = {"minReplicas": 1, "maxReplicas": 3}
    >>> job, now = ({"spec": {"elasticPolicy": elastic, "pytorchReplicaSpecs": {"Worker": {"replicas": count}}}}
    ...             for count in (1, 3))
    >>> with_changes(job, now)["spec"]["pytorchReplicaSpecs"]
    {'Worker': {'replicas': 3}}
    """
    policy = live["spec"].get("runPolicy") or {}
    manifest = manifest if policy.get("suspend") else resumed(manifest)
    spec, elastic = manifest["spec"], manifest["spec"].get("elasticPolicy")
    replicas = spec.get("pytorchReplicaSpecs") or {}
    count = ((live["spec"].get("pytorchReplicaSpecs") or {}).get("Worker") or {}).get("replicas")
    if not (elastic and "Worker" in replicas and count):
        return manifest
    if not elastic.get("minReplicas", count) <= count <= elastic.get("maxReplicas", count):
        return manifest
    workers = {**replicas["Worker"], "replicas": count}
    return {**manifest, "spec": {**spec, "pytorchReplicaSpecs": {**replicas, "Worker": workers}}}


def scale(job: Json, workers: int) -> Json:
    """An elastic PyTorchJob can be scaled within its bounds; its ranks then meet again.

    >>> elastic = {"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 3}
    >>> spec = {"elasticPolicy": elastic, "pytorchReplicaSpecs": {"Worker": {}}}
    >>> scale({"metadata": {"name": "a"}, "spec": spec}, 2)
    {'spec': {'pytorchReplicaSpecs': {'Worker': {'replicas': 2}}}}
    """
    elastic = job["spec"].get("elasticPolicy")
    if elastic is None:
        expected = "a job with elastic (without it, ranks and WORLD_SIZE are fixed)"
        raise unscalable(job, workers, expected, RESUBMIT)
    replicas = job["spec"]["pytorchReplicaSpecs"]
    if "Worker" not in replicas:
        raise unscalable(job, workers, f"a Worker among its replicas, which are {', '.join(replicas)}", "")
    count = replicas["Worker"].get("replicas", 1)
    least, most = elastic.get("minReplicas", count), elastic.get("maxReplicas", count)
    if not least <= workers <= most:
        raise unscalable(job, workers, f"from elastic.min {least} to elastic.max {most} workers", "")
    if elastic.get("maxRestarts", 0) < 1:  # a rank that sees another leave to meet again counts that as a failure
        expected = "elasticPolicy.maxRestarts of at least 1 (without it worker 0, where the ranks meet, would fail)"
        raise unscalable(job, workers, expected, f"{RESUBMIT}, and with max_retries")
    return {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}}
