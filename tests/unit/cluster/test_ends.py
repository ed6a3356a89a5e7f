"""Who failed first in the last attempt, whatever earlier attempts have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster import follow as following
from gangplank.cluster.client import Kube
from gangplank.cluster.ends import first_failure
from gangplank.cluster.situation import situation
from gangplank.jobs.parse import parse_job
from gangplank.scheduling.why import diagnose

if TYPE_CHECKING:
    from gangplank.spec import Json
    from tests.unit.conftest import Api

PODS = "/api/v1/namespaces/default/pods"
PEER = b"RuntimeError: Connection closed by peer\n"
OWN = b"ValueError: bad label in the data\n"
STUCK = "gangplank: rank {}: no step and no exchange for 600 s; it is at a.py:2, in load: os.read(3, 9)\n"
REPORT = (
    b"E1125 04:01:00.000000 1 torch/distributed/elastic/multiprocessing/api.py:1] failed (exitcode: 7) "
    b"local_rank: 0 (pid: 9) of binary: python3\nearlier\n"
)
ALONE = b"torch.distributed.DistNetworkError: Timed out after 121 seconds waiting for clients. 1/2 clients joined.\n"


def at(minute: str) -> str:
    return f"2026-11-25T04:{minute}Z"


def ended(code: int, began: str, end: str, reason: str = "Error") -> Json:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": at(began), "finishedAt": at(end)}}


def container(state: Json, last: Json | None = None, restarts: int = 0) -> Json:
    return {"name": "main", "restartCount": restarts, "state": state, "lastState": last or {}}


def pod(rank: int, attempt: str, minute: str, *statuses: Json, phase: str = "Failed", **more: Any) -> Json:
    meta = {
        "name": f"digits-{rank}-{attempt}",
        "namespace": "default",
        "uid": f"{rank}{attempt}",
        "generateName": f"digits-{rank}-",
        "creationTimestamp": at(minute),
        "labels": {"batch.kubernetes.io/job-name": "digits", "job-name": "digits"},
        "annotations": {"batch.kubernetes.io/job-completion-index": str(rank)},
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "digits", "uid": "u", "controller": True}
        ],
    }
    spec = {"nodeName": "n", "containers": [{"name": "main", "image": "i"}]}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase, "containerStatuses": [*statuses], **more}}


def job(**status: Any) -> Json:
    described = {"name": "digits", "image": "i", "script": "/a.py", "backend": "indexed", "workers": 1}
    manifest: Json = BACKENDS["indexed"].manifests(parse_job(described))[-1]
    manifest["metadata"] |= {"uid": "u", "namespace": "default", "creationTimestamp": at("00:00")}
    return {**manifest, "status": status}


FAILED = {"conditions": [{"type": "Failed", "status": "True", "reason": "x", "message": "x"}]}
EVICTED = {"reason": "Evicted", "message": "The node was low on resource: memory."}
REPLACED = [
    pod(0, "a", "00:00", container(ended(137, "00:05", "01:00")), **EVICTED),
    pod(1, "a", "00:00", container(ended(1, "00:05", "01:05"))),
    pod(0, "b", "10:00", container(ended(1, "10:05", "11:03"))),
    pod(1, "b", "10:00", container(ended(7, "10:05", "11:00"))),
]
STARTED_LATE = [  # a job that has failed removes what it had just started again
    pod(0, "b", "10:00", container(ended(1, "10:05", "11:03"))),
    pod(1, "b", "10:00", container(ended(7, "10:05", "11:00"))),
    pod(0, "c", "11:04", container(ended(137, "11:05", "11:06"))),
]
STARTED_LATE[-1]["metadata"] |= {"deletionTimestamp": at("11:36"), "deletionGracePeriodSeconds": 30}
OOM, LOST = ended(137, "00:05", "01:00", "OOMKilled"), ended(1, "00:05", "01:02")
IN_PLACE = [
    pod(0, "a", "00:00", container(ended(1, "01:04", "11:02"), OOM, 1)),
    pod(1, "a", "00:00", container(ended(7, "01:03", "11:00"), LOST, 1)),
]
# Rank 1 had been restarted alone before the two trained together.
UNEVEN = [
    pod(0, "a", "00:00", container(ended(7, "00:05", "11:00"))),
    pod(1, "a", "00:00", container(ended(1, "10:00", "11:02"), ended(9, "09:00", "09:01"), 3)),
]
# Rank 1 runs again already when rank 0 loses it.
AGAIN = [
    pod(0, "a", "00:00", container(ended(1, "00:05", "01:02"))),
    pod(1, "a", "00:00", container({"running": {"startedAt": at("01:01")}}, ended(7, "00:05", "01:00"), 1)),
]


@pytest.mark.parametrize(
    ("pods", "name"),
    [(REPLACED, "digits-1-b"), (IN_PLACE, "digits-1-a"), (UNEVEN, "digits-0-a"), (AGAIN, "digits-1-a")],
    ids=["replaced", "in place", "uneven", "again"],
)
def test_who_failed_first_is_of_the_last_attempt(pods: list[Json], name: str) -> None:
    for order in (pods, pods[::-1]):
        end = first_failure(order)
        assert end is not None
        assert (end.pod, end.how) == (name, "Error, exit code 7")


def site(api: Api, own: Json, pods: list[Json], logs: dict[str, bytes]) -> Json:
    ready = [{"type": "Ready", "status": "True"}]
    room = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    node = {"metadata": {"name": "n"}, "spec": {}, "status": {"conditions": ready, "allocatable": room}}
    api.objects |= {"/api/v1/nodes/n": node, "/apis/batch/v1/namespaces/default/jobs/digits": own}
    api.objects |= {f"{PODS}/{one['metadata']['name']}": one for one in pods}
    api.logs |= {f"{PODS}/{name}/log": text for name, text in logs.items()}
    return own


def why(api: Api, own: Json) -> str:
    return diagnose(situation(Kube(api.kubeconfig), own, live=True)).text()


def test_what_ended_an_earlier_attempt_did_not_end_the_job(api: Api) -> None:
    logs = {"digits-0-a": b"step 1\n", "digits-1-a": PEER, "digits-0-b": PEER, "digits-1-b": OWN}
    own = site(api, job(failed=4, **FAILED), REPLACED, logs)
    assert why(api, own).startswith("digits failed: digits-1-b failed first: Error, exit code 7")
    watch = following.JobWatch(own, Kube(api.kubeconfig))
    watch.poll()
    watch.drain()
    failed = watch.failed_first()
    assert failed is not None
    assert (failed.who, failed.status, failed.lines) == ("digits-1-b", 7, (OWN.decode().strip(),))


def test_an_earlier_end_that_a_node_reports_later_is_first_all_the_same(api: Api) -> None:
    running = [pod(rank, "a", "00:00", container({"running": {}}), phase="Running") for rank in (0, 1)]
    own = site(api, job(active=2), running, {"digits-0-a": PEER, "digits-1-a": b"step 1\n"})
    watch = following.JobWatch(own, Kube(api.kubeconfig))
    for rank, end in ((0, ended(1, "00:05", "01:02")), (1, ended(137, "00:05", "01:01", "OOMKilled"))):
        api.objects[f"{PODS}/digits-{rank}-a"] = pod(rank, "a", "00:00", container(end))
        watch.poll()
    own["status"] = FAILED
    watch.poll()
    watch.drain()
    failed = watch.failed_first()
    assert failed is not None
    assert (failed.who, failed.status) == ("digits-1-a", 137)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("stuck", [False, True])
def test_a_job_that_runs_again_is_judged_by_its_present_run(api: Api, *, restarted: bool, stuck: bool) -> None:
    before = ended(1, "01:00", "02:00") if restarted else None
    status = container({"running": {"startedAt": at("03:00")}}, before, int(restarted))
    pods = [pod(rank, "a", "00:00", status, phase="Running") for rank in (0, 1)]
    lines = {f"digits-{rank}-a": STUCK.format(rank).encode() if stuck else b"step 10\n" for rank in (0, 1)}
    own = site(api, job(active=2, ready=2), pods, lines)
    api.logs[f"{PODS}/digits-0-a/log?previous"] = ALONE
    said = why(api, own)
    assert said.startswith("digits stands still: there was no step" if stuck else "digits: nothing is wrong")


@pytest.mark.parametrize(("ready", "lost"), [("False", False), ("Unknown", True)])
def test_a_node_that_says_that_it_is_not_ready_answers(api: Api, ready: str, *, lost: bool) -> None:
    pods = [pod(rank, "a", "00:00", container({"running": {}}), phase="Running") for rank in (0, 1)]
    own = site(api, job(active=2, ready=2), pods, dict.fromkeys(("digits-0-a", "digits-1-a"), b"step 10\n"))
    api.objects["/api/v1/nodes/n"]["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    assert ("its node n does not answer" in why(api, own)) == lost


def test_why_names_the_lines_of_the_run_that_failed(api: Api) -> None:
    """Rank 1 runs again already, and its present run has said something else."""
    failed = pod(0, "a", "00:00", container(ended(1, "00:05", "01:02")))
    again = pod(1, "a", "00:00", container({"running": {"startedAt": at("01:01")}}, ended(7, "00:05", "01:00"), 1))
    own = site(api, job(failed=1, **FAILED), [failed, again], {"digits-0-a": PEER, "digits-1-a": b"second run\n"})
    api.logs[f"{PODS}/digits-1-a/log?previous"] = OWN
    said = why(api, own)
    assert said.startswith("digits failed: digits-1-a failed first: Error, exit code 7")
    assert OWN.decode().strip() in said
    assert "second run" not in said


@pytest.mark.parametrize("earlier", [REPORT, b"earlier\n"])
def test_an_earlier_run_in_the_same_place_is_not_blamed(api: Api, earlier: bytes) -> None:
    run = container(ended(9, "02:00", "03:00"), ended(7, "00:05", "01:00"), 1)
    own = site(api, job(failed=1, **FAILED), [pod(0, "a", "00:00", run)], {"digits-0-a": b"killed\n"})
    api.logs[f"{PODS}/digits-0-a/log?previous"] = earlier
    said = why(api, own)
    assert "failed first: Error, exit code 9" in said
    assert "earlier" not in said


def test_a_container_that_waits_has_the_log_of_the_run_that_failed(api: Api) -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    pods = [pod(0, "a", "00:00", container(state, ended(7, "02:00", "03:00"), 3), phase="Running")]
    pods.append(pod(1, "a", "00:00", container({"running": {}}), phase="Running"))
    own = site(api, job(active=2), pods, {"digits-0-a": OWN, "digits-1-a": b"step 1\n"})
    assert OWN.decode().strip() in why(api, own)


def test_what_a_failed_job_removes_right_after_its_start_did_not_fail_first() -> None:
    end = first_failure(STARTED_LATE)
    assert end
    assert (end.pod, end.how) == ("digits-1-b", "Error, exit code 7")


def test_a_pod_that_was_removed_first_is_the_cause_of_what_the_others_say() -> None:
    """By a drain, or a person: the other ranks only lose their connection."""
    first = pod(0, "a", "00:00", container(ended(143, "00:05", "01:00")))
    first["metadata"] |= {"deletionTimestamp": at("01:29"), "deletionGracePeriodSeconds": 30}
    end = first_failure([first, pod(1, "a", "00:00", container(ended(1, "00:06", "01:02")))])
    assert end
    assert (end.pod, end.how) == ("digits-0-a", "Error, exit code 143")


def test_a_pod_that_was_removed_long_after_its_start_is_of_the_last_attempt() -> None:
    """An in-place restart, and then a drain while the other rank still trains."""
    first = pod(1, "a", "00:00", container({"running": {"startedAt": at("01:05")}}, ended(7, "00:05", "01:00"), 1))
    last = pod(0, "a", "00:00", container(ended(143, "01:05", "30:00"), ended(1, "00:05", "01:02"), 1))
    last["metadata"] |= {"deletionTimestamp": at("30:29"), "deletionGracePeriodSeconds": 30}
    end = first_failure([first, last])
    assert end
    assert (end.pod, end.how) == ("digits-0-a", "Error, exit code 143")


def test_runs_that_a_failed_job_removes_hide_no_earlier_run_of_their_rank() -> None:
    """Containers restart in place, each after its own pause; the last one still waits when the job has failed."""
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    pods = [
        pod(0, "a", "00:00", container(ended(137, "11:12", "11:44"), ended(1, "10:05", "11:01"), 2)),
        pod(1, "a", "00:00", container(ended(1, "11:12", "11:15"), ended(7, "10:05", "11:00"), 2)),
        pod(2, "a", "00:00", container(waits, ended(1, "10:06", "11:02"), 1)),
    ]
    for item in pods:
        item["metadata"] |= {"deletionTimestamp": at("11:44"), "deletionGracePeriodSeconds": 30}
    end = first_failure(pods)
    assert end
    assert (end.pod, end.how) == ("digits-1-a", "Error, exit code 7")
