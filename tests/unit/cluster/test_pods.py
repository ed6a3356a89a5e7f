"""A13, E1: pods are a job's if its controllers made them; a label, or a name, is not enough."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.client import Kube
from gangplank.cluster.evidence import known
from gangplank.cluster.follow import JobWatch
from gangplank.jobs.parse import parse_job
from gangplank.proof.verdict import Expected

if TYPE_CHECKING:
    from tests.unit.conftest import Api

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
JOBSET = "jobset.x-k8s.io/v1alpha2"
JOBSETS = f"/apis/{JOBSET}"


def live(api: Api, backend: str, uid: str = "u") -> Json:
    spec = parse_job({"name": "digits", "image": "img", "script": "/a.py", "backend": backend})
    job = BACKENDS[backend].manifests(spec)[-1]
    job["metadata"] |= {"uid": uid, "creationTimestamp": "2026-11-22T05:00:00Z"}
    api.objects[f"/apis/{job['apiVersion']}/namespaces/default/{BACKENDS[backend].plural}/digits"] = job
    return job


def pod(api: Api, pod_name: str, /, **owner: object) -> None:
    labels = {backend.wiring.job_name: "digits" for backend in BACKENDS.values()}
    meta: Json = {"name": pod_name, "namespace": "default", "uid": f"uid-{pod_name}", "labels": labels}
    if owner:
        meta["ownerReferences"] = [{"uid": "s", "kind": "Service", "name": "s", "apiVersion": "v1"},
                                   {"controller": True, **owner}]  # fmt: skip
    spec = {"nodeName": "node-0", "containers": [{"name": "c"}]}
    api.objects[f"{PODS}/{pod_name}"] = {"metadata": meta, "spec": spec}


def names(api: Api, job: Json) -> list[str]:
    return [item["metadata"]["name"] for item in Kube(api.kubeconfig).pods(job)]


@pytest.mark.parametrize("backend", ["volcano", "pytorchjob", "indexed"])
def test_a13_a_label_does_not_make_a_pod_the_jobs(api: Api, backend: str) -> None:
    job = live(api, backend)
    pod(api, "mine", uid="u", kind=job["kind"], name="digits", apiVersion=job["apiVersion"])
    pod(api, "strangers")
    pod(api, "of-the-job-before", uid="v", kind=job["kind"], name="digits", apiVersion=job["apiVersion"])
    assert names(api, job) == ["mine"]


def trainjob(api: Api, monkeypatch: pytest.MonkeyPatch, jobset: str = "u", status: int = 200) -> Json:
    """A TrainJob's pod, its Job and its JobSet, whose owner is `jobset`."""
    job = live(api, "trainjob")
    pod(api, "digits-node-0-0", uid="j", kind="Job", name="digits-node-0", apiVersion="batch/v1")
    api.objects["/apis/batch/v1/namespaces/default/jobs/digits-node-0"] = {"metadata": {
        "name": "digits-node-0", "namespace": "default", "uid": "j", "ownerReferences": [
            {"uid": "s", "controller": True, "kind": "JobSet", "name": "digits", "apiVersion": JOBSET}
        ]}}  # fmt: skip
    api.objects[f"{JOBSETS}/namespaces/default/jobsets/digits"] = {"metadata": {
        "name": "digits", "namespace": "default", "uid": "s", "ownerReferences": [
            {"uid": jobset, "controller": True, "kind": "TrainJob", "name": "digits", "apiVersion": job["apiVersion"]}
        ]}}  # fmt: skip
    answer = api.answer

    def discovery(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        kinds = {"/apis/batch/v1": ("Job", "jobs"), JOBSETS: ("JobSet", "jobsets"),
                 f"/apis/{job['apiVersion']}": ("TrainJob", "trainjobs")}  # fmt: skip
        if where in kinds:
            kind, plural = kinds[where]
            return 200, json.dumps({"resources": [{"kind": kind, "name": plural, "namespaced": True}]}).encode()
        if where.endswith("/jobsets/digits") and status != 200:
            return status, b'{"message": "no"}'
        return answer(method, where, query, body)

    monkeypatch.setattr(api, "answer", discovery)
    return job


def test_a_trainjobs_pods_are_its_jobsets_jobs(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(api, trainjob(api, monkeypatch)) == ["digits-node-0-0"]


@pytest.mark.parametrize(("jobset", "status", "count"), [("v", 200, 0), ("u", 404, 0), ("u", 403, 1)])
def test_a_jobset_of_another_trainjob_is_not_its_own(
    api: Api, monkeypatch: pytest.MonkeyPatch, jobset: str, status: int, count: int
) -> None:
    """A member who may not read JobSets is shown what has the job's name."""
    assert len(names(api, trainjob(api, monkeypatch, jobset, status))) == count


def test_who_follows_a_job_keeps_its_pods_and_no_others(api: Api) -> None:
    job = live(api, "pytorchjob")
    owner = {"uid": "u", "kind": "PyTorchJob", "name": "digits", "apiVersion": job["apiVersion"]}
    pod(api, "digits-master-0", **owner)
    pod(api, "strangers")
    watch = JobWatch(job, Kube(api.kubeconfig))
    watch.poll()
    api.objects.pop(f"{PODS}/digits-master-0")
    pod(api, "digits-worker-0", **owner)
    watch.poll()
    assert watch.nodes == {"uid-digits-master-0": "node-0", "uid-digits-worker-0": "node-0"}


def test_e1_a_job_that_was_submitted_again_is_not_the_one_that_is_followed(api: Api) -> None:
    job = live(api, "pytorchjob")
    watch = JobWatch(job, Kube(api.kubeconfig))
    assert not watch.poll().ended
    live(api, "pytorchjob", uid="v")
    end = watch.poll()
    assert (end.failed, "was deleted and submitted again" in end.reason) == (True, True)


def test_what_the_api_server_knows_goes_into_what_is_expected(api: Api) -> None:
    job = live(api, "volcano")
    pod(api, "digits-master-0", uid="u", kind="Job", name="digits", apiVersion=job["apiVersion"])
    expectation = known(Expected(3), job, Kube(api.kubeconfig).pods(job))
    assert (expectation.job_uid, expectation.created, expectation.pods) == (
        "digits-u", 1795323600.0, {"uid-digits-master-0": "node-0"})  # fmt: skip
