"""D6: one run at a time changes a cluster or runs a job; the next says who does, and waits."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster import lease, lease_keeper
from gangplank.cluster.client import Kube
from gangplank.cluster.lease import Lock, is_same
from gangplank.errors import GangplankError, KubeError
from gangplank.processes import origin
from gangplank.runs import holder
from gangplank.site.rights import LOCK
from gangplank.wait import polls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.unit.conftest import Api

ROOT = Path(__file__).resolve().parents[3]
WHERE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/gangplank"
JOB = "/apis/coordination.k8s.io/v1/namespaces/vision/leases/gangplank-job-digits"
BOOKS = ["playbooks/site.yml"]
RUN = "import sys; sys.stdin.readline()"
WITH_A_TASK = f"""
import os, sys, time
if not (task := os.fork()):
    time.sleep(120)
print(task, flush=True)
{RUN}"""


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "POLL_S", 0.05)
    monkeypatch.setattr(lease_keeper, "LOOK_S", 0.05)


@pytest.fixture
def run() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that stands for another run of ansible-playbook, and the one that stands for its task."""
    command = [sys.executable, "-c", WITH_A_TASK]
    pipe: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipe) as process_:
        assert process_.stdout
        task = int(process_.stdout.readline())
        yield process_, task
        process_.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(task, signal.SIGKILL)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """A process that stands for another run of ansible-playbook."""
    with subprocess.Popen([sys.executable, "-c", RUN], stdin=subprocess.PIPE, text=True) as process_:
        yield process_
        process_.kill()


def lock(api: Api, *job: str) -> Lock:
    return Lock(Kube(api.kubeconfig), *job)


def refuse(line: str) -> None:
    pytest.fail(f"it waits: {line}")


def elsewhere(pid: int = 7, **more: str) -> dict[str, Any]:
    """The record of a process on another machine."""
    return holder(os.getpid(), BOOKS) | {"pid": pid, "boot": "another", "host": "far", **more}


def test_d6_the_second_run_says_who_holds_the_cluster_since_when_and_stops_waiting(
    api: Api, other: subprocess.Popen[str]
) -> None:
    theirs, lines = holder(other.pid, BOOKS), list[str]()
    assert lock(api).hold(theirs, refuse, 0)
    with pytest.raises(GangplankError) as refusal:
        lock(api).hold(holder(os.getpid(), BOOKS), lines.append, 0.3)
    server = lock(api).kube.api.configuration.host
    since = r"since \d{4}-\d\d-\d\d [\d:]{8} UTC"
    who = rf"\S+@{socket.gethostname()}, process {other.pid} \(playbooks/site.yml\), {since}"
    assert len(lines) == 1, "it is said once"
    assert re.fullmatch(rf"cluster {server} is in use by {who}: waiting for it up to 0 s", lines[0]), lines
    assert re.fullmatch(
        rf"cluster {server}: got {who}, expected its end within 0 s\. "
        rf"Fix: wait for it or end it \(kill {other.pid} on {socket.gethostname()}\), then run it again",
        str(refusal.value),
    ), refusal.value
    spec = api.objects[WHERE]["spec"]
    assert re.fullmatch(who, spec["holderIdentity"])
    assert spec["leaseDurationSeconds"] == lease.DURATION_S
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{6}Z", spec["renewTime"])
    assert "command" not in json.loads(api.objects[WHERE]["metadata"]["annotations"][lease.HOLDER])


def dead() -> dict[str, Any]:
    """The record of a process of this machine that has ended."""
    mine = holder(os.getpid(), BOOKS)
    return {key: value for key, value in mine.items() if key != "arguments"} | {"pid": 2**22 + 1}


@pytest.mark.parametrize("end", ["free", "exit", "kill"])
def test_d6_the_second_run_goes_on_when_the_first_ends(api: Api, other: subprocess.Popen[str], end: str) -> None:
    theirs, mine, lines = holder(other.pid, BOOKS), holder(os.getpid(), BOOKS), list[str]()
    lock(api).hold(theirs, refuse, 0)

    def say(line: str) -> None:
        lines.append(line)
        if end == "free":
            lock(api).free(theirs)
        elif end == "exit":
            other.communicate("\n")
        else:
            other.send_signal(signal.SIGKILL)

    assert lock(api).hold(mine, say, 20)
    assert len(lines) == 1
    lock(api).free(theirs)  # no longer its own: nothing happens
    assert is_same(lease.holder_of(api.objects[WHERE]), mine)
    lock(api).free(mine)
    assert api.objects == {}, "something stays in the cluster"


