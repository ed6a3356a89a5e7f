"""Who waits for a cluster outlasts an API server that is away, and reads on; against a real server that is stopped."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangplank.backends import BACKENDS
from gangplank.cli import main
from gangplank.cluster import failure, follow, logs, patience
from gangplank.cluster.client import Kube
from gangplank.cluster.evidence import gather
from gangplank.cluster.submit import wait_until_gone
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.proof import log_lines
from gangplank.proof.verdict import Expected, prove
from gangplank.teams.quota_ready import settle
from gangplank.wait import polls
from tests.unit.cli.test_proof import JOB, text
from tests.unit.conftest import with_uid
from tests.unit.proof.test_claims import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
NOON = 1_800_000_000  # seconds since 1970 of a log's first line
RESET = struct.pack("ii", 1, 0)  # close without a word, as the kernel does for a process that was killed


def stamped(at: float, words: str) -> str:
    """A line as the API server gives it with timestamps=true."""
    whole, part = divmod(round(at * 1000), 1000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{part:03}000000Z {words}\n"


class Quiet(http.server.ThreadingHTTPServer):
    outer: Server
    daemon_threads, allow_reuse_address = True, True

    def handle_error(self, *_words: object) -> None:
        """Say nothing."""

    def shutdown_request(self, request: Any) -> None:
        with contextlib.suppress(OSError):
            super().shutdown_request(request)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Quiet
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.outer.connections.append(self.connection)

    def any_method(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        where, _, query = self.path.partition("?")
        self.server.outer.seen.append(f"{self.command} {where}")
        options = dict(part.split("=") for part in query.split("&") if part)
        if self.server.outer.says:
            self.whole(self.server.outer.says.pop(0), {"message": "later"})
        elif where.endswith("/log"):
            self.server.outer.asked.append(options)
            self.log(where.removesuffix("/log"), options)
        else:
            code, found = self.server.outer.answer(self.command, where, body, "dryRun" in options)
            if self.command != "GET" and self.server.outer.mute:
                self.server.outer.mute -= 1
                cut(self.connection)
            else:
                self.whole(code, found)

    do_GET = do_POST = do_PATCH = do_DELETE = any_method  # noqa: N815  the names that http.server calls

    def whole(self, code: int, found: Json) -> None:
        data = json.dumps(found).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log(self, where: str, options: dict[str, str]) -> None:
        if self.server.outer.cut_off:
            self.whole(500, {"message": "dial tcp: i/o timeout"})
            return
        if where not in self.server.outer.objects:
            self.whole(404, {"message": "no such pod"})
            return
        since = 0.0
        if "sinceTime" in options:
            since = datetime.fromisoformat(options["sinceTime"].replace("%3A", ":")).timestamp()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        limit, clean = self.server.outer.cuts.pop(0) if self.server.outer.cuts else (10**9, True)
        if clean and options.get("follow") != "true":
            limit = 10**9  # what has ended is read whole, or breaks
        position = 0
        while True:
            entries = self.server.outer.logs[where]
            new = [entry for entry in entries[position:] if entry[0] >= since]
            position = len(entries)
            stamps = options.get("timestamps") == "true"
            data = "".join(stamped(*entry) if stamps else f"{entry[1]}\n" for entry in new).encode()
            if len(data) >= limit:
                self.chunk(data[:limit])
                if clean:
                    self.chunk(b"", last=True)
                else:
                    cut(self.connection)
                return
            limit -= len(data)
            self.chunk(data)
            if options.get("follow") != "true" or not self.server.outer.runs(where):
                self.chunk(b"", last=True)
                return
            time.sleep(0.01)

    def chunk(self, data: bytes, *, last: bool = False) -> None:
        if data or last:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the client, or this server, is gone
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@dataclass
class Server:
    """A few objects behind HTTP on one port of the loopback, which can be taken away and given back."""

    objects: dict[str, Json] = field(default_factory=dict)
    logs: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    cuts: list[tuple[int, bool]] = field(default_factory=list)
    """Bytes after which the next answers about logs end, and whether as if that were all."""
    says: list[int] = field(default_factory=list)
    """Statuses of the next answers."""
    cut_off: bool = False
    """Whether the node of the pods does not answer the server, which then has no logs."""
    mute: int = 0
    """How many of the next writes are done and not answered."""
    seen: list[str] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    """The queries about logs."""
    port: int = 0
    http: Quiet | None = None
    connections: list[socket.socket] = field(default_factory=list)

    def start(self) -> None:
        self.http = Quiet(("127.0.0.1", self.port), Handler)
        self.http.outer = self
        self.port = self.http.server_port
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """Be gone at once, with every open connection."""
        if self.http:
            self.http.shutdown()
            self.http.socket.close()
            for connection in self.connections:
                cut(connection)
        self.http, self.connections = None, []

    def answer(self, method: str, where: str, body: Json, dry: bool) -> tuple[int, Json]:
        if method == "GET" and where.endswith(("pods", "resourcequotas")):
            return 200, {"items": [item for place, item in self.objects.items() if place.startswith(where)]}
        if method == "POST":
            where = f"{where}/{body['metadata']['name']}"
            if where in self.objects:
                return 409, {"message": "already exists"}
            if not dry:
                self.objects[where] = {**body, "status": {"phase": "Succeeded"}}
            return 201, body
        if where not in self.objects:
            return 404, {"message": "not found"}
        item = self.objects.pop(where) if method == "DELETE" else self.objects[where]
        return 200, with_uid(item, where)

    def runs(self, where: str) -> bool:
        statuses = self.objects[where].get("status", {}).get("containerStatuses") or [{}]
        return "running" in (statuses[0].get("state") or {})

    def pod(self, name: str, state: str = "running", uid: str = "", restarts: int = 0) -> Json:
        """Make or change a pod with one container."""
        status = {"name": "c", "restartCount": restarts, "state": {state: {}}}
        meta = {"name": name, "namespace": "default", "uid": uid or name, "labels": {},
                "ownerReferences": [{"uid": "u", "controller": True}]}  # fmt: skip
        pod = {"metadata": meta, "spec": {"containers": [{"name": "c"}]}, "status": {"containerStatuses": [status]}}
        self.objects[f"{PODS}/{name}"] = pod
        self.logs.setdefault(f"{PODS}/{name}", [])
        return pod

    def prints(self, name: str, *texts: str) -> None:
        """Lines of a pod, now."""
        self.logs[f"{PODS}/{name}"] += [(NOON + time.monotonic() % 10_000, line) for line in texts]

    def config(self, folder: Path) -> str:
        """A kubeconfig for it."""
        place = folder / "kubeconfig"
        place.write_text(json.dumps({
            "current-context": "x", "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}]}))  # fmt: skip
        return str(place)


def cut(connection: socket.socket) -> None:
    """End a connection as a killed server does."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    state.start()
    yield state
    state.stop()


