"""why on jobs that the library did not write, from the objects that an API server has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.client import Kube
from gangplank.cluster.situation import situation
from gangplank.scheduling.why import Diagnosis, Proof, diagnose
from tests.support.raw_jobs import INDEXED_JOB, PYTORCHJOB, TRAINJOB, VOLCANO_JOB, by_hand, selecting
from tests.support.why_stories import changed, in_container

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.conftest import Api

Json = dict[str, Any]
QUEUES = "/apis/scheduling.volcano.sh/v1beta1"
OLD = "2026-11-24T12:00:00Z"
ROOM = {"cpu": "2", "memory": "4Gi", "pods": "110"}
SELECTS = changed(nodeSelector={"disk": "ssd"})
LARGE = in_container(resources={"requests": {"cpu": "9"}})
CREATED = {"conditions": [{
    "type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "PyTorchJob mnist is created.",
}]}  # fmt: skip


@pytest.fixture
def site(api: Api) -> Api:
    """A node without GPUs, Volcano's queues, and a training operator that makes gangs of Volcano's."""
    status = {"allocatable": ROOM, "conditions": [{"type": "Ready", "status": "True"}]}
    api.objects["/api/v1/nodes/a"] = {"metadata": {"name": "a"}, "spec": {}, "status": status}
    for name, spec in (("root", {}), ("default", {"parent": "root"})):
        body = {"metadata": {"name": name}, "spec": spec, "status": {"state": "Open"}}
        api.objects[f"{QUEUES}/queues/{name}"] = body
    configuration = 'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - {name: gang}\n  - {name: proportion}\n'
    meta = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
    where = "/api/v1/namespaces/volcano-system/configmaps/volcano-scheduler-configmap"
    api.objects[where] = {"metadata": meta, "data": {"volcano-scheduler.conf": configuration}}
    command = ["/manager", "--gang-scheduler-name=volcano"]
    operator = {"spec": {"containers": [{"name": "m", "image": "i", "command": command}]}}
    api.objects["/apis/apps/v1/namespaces/kubeflow/deployments/training-operator"] = {
        "metadata": {"name": "training-operator", "namespace": "kubeflow"},
        "spec": {"template": operator},
        "status": {"readyReplicas": 1},
    }
    return api


def asked(api: Api, job: Json, status: Json, *, queued: str = "Pending") -> Diagnosis:
    """What why says of a job without pods and events."""
    meta = {"name": job["metadata"]["name"], "namespace": "vision", "uid": "u", "creationTimestamp": OLD}
    job = {**job, "metadata": meta, "status": status}
    if queued:
        owner = [{"kind": job["kind"], "name": meta["name"], "uid": "u", "controller": True}]
        group = {"name": meta["name"], "namespace": "vision", "uid": "g", "ownerReferences": owner}
        spec = {"minMember": 2, "queue": "default"}
        where = f"{QUEUES}/namespaces/vision/podgroups/{meta['name']}"
        api.objects[where] = {"metadata": group, "spec": spec, "status": {"phase": queued}}
    return diagnose(situation(Kube(api.kubeconfig), job, live=True))


def test_a_pytorchjob_written_by_hand_that_asks_for_gpus_that_nobody_has_is_told_so(site: Api) -> None:
    """Under Volcano's gang scheduler it stays in state Created, without pods and without events, for ever."""
    diagnosis = asked(site, by_hand(PYTORCHJOB), CREATED)
    assert diagnosis.first_line == "by-hand does not start because no node that it may use has nvidia.com/gpu"
    assert diagnosis.proof is Proof.REMOVAL


@pytest.mark.parametrize(("text", "status"), [
    (VOLCANO_JOB, {"state": {"phase": "Pending"}}), (INDEXED_JOB, {"ready": 0}),
], ids=["volcano", "indexed"])  # fmt: skip
@pytest.mark.parametrize(("change", "code"), [(SELECTS, "selector"), (LARGE, "pod-too-large"), (None, None)])
def test_a_job_written_by_hand_is_told_its_cause(
    site: Api, text: str, status: Json, change: Callable[[Json], None] | None, code: str | None
) -> None:
    diagnosis = asked(site, by_hand(text, change), status, queued="Inqueue" if text == VOLCANO_JOB else "")
    assert (diagnosis.cause.code if diagnosis.cause else None) == code, diagnosis.text()


def larger(manifest: Json) -> None:
    manifest["spec"]["trainer"]["resourcesPerNode"]["requests"]["cpu"] = "9"


@pytest.mark.parametrize(("change", "code"), [(selecting, "selector"), (larger, "pod-too-large"), (None, None)])
def test_a_trainjob_written_by_hand_is_read_as_the_others_are(
    site: Api, change: Callable[[Json], None] | None, code: str | None
) -> None:
    condition = {"type": "Created", "status": "True", "reason": "JobSetCreated", "message": ""}
    diagnosis = asked(site, by_hand(TRAINJOB, change), {"conditions": [condition]}, queued="")
    assert (diagnosis.cause.code if diagnosis.cause else None) == code, diagnosis.text()
    assert diagnosis.proof is (Proof.REMOVAL if code else Proof.NONE)


def test_a_job_of_a_queue_that_nobody_has_written_by_hand(site: Api) -> None:
    job = by_hand(VOLCANO_JOB, lambda manifest: manifest["spec"].update(queue="research"))
    diagnosis = asked(site, job, {"state": {"phase": "Pending"}})
    assert diagnosis.first_line == "by-hand does not start because its queue research does not exist"


def test_what_no_back_end_knows_is_not_guessed(site: Api) -> None:
    """A Job that is not Indexed has no ranks."""
    job = by_hand(INDEXED_JOB, lambda manifest: manifest["spec"].update(completionMode="NonIndexed"))
    diagnosis = asked(site, job, {"ready": 0}, queued="")
    assert (diagnosis.cause, diagnosis.missing) == (None, ("which pods its manifest becomes",))
