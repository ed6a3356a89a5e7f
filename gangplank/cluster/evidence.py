"""The evidence of a job in a cluster: from its pods' logs, else from its volume claim, by a pod that prints it."""

from __future__ import annotations

import math
import time
import uuid
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from gangplank.cluster import logs
from gangplank.cluster.client import path
from gangplank.cluster.progress import nodes_by_uid, phase
from gangplank.cluster.reader import READER, output_of, remove_ended
from gangplank.cluster.reader import reader as pod_of
from gangplank.cluster.starting import Start
from gangplank.errors import KubeError
from gangplank.proof import expected
from gangplank.proof.records import complete, records_of, select
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gangplank.cluster.client import Kube
    from gangplank.proof.claims import Expected
    from gangplank.proof.records import Records
    from gangplank.spec import Json

READER_S = 120  # from the start of the reading pod
POLL_S = 0.2
SERVER_ERROR = 500  # and above: what the API server says of a log if the kubelet does not answer it


def known(expectation: Expected, job: Json, pods: Iterable[Json]) -> Expected:
    """What a live job's evidence must show, with what the API server knows of the job and has shown of its pods."""
    return replace(expectation, job_uid=expected.job_uid(job), created=created(job), pods=nodes_by_uid(pods))


def created(job: Json) -> float | None:
    """When the API server got a job, in seconds since 1970."""
    text = job["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(text).timestamp() if text else None


def from_cluster(kube: Kube, job: Json, pods: Iterable[Json], world_size: int) -> Records:
    """From the pods' logs if those of all ranks exist, else from what rank 0 left on the job's volume claim."""
    unread: list[KubeError] = []
    own = logged(kube, pods, unread)
    records = gather(kube, job, own, world_size)
    if unread and records is own and not complete(select(own), world_size):
        raise unread[0]
    return records


def logged(kube: Kube, pods: Iterable[Json], unread: list[KubeError]) -> Records:
    """The evidence in the logs of some pods; why others' could not be read, as those of a lost node, is added."""
    records: Records = []
    for pod in pods:
        try:
            for line in logs.if_any(logs.follow(kube, pod, on=False)):
                records += records_of([line])
        except KubeError as error:
            if error.status < SERVER_ERROR:
                raise
            unread.append(error)
            kube = kube.patient(seconds=0)  # one such log has been waited for
    return records


def gather(kube: Kube, job: Json, logged: Records, world_size: int) -> Records:
    """The evidence of a live job: what its pods `logged` if that covers all ranks, else what its claim holds."""
    if complete(select(logged), world_size):
        return logged
    pod = reader(job, f"-{uuid.uuid4().hex[:6]}")
    if pod is None or not phase(job).ended:
        return logged
    remove_ended(kube, job, "evidence")
    return read_claim(kube, pod, world_size) or logged


def read_claim(kube: Kube, pod: Json, world_size: int) -> Records:
    """Create a pod that prints evidence, read it until it covers all ranks or the pod ends, and remove the pod.

    The log is read once, as it is written. It can be complete a second or two before the cluster reports the pod's end.
    """
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    live: Json = {}
    records: Records = []
    start, end = Start(kube, "reads the claim"), math.inf

    def enough() -> bool:
        return time.monotonic() > end or complete(select(records), world_size)

    kube.create(pod, unique=True)
    try:
        for waited_s in polls(math.inf, POLL_S):
            live = kube.call("GET", path("v1", "Pod", namespace, name))
            ended = live["status"].get("phase") in {"Succeeded", "Failed"}
            ended = ended or "terminated" in logs.state_of(live, READER)  # beside a sidecar
            if ended or logs.runs(live, READER):
                end = time.monotonic() + READER_S
                for line in logs.if_any(logs.follow(kube, live, READER, enough=enough)):
                    records += records_of([line])
                if ended or time.monotonic() <= end or complete(select(records), world_size):
                    return records
                break
            start.check(live, waited_s)
    finally:
        kube.delete(pod)
    fix = f"see whether its node {live['spec'].get('nodeName')} answers, then try again"
    raise KubeError(late(f"pod {namespace}/{name}, which reads the claim", "no end", "its end", READER_S, fix))


def reader(manifest: Json, suffix: str = "") -> Json | None:
    """A pod that prints the evidence that rank 0 left on the job's volume claim; None if the job leaves none there."""
    output = output_of(manifest)
    if output is None or not output.claim:
        return None
    return pod_of(manifest, "evidence", suffix, [["cat", f"{output.place.rstrip('/')}/{expected.EVIDENCE}"]])