@pytest.fixture
def kube(server: Server, tmp_path: Path) -> Kube:
    return Kube(server.config(tmp_path))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds as tenths."""
    monkeypatch.setattr(patience, "RETRY_S", 0.05)
    monkeypatch.setattr(follow, "POLL_S", 0.05)
    monkeypatch.setattr(logs, "PAUSES_S", (0.001, 0.1))


def manifest(server: Server, phase: str) -> Json:
    """The job of test_proving, in a phase."""
    job = BACKENDS["volcano"].manifests(parse_job(JOB))[-1]
    job["metadata"]["uid"] = "u"
    server.objects[f"{JOBS}/digits"] = {**job, "status": {"state": {"phase": phase}}}
    return job


def wait(condition: Any, limit_s: float = 10.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


ENTRIES = st.lists(st.tuples(st.integers(0, 4000), st.text("ab \u00e9", max_size=6)), max_size=30).map(
    lambda entries: [(NOON + at / 1000, words) for at, words in sorted(entries, key=lambda entry: entry[0])]
)
CUTS = st.lists(st.tuples(st.integers(0, 700), st.booleans()), max_size=4)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ENTRIES, CUTS)
def test_every_line_comes_once_wherever_the_connection_ends(
    server: Server, kube: Kube, entries: list[tuple[float, str]], cuts: list[tuple[int, bool]]
) -> None:
    """Broken, or ended by a kubelet as if the log had: in a line, in its time, in a letter of two bytes."""
    pod = server.pod("a")
    server.logs[f"{PODS}/a"] = entries
    server.cuts = [*cuts]
    ended = threading.Timer(0.05, lambda: server.pod("a", "terminated"))
    ended.start()
    assert list(logs.follow(kube.patient(), pod)) == [words for _, words in entries]
    ended.join()


def test_a_log_is_read_on_after_an_outage_and_ends_with_its_container(server: Server, kube: Kube) -> None:
    pod, read = server.pod("a"), list[str]()
    thread = threading.Thread(target=lambda: read.extend(logs.follow(kube.patient(), pod)), daemon=True)
    server.prints("a", "one", "two")
    thread.start()
    time.sleep(0.1)
    server.stop()
    server.prints("a", "three")
    time.sleep(0.2)
    server.start()
    server.prints("a", "four")
    time.sleep(0.1)
    server.pod("a", "terminated")
    thread.join(10)
    assert read == ["one", "two", "three", "four"]


@pytest.mark.parametrize(("kept", "says"), [(3, [logs.ROTATED]), (2, [])], ids=["with the last line", "before it"])
def test_d13_a_log_that_was_rotated_while_nobody_read_says_so(
    server: Server, kube: Kube, kept: int, says: list[str]
) -> None:
    pod = server.pod("a", "running")
    server.prints("a", "one", "two", "three")
    lines = logs.follow(kube.patient(), pod)
    assert [next(lines) for _ in range(3)] == ["one", "two", "three"]
    server.stop()
    del server.logs[f"{PODS}/a"][:kept]
    server.prints("a", "nine", "ten")
    server.pod("a", "terminated")
    server.start()
    assert list(lines) == [*says, "nine", "ten"]


def event(kind: str, number: int | None, **fields: Any) -> str:
    """A line of rank 0, as trainer/log.py prints it."""
    numbered = {} if number is None else {"number": number}
    return json.dumps({"event": kind, "rank": 0, **fields, **numbered}, separators=(",", ":"))


def followed(server: Server, kube: Kube, *lines: str) -> list[str]:
    """What is said of a job whose one pod prints these lines, without the times."""
    job, said = manifest(server, "Completed"), list[str]()
    server.pod("digits-a", "terminated")
    server.prints("digits-a", *lines)
    ended = follow.follow(follow.JobWatch(job, kube), said.append, 30)
    assert ended is not None
    assert ended.succeeded
    return [line.partition("digits: ")[2] for line in said]


@pytest.mark.parametrize(("numbers", "lines"), [
    ([1, 2, 3], ""), ([1, 3], "a line"), ([1, 2, 5, 6, 8], "3 lines"), ([None, None], ""), ([4, 5], ""),
    ([1, 2, 1, 2], ""), ([1, 3, 2, 4], "a line"),
], ids=str)  # fmt: skip
def test_d13_lines_that_a_node_lost_in_the_middle_of_a_log_are_noticed(
    server: Server, kube: Kube, numbers: list[int | None], lines: str
) -> None:
    said = followed(server, kube, *(event("upload_failed", number, reason="x") for number in numbers))
    losses = [line for line in said if "did not come" in line]
    expected = f"{lines} of the log of digits-a did not come: its node has lost or rotated them. Fix: none, if "
    assert [line.startswith(expected) for line in losses] == ([True] if lines else []), said


def test_d13_a_lost_record_of_evidence_is_noticed_and_a_process_that_starts_again_is_not(
    server: Server, kube: Kube
) -> None:
    world = World(job="digits-u")
    world.train()
    records = text(world.chains[0]).splitlines()
    assert [line for line in followed(server, kube, *records, *records) if "did not come" in line] == []
    server.logs.clear()
    said = followed(server, kube, *records[:3], *records[5:])
    assert [line.partition(" did")[0] for line in said if "did not come" in line] == ["2 lines of the log of digits-a"]


def test_d11_a_checkpoint_that_is_not_written_is_said_once_while_the_training_goes_on(
    server: Server, kube: Kube
) -> None:
    reason = "[Errno 28] No space left on device: '/data/checkpoints/.writing-step-00000040'"
    failed = [event("checkpoint_failed", number, step=20 * number, reason=reason) for number in (1, 2)]
    said = [line for line in followed(server, kube, *failed) if "checkpoint" in line]
    fix = "Fix: free space on the volume of `output`; the training continues"
    assert said == [f"the checkpoint of step 40 is not written: {reason}. {fix}"]
    server.logs.clear()
    saved = event("checkpoint", 3, step=60, checkpoint="step-00000060", write_seconds=0.1)
    assert [line for line in followed(server, kube, *failed, saved) if "checkpoint" in line] == []
    watch = follow.JobWatch(manifest(server, "Running"), kube)
    times = []
    for line in (failed[0], failed[1], saved, failed[1]):
        watch.training.take(json.loads(line))
        times.append(len(watch.losses()))
    assert times == [1, 0, 0, 1]


def test_a_bucket_that_refuses_uploads_is_said_once_for_each_reason(server: Server, kube: Kube) -> None:
    lost, local = "s3://runs/a cannot be written: no such bucket", "[Errno 13] Permission denied: '/tmp/a'"
    reasons = {1: f"{lost}. Fix: create it, or correct the address", 3: local}
    refused = [event("upload_failed", number, reason=reason) for number, reason in reasons.items()]
    saved = event("checkpoint", 2, step=60, checkpoint="step-00000060", write_seconds=0.1)
    end = "; the training continues, and its end tries again"
    (said,) = [line for line in followed(server, kube, refused[0], saved) if "upload" in line]
    assert said == f"output is not uploaded: {lost}. Fix: create it, or correct the address{end}"
    watch, texts = follow.JobWatch(manifest(server, "Running"), kube), []
    for line in (refused[0], saved, refused[0], refused[1], refused[0]):
        watch.training.take(json.loads(line))
        texts.append(watch.losses())
    other = f"output is not uploaded: {local}. Fix: check the bucket's credentials and its address{end}"
    assert texts == [[said], [], [], [other], []]


def test_half_a_line_of_a_pod_that_is_gone_is_no_line(server: Server, kube: Kube) -> None:
    pod = server.pod("a")
    server.prints("a", "one", "two")
    server.cuts = [(50, False)]
    read = []
    for line in logs.follow(kube.patient(), pod):
        read.append(line)
        server.objects.clear()
    assert read == ["one"]


def test_the_log_of_the_pod_that_took_its_place_is_another(server: Server, kube: Kube) -> None:
    pod = server.pod("a")
    server.prints("a", "one")
    server.cuts = [(20, False)]
    server.pod("a", uid="another")
    assert list(logs.follow(kube.patient(), pod)) == []


def test_a_container_that_started_again_has_its_own_log(server: Server, kube: Kube) -> None:
    pod = server.pod("a")
    server.prints("a", "one")
    server.pod("a", restarts=1)
    assert list(logs.follow(kube.patient(), pod)) == ["one"]
    assert server.asked[-1].get("previous") == "true"
    server.pod("a", restarts=2)
    assert list(logs.follow(kube.patient(), pod)) == []


def test_a_job_is_followed_to_its_end_over_an_outage(server: Server, kube: Kube) -> None:
    job, world = manifest(server, "Running"), World(job="digits-u")
    world.train()
    for rank in range(3):
        server.pod(f"digits-{rank}")
        server.prints(f"digits-{rank}", *text(world.chains[rank][:5]).splitlines())
    watch, said, ends = follow.JobWatch(job, kube), list[str](), list[Any]()
    thread = threading.Thread(target=lambda: ends.append(follow.follow(watch, said.append, 60)), daemon=True)
    thread.start()
    wait(lambda: len(watch.records) == 15)
    server.stop()
    for rank in range(3):
        server.prints(f"digits-{rank}", *text(world.chains[rank][5:]).splitlines())
    wait(lambda: any("the API server does not answer" in line for line in said))
    server.start()
    wait(lambda: len(watch.records) >= len(world.records()))
    for rank in range(3):
        server.pod(f"digits-{rank}", "terminated")
    manifest(server, "Completed")
    thread.join(10)
    assert [end.succeeded for end in ends] == [True]
    assert len(watch.records) == len(world.records()), "no line is lost, and none is read twice"
    assert prove(watch.records, Expected(3, epochs=2, job_uid="digits-u")).passed
    outage = [line.partition("digits: ")[2] for line in said if "the API server" in line]
    assert len(outage) == 2, said
    assert re.fullmatch(r"the API server does not answer \(.*\); waiting up to \d+ s for it", outage[0])
    assert re.fullmatch(r"the API server answers again after \d s", outage[1])


def test_d4_a_log_that_could_not_be_read_for_long_is_read_on_when_its_node_is_back(
    server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pods train on: a node may be cut off for longer than anybody waits for an API server."""
    monkeypatch.setattr(Kube.patient, "__defaults__", (patience.silent, 0.2, float("inf")))
    monkeypatch.setattr(patience, "BUSY_S", 0.2)
    watch, read = follow.JobWatch(manifest(server, "Running"), kube), list[str]()
    server.pod("digits-a")
    server.prints("digits-a", "one", "two")

    def has(line: str) -> bool:
        read.extend(text for _, text in watch.lines())
        return any(line in text for text in read)

    watch.poll()
    wait(lambda: has("two"))
    server.cut_off = True
    for connection in server.connections:
        cut(connection)
    server.prints("digits-a", "three")
    wait(lambda: has("(cannot read the log of digits-a for now: "))
    tried = len(server.asked)
    wait(lambda: len(server.asked) > tried + 10)  # longer than the patience of another attempt
    server.cut_off = False
    wait(lambda: has("three"))
    server.prints("digits-a", "four")
    wait(lambda: has("four"))
    assert [line for line in read if not line.startswith("(")] == ["one", "two", "three", "four"]
    server.cut_off = True
    for connection in server.connections:
        cut(connection)
    read += [text for _, text in watch.finish()]
    assert read[-1].startswith("(cannot read more of the log of digits-a: ")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_that_is_busy_is_waited_for(server: Server, kube: Kube, status: int) -> None:
    job = manifest(server, "Completed")
    server.says, said = [status] * 3, list[str]()
    end = follow.follow(follow.JobWatch(job, kube), said.append, 60)
    assert end is not None
    assert end.succeeded
    assert "the API server does not answer (the cluster says: later); waiting up to " in said[0]


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_is_an_answer(server: Server, kube: Kube, status: int) -> None:
    server.says = [status]
    with pytest.raises(KubeError, match="the cluster says: later") as refused:
        follow.follow(follow.JobWatch(manifest(server, "Running"), kube), pytest.fail, 60)
    assert refused.value.status == status