def test_d6_the_task_of_a_killed_run_holds_the_cluster_until_it_ends(
    api: Api, run: tuple[subprocess.Popen[str], int]
) -> None:
    (playbook, task), lines = run, list[str]()
    lock(api).hold(holder(playbook.pid, BOOKS), refuse, 0)
    playbook.kill()
    playbook.wait()
    with pytest.raises(GangplankError, match=rf"got \S+, process {task} \(playbooks.*\(kill {task} on "):
        lock(api).hold(holder(os.getpid(), BOOKS), lines.append, 0)
    threading.Timer(0.2, os.kill, (task, signal.SIGKILL)).start()
    assert lock(api).hold(holder(os.getpid(), BOOKS), lines.append, 20)


def test_d6_a_run_may_hold_what_it_holds(api: Api) -> None:
    mine = holder(os.getpid(), BOOKS)
    assert [lock(api).hold(holder(os.getpid(), BOOKS), refuse, 0) for _ in range(2)] == [True, False]
    assert lock(api).renew(mine)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "{", "[]", f'{{"pid": {10**30}}}', '{"pid": 1}', '{"pid": "1"}'])
@pytest.mark.parametrize("name", ["", "somebody"])
def test_d6_a_lease_without_a_record_counts_by_its_name_until_it_expires(api: Api, text: str, name: str) -> None:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 1}
    api.write(WHERE, {"metadata": {"name": "gangplank", "annotations": {lease.HOLDER: text}}, "spec": spec})
    lines: list[str] = []
    assert lock(api).hold(holder(os.getpid(), BOOKS), lines.append, 20)
    assert [line.partition(" is in use by ")[2].split(":")[0] for line in lines] == [name] * bool(name)


@pytest.mark.slow
@pytest.mark.parametrize("differs", [{"boot": "another"}, {"pids": "pid:[1]"}])
def test_d6_a_run_elsewhere_holds_the_cluster_until_nobody_has_renewed_its_lease(
    api: Api, differs: dict[str, str]
) -> None:
    """Another machine's processes cannot be seen, nor those of another container on this one."""
    theirs, mine, lines = holder(os.getpid(), BOOKS) | {"pid": 7} | differs, holder(os.getpid(), BOOKS), list[str]()
    lock(api).hold(theirs, refuse, 0)
    api.objects[WHERE]["spec"]["leaseDurationSeconds"] = 1
    stop = time.monotonic() + 2.5

    def renewed() -> None:
        while time.monotonic() < stop:
            lock(api).renew(theirs)
            time.sleep(0.3)

    renewal = threading.Thread(target=renewed)
    renewal.start()
    assert lock(api).hold(mine, lines.append, 20)
    renewal.join()
    assert time.monotonic() > stop + 0.5, "it was taken while it was renewed"
    assert len(lines) == 1
    assert ", process 7 (playbooks/site.yml), since " in lines[0]
    assert not lock(api).renew(theirs), "two hold it"


