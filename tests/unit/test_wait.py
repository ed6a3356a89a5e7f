"""The one wait loop, and each wait that runs out of time: it says what was waited for, and for how long."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster import evidence, submit
from gangplank.cluster.client import Kube, path
from gangplank.errors import GangplankError
from gangplank.teams import kubeconfig, quota_ready
from gangplank.teams.metadata import TEAM_PART
from gangplank.wait import Pause, polls
from lab.build import image_store
from lab.host import cgroups, processes, ready, supervisor

if TYPE_CHECKING:
    from tests.unit.conftest import Api

Json = dict[str, Any]
POD: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}}


class Clock:
    """A clock that nobody has to wait for; threads that another test left behind keep the real one."""

    def __init__(self) -> None:
        self.now, self.pauses, self.thread = 100.0, list[float](), threading.get_ident()

    def monotonic(self) -> float:
        return self.now if threading.get_ident() == self.thread else time.monotonic()

    def sleep(self, pause_s: float) -> None:
        if threading.get_ident() != self.thread:
            time.sleep(pause_s)
            return
        self.pauses.append(pause_s)
        self.now += pause_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of gangplank/wait.py alone: requests and processes keep the real one."""
    fake = Clock()
    monkeypatch.setattr("gangplank.wait.time", fake)
    return fake


@pytest.fixture
def pauses(clock: Clock) -> list[float]:
    """Between two looks, in seconds."""
    return clock.pauses


def test_asks_at_once_and_once_more_when_the_time_is_up(pauses: list[float]) -> None:
    assert list(polls(1, 0.5)) == [0.0, 0.5, 1.0, 1.5]
    assert pauses == [0.5, 0.5, 0.5]


def test_does_not_pause_after_the_answer(pauses: list[float]) -> None:
    assert next(polls(1, 0.5)) == 0.0
    assert pauses == []


def test_the_time_of_the_answers_counts(clock: Clock) -> None:
    looks = 0
    for _ in polls(10, 1):
        looks, clock.now = looks + 1, clock.now + 4
    assert looks == 3
    assert clock.pauses == [1, 1], "none after the last"


def test_a_pause_grows_to_the_longest_and_begins_again_after_a_success(pauses: list[float]) -> None:
    pause = Pause(0.5, 3)
    for _ in range(5):
        pause.take()
    pause.reset()
    pause.take()
    assert pauses == [0.5, 1, 2, 3, 3, 0.5]


def late(what: str, ask: Any) -> str:
    with pytest.raises(GangplankError) as error:
        ask()
    assert what in str(error.value)
    return str(error.value)


def test_an_object_that_does_not_go(api: Api, pauses: list[float]) -> None:
    api.objects[path("v1", "Pod", "default", "a")] = POD
    fix = "look at its pods: at their finalizers, and whether their nodes answer"
    expected = f"Pod default/a: got an object that still exists, expected its removal within 120 s. Fix: {fix}"
    late(expected, lambda: submit.wait_until_gone(Kube(), POD))
    assert set(pauses) == {submit.POLL_S}