def test_a_job_that_was_deleted_meanwhile_has_failed(server: Server, kube: Kube) -> None:
    job = manifest(server, "Running")
    server.objects.clear()
    server.says = [503]
    end = follow.follow(follow.JobWatch(job, kube), lambda _: None, 60)
    assert end is not None
    assert (end.failed, "does not exist (deleted?)" in end.reason) == (True, True)


@pytest.mark.parametrize(("timeout_s", "seconds"), [(0.3, 60), (60, 0.3)])
def test_patience_ends_and_says_how_long_it_was(
    server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch, timeout_s: float, seconds: float
) -> None:
    monkeypatch.setattr(Kube.patient, "__defaults__", (patience.silent, seconds, float("inf")))
    job, said = manifest(server, "Running"), list[str]()
    server.stop()
    began = time.monotonic()
    with pytest.raises(KubeError, match=r"job digits: got no answer from the API server \(.*\), .*Fix: run this"):
        follow.follow(follow.JobWatch(job, kube), said.append, timeout_s)
    assert 0.3 <= time.monotonic() - began < max(timeout_s, seconds)
    assert len(said) == 1


def test_a_request_that_gets_no_answer_says_how_long_it_waited(server: Server, kube: Kube) -> None:
    server.stop()
    with pytest.raises(KubeError, match=r"^waited 0 s; http://127\.0\.0\.1:\d+: got no answer \(.*\. Fix: start the"):
        kube.patient(seconds=0.3).call("GET", "/version")