def test_d6_the_time_in_which_the_api_server_is_away_does_not_count(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    lock(api).hold(elsewhere(), refuse, 0)
    api.objects[WHERE]["spec"]["leaseDurationSeconds"] = 1
    kube = Kube(api.kubeconfig)
    answers, get = 0, kube.get

    def slow(where: str, query: Any = None) -> Any:
        nonlocal answers
        answers += 1
        time.sleep(0.4 if answers == 2 else 0)
        return get(where, query)

    monkeypatch.setattr(kube, "get", slow)
    monkeypatch.setattr(lease, "POLL_S", 0.3)
    assert Lock(kube).hold(holder(os.getpid(), BOOKS), lambda _: None, 20)
    assert answers >= 5


@pytest.mark.parametrize("exists", [False, True])
def test_d6_of_two_that_take_it_at_once_one_waits(
    api: Api, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """Between this run's look and its request, another was faster: the API server answers 409."""
    theirs, mine, lines = holder(other.pid, BOOKS), holder(os.getpid(), BOOKS), list[str]()
    if exists:  # the Lease of a dead run, which both take over
        lock(api).hold(dead(), refuse, 0)
    ours = lock(api)
    take, raced = ours._take, list[bool]()

    def race(*words: Any) -> bool:
        if not raced:
            raced.append(lock(api).hold(theirs, refuse, 0))
        return take(*words)

    monkeypatch.setattr(ours, "_take", race)
    monkeypatch.setattr(lease, "polls", lambda limit_s, _: iter((0.0, limit_s)))  # two looks, however long they take
    with pytest.raises(GangplankError, match=f"process {other.pid} "):
        ours.hold(mine, lines.append, 3)
    assert raced == [True]
    assert len(lines) == 1
    assert is_same(lease.holder_of(api.objects[WHERE]), theirs)


@pytest.mark.parametrize("exists", [False, True])
def test_d6_a_lock_whose_answer_was_lost_is_newly_taken(
    api: Api, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """Otherwise nothing would renew it."""
    mine = holder(os.getpid(), BOOKS)
    if exists:
        lock(api).hold(dead(), refuse, 0)
    ours = lock(api)
    take = ours._take
    monkeypatch.setattr(ours, "_take", lambda *words: take(*words) and False)
    assert ours.hold(mine, refuse, 5)


def test_d6_a_lock_that_is_renewed_while_it_is_freed_is_freed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, ours, renewals = holder(os.getpid(), BOOKS), lock(api), list[bool]()
    ours.hold(mine, refuse, 0)
    delete = ours.kube.delete_at

    def after_a_renewal(*words: Any, **more: Any) -> None:
        if not renewals:
            renewals.append(lock(api).renew(mine))
        delete(*words, **more)

    monkeypatch.setattr(ours.kube, "delete_at", after_a_renewal)
    ours.free(mine)
    assert renewals == [True]
    assert api.objects == {}


def forbid(api: Api, monkeypatch: pytest.MonkeyPatch, *methods: str, status: int = 403) -> None:
    """Refuse requests about Leases."""
    answer: Callable[..., tuple[int, bytes]] = api.answer

    def refused(method: str, where: str, query: str, body: Any) -> tuple[int, bytes]:
        if method in methods and "/leases" in where:
            return status, json.dumps({"message": "leases is forbidden"}).encode()
        return answer(method, where, query, body)

    monkeypatch.setattr(api, "answer", refused)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_d6_a_run_without_the_right_to_leases_says_so_and_goes_on(
    api: Api, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    mine, lines = holder(os.getpid(), BOOKS), list[str]()
    if method == "PATCH":
        lock(api).hold(dead(), refuse, 0)
    forbid(api, monkeypatch, method)
    assert lock(api).hold(mine, lines.append, 0) == (method == "DELETE")
    lock(api).free(mine)
    if method != "DELETE":
        (line,) = lines
        assert line.startswith("cluster http://127.0.0.1:")
        assert "got an account that may not lock it (the cluster says: leases is forbidden), expected one" in line
        assert "Fix: let it get leases.coordination.k8s.io, create leases" in line


@pytest.mark.parametrize("status", [400, 422])
def test_d6_a_policy_against_leases_does_not_keep_a_run_from_its_work(
    api: Api, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    forbid(api, monkeypatch, "POST", status=status)
    lines: list[str] = []
    assert not lock(api).hold(holder(os.getpid(), BOOKS), lines.append, 0)
    assert "got an account that may not lock it (the cluster says: leases is forbidden)" in lines[0]


def test_d6_the_rights_that_are_named_are_those_that_it_uses(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = holder(os.getpid(), BOOKS)
    lock(api).hold(mine, refuse, 0)
    lock(api).renew(mine)
    lock(api).free(mine)
    verbs = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
    assert {f"{verbs[line.split()[0]]} leases.coordination.k8s.io" for line in api.seen} == {*LOCK}
    forbid(api, monkeypatch, "POST", status=404)  # the namespace does not exist, so there is no job to run twice
    assert not lock(api, "digits", "vision").hold(mine, refuse, 0)
    forbid(api, monkeypatch, "GET", status=401)
    with pytest.raises(KubeError):
        lock(api).hold(mine, refuse, 0)


@pytest.mark.parametrize("lives", [False, True])
def test_d6_who_only_waits_looks_at_the_lock_once_each_time(
    api: Api, other: subprocess.Popen[str], lives: bool
) -> None:
    lock(api).hold(holder(other.pid, BOOKS) if lives else dead(), refuse, 0)
    api.seen.clear()
    with pytest.raises(GangplankError) if lives else contextlib.nullcontext():
        lock(api).wait(holder(os.getpid(), BOOKS), lambda _: None, 0)
    assert len(api.seen) == 1, api.seen


def test_d6_runs_of_different_jobs_do_not_wait_for_each_other(api: Api, other: subprocess.Popen[str]) -> None:
    theirs, mine, lines = holder(other.pid, BOOKS), holder(os.getpid(), BOOKS), list[str]()
    for job in ((), ("digits", "vision")):
        assert lock(api, *job).hold(theirs, refuse, 0)
    for job in (("linear", "vision"), ("digits", "speech")):
        assert lock(api, *job).hold(mine, refuse, 0)
    with pytest.raises(GangplankError, match="job vision/digits: got"):
        lock(api, "digits", "vision").hold(mine, lines.append, 0)
    assert lines[0].startswith("job vision/digits is in use by ")
    assert {WHERE, JOB} <= {*api.objects}


def test_d6_a_lease_cannot_write_to_the_terminal(api: Api) -> None:
    lock(api).hold(elsewhere(user="\x1b[2J", playbooks="\r"), refuse, 0)
    lines: list[str] = []
    with pytest.raises(GangplankError) as refusal:
        lock(api).hold(holder(os.getpid(), BOOKS), lines.append, 0)
    assert not {"\x1b", "\r"} & {*lines[0], *str(refusal.value)}


def hostile(api: Api, record: object, **spec: object) -> None:
    """What a member wrote as the lock of a job, before an administrator or a colleague runs it."""
    text = record if isinstance(record, str) else json.dumps(record)
    meta = {"name": "gangplank-job-digits", "namespace": "vision", "annotations": {lease.HOLDER: text}}
    api.write(JOB, {"metadata": meta, "spec": {"holderIdentity": "bob", "leaseDurationSeconds": 60} | spec})


WRONG: dict[str, list[Any]] = {  # values that no run writes, by their key
    "pid": [0, -1, 1.5, True, "7", None, [7], {}, 2**31, 1e400, float("nan")],
    "started": ["1", 1.0, None, []],
    **{key: [None, 7, {}, [[]]] for key in (*lease.TEXTS, "playbooks")},
}


@pytest.mark.parametrize("change", [{key: value} for key, values in WRONG.items() for value in values], ids=str)
def test_d6_a_record_that_no_run_writes_is_no_record(api: Api, change: dict[str, Any]) -> None:
    """Such as a process that is no number: the Lease counts by its name, as one without a record does."""
    hostile(api, holder(os.getpid(), BOOKS) | change)
    with pytest.raises(GangplankError, match=r"got bob, .* Fix: wait for it or end it, then run it again"):
        lock(api, "digits", "vision").hold(holder(os.getpid(), BOOKS), lambda _: None, 0)


@pytest.mark.parametrize("text", ["[" * 10**5, '{"pid": ' + "9" * 10**5 + "}", '"' * 3, "\x1b[2J"])
def test_d6_a_record_that_is_no_json_is_no_record(api: Api, text: str) -> None:
    hostile(api, text)
    with pytest.raises(GangplankError, match="got bob, "):
        lock(api, "digits", "vision").hold(holder(os.getpid(), BOOKS), lambda _: None, 0)


@pytest.mark.parametrize("with_record", [True, False])
def test_d6_what_a_lease_says_is_shown_and_not_obeyed(api: Api, with_record: bool) -> None:
    evil = "\x1b[2J\r\n\u202e; rm -rf /\ud800" + "x" * 10**5
    words = dict.fromkeys(("user", "host", "since", "playbooks"), evil)
    hostile(api, elsewhere() | words if with_record else "", holderIdentity=evil.replace("\ud800", ""))
    lines: list[str] = []
    with pytest.raises(GangplankError) as refusal:
        lock(api, "digits", "vision").hold(holder(os.getpid(), BOOKS), lines.append, 0)
    for text in (*lines, str(refusal.value)):
        assert text.isprintable(), ascii(text)
        assert "\\x1b[2J\\r\\n\\u202e; rm" in text
        assert len(text) < 1500


def test_d6_a_process_that_was_not_seen_here_is_named_without_a_command_that_ends_it(api: Api) -> None:
    """It may be somebody else's than the Lease says."""
    hostile(api, elsewhere(pid=4242))
    with pytest.raises(GangplankError, match=r"process 4242 .* Fix: wait for it or have its user end it on far, then"):
        lock(api, "digits", "vision").hold(holder(os.getpid(), BOOKS), lambda _: None, 0)


@pytest.mark.slow
@pytest.mark.parametrize("times", [{"renewTime": "9999-12-31T23:59:59.000000Z"}, {"renewTime": None}, {}])
@pytest.mark.parametrize("duration", [2**31 - 1, None])
@pytest.mark.parametrize("with_record", [True, False])
def test_d6_no_lease_counts_longer_than_a_run_s_own_without_a_change(
    api: Api, monkeypatch: pytest.MonkeyPatch, times: dict[str, str], duration: int | None, with_record: bool
) -> None:
    monkeypatch.setattr(lease, "DURATION_S", 0.3)
    hostile(api, elsewhere() if with_record else "", leaseDurationSeconds=duration, **times)
    lines: list[str] = []
    assert lock(api, "digits", "vision").hold(holder(os.getpid(), BOOKS), lines.append, 20)
    assert len(lines) == 1


def test_d6_a_full_quota_of_leases_is_said_with_its_own_cure(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    answer: Callable[..., tuple[int, bytes]] = api.answer
    says = json.dumps({"message": "exceeded quota: gangplank-team, used: count/leases.coordination.k8s.io=5"}).encode()
    monkeypatch.setattr(api, "answer", lambda method, *more: (403, says) if method == "POST" else answer(method, *more))
    lines: list[str] = []
    assert not lock(api, "digits", "vision").hold(holder(os.getpid(), BOOKS), lines.append, 0)
    fix = "have an administrator delete Leases of jobs that nobody runs (kubectl get leases -n vision)"
    assert f"Fix: {fix}; otherwise" in lines[0]


def test_d6_another_users_hidden_process_is_not_taken_for_dead(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = holder(os.getpid(), BOOKS)
    lock(api).hold(dead(), refuse, 0)
    monkeypatch.setattr(lease, "is_hidden", lambda pid: pid == 2**22 + 1)
    with pytest.raises(GangplankError, match=f"process {2**22 + 1} "):
        lock(api).hold(mine, lambda _: None, 0)


def test_d6_a_machine_without_proc_takes_no_lock(api: Api) -> None:
    lines: list[str] = []
    record = {key: value for key, value in holder(os.getpid(), BOOKS).items() if key not in ("started", "boot")}
    assert not lock(api).hold(record, lines.append, 0)
    assert lines[0].endswith("since this machine has no /proc")
    assert api.objects == {}


def keeper(api: Api, record: dict[str, Any]) -> subprocess.Popen[bytes]:
    return lease_keeper.start(lock(api), record, (api.kubeconfig, None), os.environ, ("", ""))


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_d6_the_keeper_frees_the_lock_when_its_run_has_ended(
    api: Api, other: subprocess.Popen[str], end: str
) -> None:
    theirs = holder(other.pid, BOOKS)
    lock(api).hold(theirs, refuse, 0)
    with keeper(api, theirs) as process_:
        session = os.getsid(process_.pid)
        for _ in polls(10, 0.02):  # the kernel shows it a moment after Popen returns
            if environment := Path(f"/proc/{process_.pid}/environ").read_bytes().split(b"\0")[:-1]:
                break
        if end == "exit":
            other.communicate("\n")
        else:
            other.kill()
        assert process_.wait(30) == 0
    assert session == process_.pid, "Ctrl-C would end it too"
    own = {name.encode() + b"=" + value.encode() for name, value in os.environ.items()}
    assert {*environment} == own, "a kubeconfig's program gets it too, such as one in another Python"
    assert api.objects == {}


def test_d6_the_keeper_ends_with_the_lock(api: Api, other: subprocess.Popen[str]) -> None:
    theirs = holder(other.pid, BOOKS)
    lock(api).hold(theirs, refuse, 0)
    with keeper(api, theirs) as process_:
        for _ in polls(10, 0.02):  # the kernel shows its arguments a moment after Popen returns
            if lease_keeper.MODULE.encode() in Path(f"/proc/{process_.pid}/cmdline").read_bytes():
                break
        lease_keeper.end(lock(api, "digits", "vision"), theirs)
        lease_keeper.end(lock(api), theirs | {"pid": 1})
        assert process_.poll() is None, "that was another lock"
        lease_keeper.end(lock(api), theirs)
        process_.wait(30)


# As it makes a file, or some time later.
ENDED = {"at once": """import os, signal, tempfile
make = tempfile.mkstemp
def then_end(*args, **kwargs):
    place = make(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGTERM)
    return place
tempfile.mkstemp = then_end
""", "later": ""}  # fmt: skip


@pytest.mark.parametrize("before", ENDED.values(), ids=ENDED)
def test_d6_a_keeper_that_is_ended_leaves_no_key_on_the_disk(
    tmp_path: Path, other: subprocess.Popen[str], before: str
) -> None:
    """The client writes what a kubeconfig contains to temporary files."""
    data = base64.b64encode(b"secret").decode()
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": data}
    user = {"client-certificate-data": data, "client-key-data": data}
    config, temporary = tmp_path / "kubeconfig", tmp_path / "tmp"
    temporary.mkdir()
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    parts = {"clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}]}
    config.write_text(json.dumps({"current-context": "x", "contexts": contexts, **parts}))
    facts = json.dumps({"choice": (str(config), None), "job": ("", ""), "record": holder(other.pid, BOOKS)})
    own = f"from {lease_keeper.MODULE.rpartition('.')[0]} import lease_keeper as own"
    code = f"{before}\n{own}; own.RENEW_S = 0.0; own.main()"
    command = [sys.executable, "-c", code, "place", str(other.pid), facts]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)}) as process_:
        for _ in polls(20, 0.05):
            if process_.poll() is not None if before else any(temporary.iterdir()):
                break
        else:
            pytest.fail("it has not looked at the lock")
        process_.terminate()
        process_.wait(30)
    assert [*temporary.iterdir()] == []


@pytest.mark.slow
def test_d6_a_keeper_without_a_usable_kubeconfig_can_be_ended_too(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    """It looks again as long as its run lives."""
    facts = json.dumps({"choice": (str(tmp_path / "none"), None), "job": ("", ""), "record": holder(other.pid, BOOKS)})
    code = f"""from {lease_keeper.MODULE.rpartition('.')[0]} import client, lease_keeper as own
begin = client.Kube.__init__
def reported(*args):
    try:
        begin(*args)
    except client.KubeError:
        print("refused", flush=True)
        raise
client.Kube.__init__, own.RENEW_S = reported, 0.0
own.main()"""
    command = [sys.executable, "-c", code, "place", str(other.pid), facts]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process_:
        assert process_.stdout
        try:
            assert process_.stdout.readline() == "refused\n"
            process_.terminate()
            process_.wait(10)
        finally:
            process_.kill()


def test_d6_the_lock_is_renewed_through_a_long_task_and_an_outage(
    api: Api, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = holder(other.pid, BOOKS)
    lock(api).hold(theirs, refuse, 0)
    monkeypatch.setattr(lease_keeper, "RENEW_S", 0.2)
    thread = threading.Thread(target=lease_keeper.keep, args=(theirs, lambda: lock(api)))
    thread.start()

    def wait_for_renewal() -> None:
        before = api.objects[WHERE]["spec"]["renewTime"]
        for _ in polls(20, 0.05):
            if api.objects[WHERE]["spec"]["renewTime"] > before:
                return
        pytest.fail("it is not renewed")

    wait_for_renewal()
    api.says = (422, "not now")
    time.sleep(0.5)
    api.says = None
    wait_for_renewal()
    other.kill()
    other.wait()
    thread.join(20)
    assert api.objects == {}


def test_d6_a_lock_that_cannot_be_renewed_is_tried_no_more_often(
    other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time, the client asks the program that the kubeconfig names, such as aws or oci, for a token."""
    tries: list[float] = []

    def away() -> Lock:
        tries.append(time.monotonic())
        if len(tries) == 3:
            other.kill()
            other.wait()
        raise KubeError("no answer", silence="away")

    monkeypatch.setattr(lease_keeper, "RENEW_S", 0.5)
    lease_keeper.keep(holder(other.pid, BOOKS), away)
    assert tries[1] - tries[0] >= 0.5
    assert tries[2] - tries[1] >= 0.5


def test_d6_the_keeper_leaves_the_lock_of_another_alone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = holder(os.getpid(), BOOKS)
    lock(api).hold(elsewhere(), refuse, 0)
    monkeypatch.setattr(lease_keeper, "RENEW_S", 0.0)
    lease_keeper.keep(mine, lambda: lock(api))
    assert list(api.objects) == [WHERE]


def test_d6_a_task_of_a_killed_run_does_not_hold_for_its_new_parent() -> None:
    """ansible-playbook was killed just before: the parent is then the machine's first process, which never ends."""
    assert origin() == os.getpid(), "pytest is not a fork of what started it"
    code = """
import os, time
from gangplank.processes import origin
run = os.getpid()
if not os.fork():
    print(origin() == run, flush=True)
    os.kill(run, 9)
    while os.getppid() == run:
        time.sleep(0.01)
    print(origin() == os.getpid(), flush=True)
else:
    time.sleep(60)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["True", "True"], done.stderr