def test_a_pod_that_does_not_print(api: Api, pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    where = path("v1", "Pod", "default", "a")
    monkeypatch.setattr(Kube, "create", lambda _, pod, **_more: api.objects.update({where: pod}))
    monkeypatch.setattr(evidence, "POLL_S", 5)
    api.logs = {f"{where}/log": b""}
    unplaced = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
    spec = {"containers": [{"image": "img"}]}
    pod = {**POD, "spec": spec, "status": {"phase": "Pending", "conditions": [unplaced]}}
    expected = "got a: not scheduled: 0/2 nodes are available, expected its start within 120 s. Fix: free a place"
    late(expected, lambda: evidence.read_claim(Kube(), pod, 3))
    pulls = {**POD, "spec": {**spec, "nodeName": "node-1"}, "status": {"phase": "Pending"}}
    late("got Pending on node node-1, expected its start within 900 s", lambda: evidence.read_claim(Kube(), pulls, 3))
    assert where not in api.objects, "it is removed all the same"
    assert evidence.POLL_S in pauses


def test_an_object_that_is_not_accepted(api: Api, pauses: list[float]) -> None:
    api.refuses = "no endpoints available for the webhook"
    job = {**POD, "apiVersion": "batch/v1", "kind": "Job"}
    message = late("Job a: got the cluster says: no endpoints", lambda: Kube().accepts(job, 60))
    assert message.endswith("expected acceptance within 60 s")
    api.refuses = ""
    message = late("Job a: got acceptance", lambda: Kube().accepts(job, 60, "quota"))
    assert message.endswith('expected the refusal "quota" within 60 s')
    assert pauses


def test_quotas_that_do_not_count(api: Api, pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    meta = {"name": "q", "namespace": "vision", "labels": TEAM_PART}
    quota = {"metadata": meta, "spec": {"hard": {"pods": 1}}, "status": {}}
    api.objects["/api/v1/resourcequotas"] = {"items": [quota]}
    api.objects["/api/v1/namespaces/vision/resourcequotas/q"] = quota

    def answer(method: str, *request: Any, real: Any = api.answer) -> tuple[int, bytes]:
        return (200, b"{}") if method == "PATCH" else real(method, *request)

    monkeypatch.setattr(api, "answer", answer)  # a change of a quota does not replace it
    assert quota_ready.settle(Kube(), 60) == ["vision: pods"]
    assert set(pauses) == {quota_ready.POLL_S}


def test_a_quota_without_limits_counts_all_of_them(api: Api) -> None:
    meta = {"name": "q", "namespace": "vision", "labels": TEAM_PART}
    api.objects["/api/v1/resourcequotas"] = {"items": [{"metadata": meta, "spec": {}}]}
    assert quota_ready.settle(Kube(), 60) == []


def test_a_certificate_that_nobody_signs(pauses: list[float]) -> None:
    kube: Any = type("Unsigning", (), {
        "post": lambda *_, unique: {"metadata": {"name": "gangplank-team-x", "uid": "u"}},  # noqa: ARG005  by its name
        "call": lambda *_, **_more: {}, "delete_at": lambda *_: None})()  # fmt: skip
    expected = "the certificate of ada: got none, expected one that the cluster has signed within 60 s. Fix: check"
    late(expected, lambda: kubeconfig.issue_certificate(kube, "ada", b"request", 600))
    assert set(pauses) == {kubeconfig.POLL_S}


@pytest.mark.usefixtures("pauses")
def test_a_process_of_the_lab_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.host.processes.os.kill", lambda *_: None)
    late("processes 7, 8: got them alive, expected their end within 60 s.", lambda: processes.kill(lambda: {8, 7}))


@pytest.mark.usefixtures("pauses")
def test_a_cgroup_that_stays_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = tmp_path / cgroups.SLICE / "node-0"
    (busy / "held").mkdir(parents=True)
    (busy / "held" / "by").touch()
    monkeypatch.setattr(cgroups, "_hierarchies", lambda: [tmp_path])
    late("expected it removed within 30 s", lambda: cgroups.remove_cgroup("node-0"))
    (busy / "held" / "by").unlink()
    cgroups.remove_cgroup("node-0")
    assert not busy.exists()


@pytest.mark.parametrize(("silent", "state"), [(True, "none"), (False, "exit status 3")])
def test_a_supervisor_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], silent: bool, state: str
) -> None:
    class Process:
        pid, returncode = 1, 3

        def __init__(self, *_words: object, stdout: Any, **_more: object) -> None:
            stdout.write(b"no such user\n")
            stdout.flush()

        def poll(self) -> int | None:
            return None if silent else self.returncode

    for name in ("ensure_cgroup", "join_cgroup"):
        monkeypatch.setattr(supervisor, name, lambda *_: None)
    monkeypatch.setattr("lab.host.supervisor.subprocess.Popen", Process)
    config, expected = tmp_path / "conf", f"supervisord: got {state} (no such user), expected an answer within 60 s"
    late(expected, lambda: supervisor.start(config, tmp_path / "socket"))
    assert bool(pauses) == silent, "one that has ended is not waited for"


@pytest.mark.parametrize(("silent", "state"), [(True, "none"), (False, "exit status 3")])
def test_a_containerd_that_does_not_answer(tmp_path: Path, pauses: list[float], silent: bool, state: str) -> None:
    process: Any = type("Process", (), {"returncode": 3, "poll": lambda _: None if silent else 3})()
    (tmp_path / "log").write_text("no such device")
    expected = f"containerd: got {state} (no such device), expected an answer within 120 s"
    late(expected, lambda: image_store._wait_for_containerd(["false"], process, tmp_path / "log", tmp_path))
    assert bool(pauses) == silent, "one that has ended is not waited for"


@pytest.mark.usefixtures("pauses")
def test_a_lab_that_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubelet-node-1.log").write_text("swap is on\n")
    monkeypatch.setattr(ready, "Api", lambda _: None)
    monkeypatch.setattr(ready, "unready", lambda *_: "node node-1 is not registered")
    message = late("the lab: got node", lambda: ready.wait(tmp_path / "config", ["node-1"], 60, tmp_path, dict))
    assert "node node-1 is not registered, expected every node Ready within 60 s. Fix: correct what the" in message
    assert message.endswith("swap is on")


def test_nobody_else_writes_such_a_loop() -> None:
    root = Path(__file__).parents[2]
    sources = [file for folder in ("gangplank", "lab", "plugins") for file in (root / folder).rglob("*.py")]
    in_a_pod = root / "gangplank/cluster/network_trial.py"  # its program runs without the library
    assert {file for file in sources if "sleep(" in file.read_text()} == {root / "gangplank/wait.py", in_a_pod}