def test_two_minutes_are_outlasted() -> None:
    assert patience.OUTAGE_S >= 120


def test_a_server_that_hangs_is_away_too(server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    job, answer = manifest(server, "Completed"), server.answer
    monkeypatch.setattr("gangplank.cluster.client.TIMEOUT_S", 0.2)
    hung = iter([True, True])

    def slow(*request: Any) -> tuple[int, Json]:
        if next(hung, False):
            time.sleep(0.5)
        return answer(*request)

    monkeypatch.setattr(server, "answer", slow)
    end = follow.follow(follow.JobWatch(job, kube), lambda _: None, 60)
    assert end is not None
    assert end.succeeded


@pytest.mark.parametrize("words", [["status", "digits"], ["logs", "digits", "-f"], ["proof", "digits"]])
def test_a_command_says_at_once_that_nobody_answers(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    config = server.config(tmp_path)
    server.stop()
    began = time.monotonic()
    assert main([*words, "--kubeconfig", config]) == 4
    assert time.monotonic() - began < patience.BUSY_S
    err = capsys.readouterr().err
    assert "got no answer ([Errno 111] Connection refused), expected one from the API server. Fix: start the " in err


@pytest.mark.parametrize("status", [410, 429, 500, 502, 503, 504])
def test_d4_a_command_asks_a_server_that_is_busy_again(server: Server, tmp_path: Path, status: int) -> None:
    manifest(server, "Running")
    server.says = [status] * 3
    assert main(["status", "digits", "--kubeconfig", server.config(tmp_path)]) == 0
    assert server.says == []


def test_d4_a_command_says_after_a_while_that_the_server_stays_busy(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "BUSY_S", 0.2)
    server.says = [503] * 1000
    assert main(["status", "digits", "--kubeconfig", server.config(tmp_path)]) == 4
    assert re.fullmatch(r"gangplank: waited \d+ s; the cluster says: later\n", capsys.readouterr().err)


def test_d4_a_command_outlasts_connections_that_break(server: Server, kube: Kube) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}}
    server.mute = 1  # it is made, and the answer lost
    assert kube.create(pod) == "created"
    assert [line.split()[0] for line in server.seen] == ["POST", "POST", "GET"]
    server.mute = 1
    assert kube.patch(server.objects[f"{PODS}/a"], {}) is not None
    server.mute = 1
    assert kube.delete(pod), "its removal is not reported as that of nothing"
    assert not kube.delete(pod)


def test_d4_followed_logs_continue_after_an_outage(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("gangplank.cli.terminal.note", said.append)
    manifest(server, "Running")
    server.pod("digits-a")
    server.prints("digits-a", "one \x1b[2J")
    words = ["logs", "digits", "-f", "--kubeconfig", server.config(tmp_path)]
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(words)), daemon=True)
    thread.start()
    wait(lambda: f"GET {PODS}/digits-a/log" in server.seen)
    server.stop()
    wait(lambda: said)
    server.prints("digits-a", "two")
    server.start()
    wait(lambda: len(said) == 2)
    server.pod("digits-a", "terminated")
    manifest(server, "Completed")
    thread.join(10)
    assert (codes, capsys.readouterr().out) == ([0], "[digits-a] one \\x1b[2J\n[digits-a] two\n")
    first, last, end = said
    assert first.startswith("the API server does not answer (")
    assert re.fullmatch(r"the API server answers again after \d+ s", last)
    assert end == "digits: Completed"


def test_evidence_is_read_from_the_claim_over_an_outage_and_the_reading_pod_is_removed(
    server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, world = manifest(server, "Completed"), World(job="digits-u")
    world.train()
    live, answer = server.objects[f"{JOBS}/digits"], server.answer

    def kubelet(method: str, where: str, body: Json, dry: bool) -> tuple[int, Json]:
        code, found = answer(method, where, body, dry)
        if method == "POST" and code == 201:
            server.logs[f"{where}/{body['metadata']['name']}"] = [(NOON, line) for line in lines_of]
            server.says = [503]
        return code, found

    lines_of = text(world.records()).splitlines()
    monkeypatch.setattr(server, "answer", kubelet)
    server.mute = 1  # the pod is made, and the answer lost
    records = gather(kube.patient(), {**job, **live}, [], 3)
    assert prove(records, Expected(3, job_uid="digits-u")).passed
    assert [line.split()[0] for line in server.seen if not line.startswith("GET")] == ["POST", "POST", "POST", "DELETE"]
    assert not [place for place in server.objects if "evidence-" in place]


@pytest.mark.parametrize("other", [{"spec": {"nodeName": "b"}}, {"metadata": {"labels": {"of": "another"}}}])
def test_an_object_of_another_person_is_not_taken_for_the_own_one(server: Server, kube: Kube, other: Json) -> None:
    """The request got no answer and created nothing, and the name is taken meanwhile."""
    meta = {"name": "a", "namespace": "default", "labels": {"of": "one"}}
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": "a"}}
    server.objects[f"{PODS}/a"] = {**pod, **other, "metadata": {**pod["metadata"], **other.get("metadata", {})}}
    server.says = [504]
    with pytest.raises(KubeError, match="already exists") as refused:
        kube.patient().create(pod)
    assert refused.value.status == 409
    server.says = [504]
    assert kube.patient().create(pod, unique=True) == "created", "of a name that is used only here"


def test_an_object_of_the_same_name_that_came_later_is_not_removed(
    server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default", "uid": "first"}}
    server.objects[f"{PODS}/a"] = pod
    bodies: list[Json] = []
    answer = server.answer

    def renewed(method: str, where: str, body: Json, dry: bool) -> tuple[int, Json]:
        if method == "DELETE":
            bodies.append(body)
            server.objects[where] = {**pod, "metadata": {**pod["metadata"], "uid": "second"}}
            return 409, {"message": "the UID in the precondition (first) does not match the UID in record (second)"}
        return answer(method, where, body, dry)

    monkeypatch.setattr(server, "answer", renewed)
    assert kube.delete(pod)
    assert [body["preconditions"] for body in bodies] == [{"uid": "first"}]
    assert server.objects[f"{PODS}/a"]["metadata"]["uid"] == "second"


def test_d4_waits_of_roles_outlast_it_too(server: Server, kube: Kube) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}}
    server.says = [503, 429]
    assert kube.accepts(pod, 10) == ""
    server.says = [503, 500]
    wait_until_gone(kube, pod)
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"pods": 1}}}
    server.objects["/api/v1/resourcequotas/q"] = {**quota, "status": {"used": {"pods": 0}}}
    server.says = [503, 504]
    assert settle(kube, 10) == []


class Counted(bytes):
    """A part of an answer that counts the bytes which are copied to put it behind others."""

    copied = 0

    def __radd__(self, before: bytes) -> bytes:
        Counted.copied += len(before) + len(self)
        return before + bytes(self)


LONG = 10 << 20


def test_d14_a_line_of_10_mib_is_read_once_and_not_kept(
    server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pod("digits-a", "terminated")
    server.prints("digits-a", "before", "x" * LONG, "after")
    whole = kube.open

    def counted(*words: Any, **more: Any) -> Any:
        answer = whole(*words, **more)
        stream = answer.stream
        answer.stream = lambda **options: (Counted(part) for part in stream(amt=4096, **options))
        return answer

    monkeypatch.setattr(Counted, "copied", 0)
    monkeypatch.setattr(kube, "open", counted)
    lengths = [len(line) for line in logs.follow(kube, server.objects[f"{PODS}/digits-a"])]
    assert lengths == [6, LONG, 5]
    assert Counted.copied <= 3 * LONG, "each part is copied once, and not with all that came before"
    watch = follow.JobWatch(manifest(server, "Running"), kube)
    watch.poll()
    assert [len(line) for _, line in watch.finish()] == [6, LONG, 5]
    assert [sum(map(len, log.last.lines)) for log in watch.logs.values()] == [6 + failure.LAST_CHARACTERS + 5]


SHARE = 10  # of a minute, and of the million lines that are printed in it


@pytest.mark.slow
def test_d14_a_million_lines_a_minute_are_followed_in_less_than_that_minute(server: Server, kube: Kube) -> None:
    server.pod("digits-a", "terminated")
    lines = 10**6 // SHARE
    texts = (f"step {number} of a script that prints a line for each" for number in range(lines))
    server.logs[f"{PODS}/digits-a"] = [(NOON + number * 60 / 10**6, text) for number, text in enumerate(texts)]
    watch = follow.JobWatch(manifest(server, "Running"), kube)
    start, seen = time.process_time(), 0
    for _ in polls(120, 0.2):
        watch.poll()
        seen += sum(1 for _ in watch.lines())
        if seen == lines:
            break
    seconds = time.process_time() - start  # with those of the server
    assert seen == lines
    assert seconds < 60 / SHARE, f"{seconds:.1f} s of a processor"


def test_each_line_of_a_log_is_looked_at_once(server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    read, looked = log_lines.read, list[str]()

    def noted(line: str) -> Any:
        looked.append(line)
        return read(line)

    monkeypatch.setattr(log_lines, "read", noted)
    job = manifest(server, "Running")
    server.pod("digits-a")
    server.prints("digits-a", *(f"line {number}" for number in range(1000)))
    watch = follow.JobWatch(job, kube.patient())
    watch.poll()
    wait(lambda: watch.progress() is not None and len(looked) == 1000)
    for _ in range(10):
        watch.poll()
        watch.progress()
    assert len(looked) == 1000
    assert [len(log.last.lines) for log in watch.logs.values()] == [failure.LAST_LINES], "and none is kept"
    server.pod("digits-a", "terminated")
    assert [*watch.finish()] == []


def test_d4_a_container_that_prints_on_after_its_jobs_end_is_given_up_and_one_that_has_ended_read_whole(
    server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LAST_S", 0.3, raising=False)
    job = manifest(server, "Completed")
    server.pod("digits-a")
    server.pod("digits-b", "terminated")
    server.prints("digits-b", *map(str, range(60)))
    over = threading.Event()

    def prints() -> None:
        while not over.wait(0.02):
            server.prints("digits-a", "again")

    threading.Thread(target=prints, daemon=True).start()
    watch, read = follow.JobWatch(job, kube.patient()), list[str]()
    slow = logs.follow

    def slowly(*words: Any, **more: Any) -> Iterator[str]:
        for line in slow(*words, **more):
            time.sleep(0.01)
            yield line

    monkeypatch.setattr(logs, "follow", slowly)
    watch.poll()

    def drain() -> None:
        read.extend(line for _, line in watch.finish())

    draining = threading.Thread(target=drain, daemon=True)
    draining.start()
    draining.join(10)
    over.set()
    assert not draining.is_alive(), "who waits for the job is held forever"
    assert [line for line in read if line != "again"] == [*map(str, range(60))]


def test_d14_a_full_buffer_stops_who_reads_and_loses_nothing() -> None:
    """A script that prints faster than its lines are processed costs no memory."""
    buffer, put = logs.Buffer(most=1000), list[int]()

    def read() -> None:
        for number in range(5000):
            buffer.put("log", f"{number:04}" + "x" * 96)
            put.append(number)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    lines: list[str] = []
    while len(lines) < 5000:
        batch = buffer.take(10)
        assert batch
        assert sum(len(line) for _, line in batch) <= 1000
        lines += [line for _, line in batch]
    reader.join(10)
    assert [int(line[:4]) for line in lines] == list(range(5000))


def test_d14_a_line_longer_than_the_buffer_passes_alone() -> None:
    buffer = logs.Buffer(most=10)

    def fill() -> None:
        for size in (3, 50, 3):
            buffer.put(0, "x" * size)

    threading.Thread(target=fill, daemon=True).start()
    sizes: list[int] = []
    while len(sizes) < 3:
        sizes += [len(line) for _, line in buffer.take(10)]
    assert sizes == [3, 50, 3]


@pytest.mark.parametrize("size", [99, 100, 101, 200, 201, 350])
@pytest.mark.parametrize("part", [1, 30, 1000])
def test_d14_a_line_without_an_end_is_cut_into_pieces(monkeypatch: pytest.MonkeyPatch, size: int, part: int) -> None:
    """A progress bar may print one line for days: it is not kept until its end."""
    monkeypatch.setattr(logs, "LONGEST", 100)
    text = b"a\n" + b"x" * size + b"\nb\n" + b"y" * size
    rest: list[bytes] = []
    parts = [text[at : at + part] for at in range(0, len(text), part)]
    lines = list(logs.split(parts, rest))
    assert b"".join([*lines, *rest]) == text.replace(b"\n", b"")
    assert lines[0] == b"a"
    assert b"b" in lines
    if part < 100:
        assert max(map(len, [*lines, b"".join(rest)])) <= 100


@pytest.mark.parametrize("forged", ["9999-12-31T23:59:59Z ", "2026-99-99T99:99:99Z ", "9999-12-31T23:59:59-12:00 "])
def test_d14_only_the_first_piece_of_a_line_has_a_time(
    server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch, forged: str
) -> None:
    """What a script prints at the place where its line is cut is no time of the API server's."""
    monkeypatch.setattr(logs, "LONGEST", 1000)
    line = "".join(f"{forged}{number:04}" for number in range(200))  # one of them begins at any place of a piece, or
    pod = server.pod("a")
    for shift in range(len(forged) + 4):  # of one of these lines
        server.prints("a", "x" * shift + line)
    server.prints("a", "after")
    server.cuts = [(120_000, False)]
    ended = threading.Timer(0.05, lambda: server.pod("a", "terminated"))
    ended.start()
    assert "".join(logs.follow(kube.patient(), pod)) == "".join(words for _, words in server.logs[f"{PODS}/a"])
    ended.join()
    assert {query["sinceTime"][:10] for query in server.asked if "sinceTime" in query} == {"2027-01-15"}


@pytest.mark.parametrize("forged", [b"2026-99-99T99:99:99Z x", b"9999-12-31T23:59:59-12:00 x"])
def test_d14_what_is_no_time_is_text(forged: bytes) -> None:
    """Part of a line may come without its time, after the connection has ended in it."""
    place = logs.Place()
    assert place.take(forged) == forged.decode()
    assert place.since() == {}


def test_d14_what_is_kept_of_lines_to_know_them_again_is_short() -> None:
    place, line = logs.Place(), b"2026-01-01T00:00:00.5Z " + b"x" * LONG
    assert place.take(line) == "x" * LONG
    assert place.take(b"2026-01-01T00:00:00.6Z ok") == "ok"
    assert max(len(key) for lines in place.seen.values() for key in lines) <= logs.KEPT
    place.since()
    assert [place.take(line), place.take(line)] == [None, "x" * LONG], "a third one is new"
    for second in range(1, 50):
        place.take(b"2026-01-01T00:00:%02dZ a" % second)
    assert len(place.seen) <= 3


def test_d14_evidence_on_a_claim_is_read_once(server: Server, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading pod prints for a while; its log was read from the beginning five times a second."""
    job, world = manifest(server, "Completed"), World(job="digits-u")
    world.train()
    monkeypatch.setattr("gangplank.cluster.evidence.POLL_S", 0.01)
    answer, lines_of = server.answer, text(world.records()).splitlines()
    reading: list[str] = []

    def kubelet(method: str, where: str, body: Json, dry: bool) -> tuple[int, Json]:
        code, found = answer(method, where, body, dry)
        if method == "POST" and code == 201:
            name = body["metadata"]["name"]
            state = server.pod(name)["status"]
            state["phase"], state["containerStatuses"][0]["name"] = "Running", "reader"
            reading.append(name)
            threading.Thread(target=printed, args=(name,), daemon=True).start()
        return code, found

    def printed(name: str) -> None:
        for line in lines_of:
            server.prints(name, line)
            time.sleep(0.01)
        state = server.pod(name, "terminated")["status"]
        state["phase"], state["containerStatuses"][0]["name"] = "Succeeded", "reader"

    monkeypatch.setattr(server, "answer", kubelet)
    live = server.objects[f"{JOBS}/digits"]
    records = gather(kube.patient(), {**job, **live}, [], 3)
    assert len(records) == len(lines_of)
    assert prove(records, Expected(3, job_uid="digits-u")).passed
    asked = [line for line in server.seen if line == f"GET {PODS}/{reading[0]}/log"]
    assert len(asked) <= 2, "once, and perhaps for its end"


@pytest.mark.parametrize(("phases", "rows", "name"), [
    (["Succeeded", "Succeeded"], [], "Completed"), (["Succeeded", "Running"], [], "Failed"), ([], [], "Failed"),
    (["Running", "Running"], [{"rank": 0}], "Completed"),
])  # fmt: skip
def test_a_job_that_its_ttl_removed_has_failed_only_if_nothing_says_that_it_ended_well(
    server: Server, kube: Kube, phases: list[str], rows: list[Json], name: str
) -> None:
    """With ttl_s 0, or after a laptop has slept, no poll sees the end."""
    job = BACKENDS["volcano"].manifests(parse_job(JOB | {"ttl_s": 0}))[-1]
    server.objects[f"{JOBS}/digits"] = with_uid(job, "digits")
    watch = follow.JobWatch(job, kube)
    assert not watch.poll().ended
    server.objects.clear()
    watch.pods = [{"status": {"phase": phase}} for phase in phases]
    watch.training.rows = rows
    end = follow.follow(watch, lambda _: None, 60)
    assert end is not None
    assert (end.name, "ttl_s" in end.reason, bool(watch.job)) == (name, True, name != "Failed")


@pytest.mark.parametrize("answers", [True, False])
def test_the_log_of_a_container_that_has_ended_is_awaited_and_its_missing_end_is_said(
    monkeypatch: pytest.MonkeyPatch, server: Server, kube: Kube, *, answers: bool
) -> None:
    """Its node is slow, and the job has ended."""
    monkeypatch.setattr(follow, "QUIET_S", 0.1)
    monkeypatch.setattr(follow, "SILENT_S", 30.0 if answers else 0.2)
    free, whole = threading.Event(), Handler.log

    def slow(self: Handler, where: str, options: dict[str, str]) -> None:
        free.wait(0.5 if answers else 30.0)
        whole(self, where, options)

    monkeypatch.setattr(Handler, "log", slow)
    job = manifest(server, "Completed")
    server.pod("digits-0", "terminated")
    server.prints("digits-0", "one", "two")
    watch = follow.JobWatch(job, kube)
    watch.poll()
    lines = [line for _, line in watch.finish()]
    free.set()
    gone = "(the log of digits-0 was not read to its end: its node does not answer)"
    assert lines == (["one", "two"] if answers else [gone])
