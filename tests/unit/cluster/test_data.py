"""gangplank data: the program of the pod is started here for real, on a folder; only the pods are missing."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import http.server
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends.pod_template import TEAM_LABEL
from gangplank.cli.data import sums_of
from gangplank.cluster import data, data_pod, local_files, receive, starting
from gangplank.cluster.data_pod import MOUNT, WORK, Place
from gangplank.cluster.local_files import local_files as read_files
from gangplank.errors import GangplankError, KubeError, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
Json = dict[str, Any]
ODD = "a $(HOME) $$ \n ü.bin"
PLACE = Place("vision", "mnist", "img")


class Cluster:
    """A namespace with one claim; a pod does its work as soon as it is created."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.objects = folder, dict[tuple[str, str], Json]()
        self.claim: Json = {
            "metadata": {"name": "mnist"}, "status": {"phase": "Bound"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }  # fmt: skip
        self.requests: list[Json] = []
        self.pods: list[Json] = []
        self.logs = dict[str, list[str]]()
        self.dies_at = -1
        self.all_queues: list[Json] = []

    def now(self) -> datetime:
        return datetime.now(UTC)

    def create(self, item: Json) -> str:
        meta = item["metadata"]
        key = item["kind"], meta["name"]
        if key in self.objects:
            raise KubeError("already exists", 409)
        meta["creationTimestamp"] = "2999"
        self.objects[key] = item
        if item["kind"] == "Pod":
            self.pods.append(item)
            self.run(item)
        return "created"

    def run(self, pod: Json) -> None:
        """Do what the container's command says; a pod that dies leaves half of its log."""
        work = self.folder / f"work-{len(self.pods)}"
        work.mkdir()
        for source in pod["spec"]["volumes"][1]["projected"]["sources"]:
            content = self.objects["ConfigMap", source["configMap"]["name"]]["binaryData"]
            names = {item["key"]: item["path"] for item in source["configMap"].get("items", [])}
            for name, text in content.items():
                (work / names.get(name, name)).write_bytes(base64.b64decode(text))
        self.requests.append(json.loads((work / "request.json").read_text()))
        command = [word.replace(WORK, str(work)) for word in pod["spec"]["containers"][0]["command"]]
        command = [str(self.folder / "claim") if word == MOUNT else word for word in command]
        assert command[:2] == ["python3", "-I"]
        done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=False, timeout=60)
        assert not done.stderr, done.stderr
        lines = done.stdout.splitlines()
        died = len(self.pods) == self.dies_at
        self.logs[pod["metadata"]["name"]] = lines[:-1] if died else lines
        end = {"exitCode": 137 if died else done.returncode, "reason": "OOMKilled" if died else "Completed"}
        pod["status"] = {"phase": "Failed" if end["exitCode"] else "Succeeded",
                         "containerStatuses": [{"name": "data", "state": {"terminated": end}}]}

    def get(self, where: str) -> Json | None:
        *_, plural, name = where.split("/")
        if plural == "persistentvolumeclaims":
            return self.claim if name == "mnist" else None
        return self.objects.get((plural.removesuffix("s").capitalize(), name))

    def items(self, _version: str, kind: str, _namespace: str, selector: str = "") -> list[Json]:
        if kind == "PersistentVolumeClaim":
            return [self.claim]
        wanted = dict(pair.split("=") for pair in selector.split(","))
        items = [item for (own, _), item in self.objects.items() if own == kind]
        return [item for item in items if item["metadata"]["labels"] == wanted]

    def delete(self, item: Json) -> None:
        self.objects.pop((item["kind"], item["metadata"]["name"]), None)

    def log(self, pod: Json, _container: str, last: int = 0) -> list[str]:
        lines = self.logs[pod["metadata"]["name"]]
        return lines[-last:] if last else lines

    def queues(self) -> list[Json]:
        return self.all_queues


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    (tmp_path / "claim").mkdir()
    return Cluster(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    (folder / "raw").mkdir(parents=True)
    (folder / "images.gz").write_bytes(random.Random(1).randbytes(3 * 10**5))
    (folder / "raw/labels").write_text("0123")
    (folder / "empty").write_text("")
    (folder / ODD).write_text("odd")
    return folder


def quiet(*_: object) -> None:
    """Say nothing."""


def place_of(cluster: Any) -> Place:
    return data.place_of(cluster, "vision", "mnist", "img", "", ())


def push(cluster: Any, source: Path, /, **more: Any) -> data.Brought:
    order = data.Order(place_of(cluster), local=read_files([source], quiet), **more)
    return data.bring(cluster, order, quiet)


def pull(cluster: Any, *addresses: str, **more: Any) -> data.Brought:
    return data.bring(cluster, data.Order(place_of(cluster), sources=addresses, **more), quiet)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_every_file_arrives_as_it_is_once_and_nothing_is_left_in_the_namespace(
        cluster: Any, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "PIECE", 10**5)
    monkeypatch.setattr(local_files, "PIECES", 2)
    result = push(cluster, source, folder="sets/mnist")
    assert contents(cluster.folder / "claim") == {f"sets/mnist/{k}": v for k, v in contents(source).items()}
    assert (result.files, result.new, result.size) == (4, 4, 300_007)
    lines = [f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in sorted(contents(source).items())]
    assert result.digest == hashlib.sha256("".join(lines).encode()).hexdigest(), "as sha256sum * | sha256sum has it"
    assert [request["write"] for request in cluster.requests] == [False, True, True], "two pieces a pod"
    again = push(cluster, source, folder="sets/mnist")
    assert (again.new, again.digest) == (0, result.digest)
    assert len(cluster.pods) == 4, "what is there is not sent again"
    assert cluster.objects == {}


def test_a_pod_that_dies_is_followed_by_one_that_continues(
        cluster: Any, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "PIECE", 10**5)
    monkeypatch.setattr(local_files, "PIECES", 1)
    cluster.dies_at = 3
    assert push(cluster, source).files == 4
    assert contents(cluster.folder / "claim") == contents(source)
    sent = [row[3] for request in cluster.requests if request["write"] for row in request["files"]
            if row[0] == "images.gz"]
    assert sorted(sent) == sent, "no byte is sent twice"
    assert len(set(sent)) == len(sent)


def test_a_pod_that_always_dies_ends_the_command_with_its_reason(cluster: Any, source: Path) -> None:
    cluster.run = lambda pod: pod.update(status={"phase": "Failed", "reason": "DeadlineExceeded"})
    cluster.log = lambda *_: []
    with pytest.raises(KubeError, match=r"pod vision/data-mnist: got its end \(DeadlineExceeded\)"):
        push(cluster, source)
    assert len(cluster.pods) == data.TRIES + 1
    assert cluster.objects == {}


@pytest.mark.parametrize("slow", [1, 99])
def test_a_pod_that_works_for_as_long_as_it_may_is_followed_by_one_that_continues(
        cluster: Any, source: Path, monkeypatch: pytest.MonkeyPatch, slow: int) -> None:
    monkeypatch.setattr(data, "PULL_S", 0)
    monkeypatch.setattr(data, "POLL_S", 0)
    run = cluster.run

    def late(pod: Json) -> None:
        run(pod)
        if len(cluster.pods) <= slow:
            pod["status"] = {"phase": "Running", "containerStatuses": [{"name": "data", "state": {"running": {}}}]}

    cluster.run = late
    if slow == 1:
        assert push(cluster, source).files == 4
        assert contents(cluster.folder / "claim") == contents(source)
    else:
        with pytest.raises(KubeError, match="pod vision/data-mnist: got no end within 0 s, expected all of its work"):
            push(cluster, source)
        assert len(cluster.pods) == data.TRIES + 1
    assert cluster.objects == {}


def test_a_pod_beside_whose_container_a_sidecar_runs_on_has_ended(cluster: Any, source: Path) -> None:
    run = cluster.run

    def meshed(pod: Json) -> None:
        run(pod)
        pod["status"]["phase"] = "Running"
        pod["status"]["containerStatuses"].insert(0, {"name": "istio-proxy", "state": {"running": {}}})

    cluster.run = meshed
    assert push(cluster, source).files == 4
    assert {pod["metadata"]["annotations"]["sidecar.istio.io/inject"] for pod in cluster.pods} == {"false"}


def test_a_pod_that_does_not_start_ends_the_command_with_its_reason(
        cluster: Any, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "START_S", 0)
    monkeypatch.setattr(starting, "LOOK_S", 0)
    waiting = {"reason": "ErrImagePull", "message": "nowhere/image:1: not found"}
    cluster.run = lambda pod: pod.update(status={"phase": "Pending", "containerStatuses": [
        {"name": "data", "state": {"waiting": waiting}}]})
    message = r"pod vision/data-mnist, which writes to the claim: got .*ErrImagePull.*, expected its start within 0 s"
    with pytest.raises(KubeError, match=message):
        push(cluster, source)
    assert cluster.objects == {}


def test_nothing_is_overwritten_that_is_not_named(cluster: Any, source: Path) -> None:
    claim = cluster.folder / "claim"
    for name in ("raw/labels", "empty"):
        (claim / name).parent.mkdir(exist_ok=True)
        (claim / name).write_text("theirs")
    before = contents(claim)
    with pytest.raises(GangplankError, match=r"claim vision/mnist: got other files named empty, raw/labels"):
        push(cluster, source)
    with pytest.raises(GangplankError, match=r"other files named empty, expected none"):
        push(cluster, source, replace=("raw",))
    assert contents(claim) == before
    assert push(cluster, source, replace=("raw", "empty")).new == 4
    assert contents(claim) == contents(source)


def test_a_name_that_is_taken_while_it_is_brought_is_not_overwritten(
        cluster: Any, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = data.refuse_others

    def late(order: data.Order, names: list[str], count: int = 0) -> None:
        real(order, names, count)
        (cluster.folder / "claim/empty").write_text("theirs")

    monkeypatch.setattr(data, "refuse_others", late)
    with pytest.raises(GangplankError, match="another file has got its name since"):
        push(cluster, source)
    assert contents(cluster.folder / "claim")["empty"] == b"theirs"


@pytest.mark.parametrize("where", ["", "sets"])
def test_a_refused_command_leaves_the_claim_as_it_was(cluster: Any, source: Path, where: str) -> None:
    (cluster.folder / "claim" / where).mkdir(exist_ok=True)
    (cluster.folder / "claim" / where / "empty").write_text("theirs")
    with pytest.raises(GangplankError, match="other files named empty"):
        push(cluster, source, folder=where)
    claim = cluster.folder / "claim"
    assert sorted(path.name for path in claim.rglob("*")) == sorted({where, "empty"} - {""})


def test_a_link_on_the_claim_is_not_followed(cluster: Any, source: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (cluster.folder / "claim/raw").symlink_to(tmp_path / "outside")
    with pytest.raises(GangplankError, match="other files named raw/labels"):
        push(cluster, source)
    with pytest.raises(GangplankError, match="got a folder outside the claim, expected one in it"):
        push(cluster, source, folder="raw")
    assert contents(tmp_path / "outside") == {}


def test_what_is_wrong_with_a_claim_is_one_message(cluster: Any, source: Path) -> None:
    def place(name: str) -> Place:
        return data.place_of(cluster, "vision", name, "img", "", ())

    with pytest.raises(KubeError, match=r"claim vision/data: got nothing, expected a claim .*, which has mnist"):
        place("data")
    cluster.claim["spec"]["accessModes"] = ["ReadOnlyMany"]
    with pytest.raises(GangplankError, match="got ReadOnlyMany, expected an access mode that allows to write"):
        place("mnist")
    cluster.claim["spec"] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "200Ki"}}}
    with pytest.raises(GangplankError, match="claim vision/mnist: got 204800 bytes of space, expected 300007 bytes"):
        push(cluster, source)
    assert cluster.pods == [], "before any pod is started"


def test_a_claim_without_free_space_is_refused_before_anything_is_sent(
        cluster: Any, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = data.ask
    monkeypatch.setattr(data, "ask", lambda *words: {**real(*words), "free": 10})
    with pytest.raises(GangplankError, match="got 10 bytes of free space, expected 300007 bytes"):
        push(cluster, source, folder="sets/mnist")
    assert [*(cluster.folder / "claim").rglob("*")] == [], "no empty folder is left either"


def test_two_commands_for_one_claim_are_refused_and_the_first_goes_on(cluster: Any, source: Path) -> None:
    first: Json = {"kind": "Pod", "metadata": {"name": "data-mnist", "namespace": "vision", "labels": PLACE.mark},
             "status": {"phase": "Running"}}
    cluster.objects["Pod", "data-mnist"] = first
    with pytest.raises(GangplankError, match="another `gangplank data` that writes to it, expected one at a time"):
        push(cluster, source)
    first["metadata"]["labels"] = {}  # it came between the look and the creation
    with pytest.raises(GangplankError, match="another `gangplank data` that writes to it, expected one at a time"):
        push(cluster, source)
    assert cluster.objects == {("Pod", "data-mnist"): first}


def test_a_signal_while_it_removes_its_objects_leaves_none(cluster: Any, source: Path) -> None:
    real, signals = cluster.delete, [KeyboardInterrupt, KeyboardInterrupt]

    def delete(item: Json) -> None:
        if item["kind"] == "ConfigMap" and signals:
            raise signals.pop()
        real(item)

    cluster.delete = delete
    with pytest.raises(KeyboardInterrupt):
        push(cluster, source)
    assert (cluster.objects, signals) == ({}, [])


def test_what_a_killed_command_left_is_removed(cluster: Any, source: Path) -> None:
    def left(kind: str, name: str, since: str) -> None:
        meta = {"name": name, "namespace": "vision", "labels": PLACE.mark, "creationTimestamp": since}
        cluster.objects[kind, name] = {"kind": kind, "metadata": meta, "status": {"phase": "Succeeded"}}

    left("Pod", "data-mnist", "2020-01-01T00:00:00Z")
    left("ConfigMap", "data-1-0", "2020-01-01T00:00:00Z")
    left("ConfigMap", "data-2-0", "2999-01-01T00:00:00Z")
    push(cluster, source)
    assert [name for _, name in cluster.objects] == ["data-2-0"], "a command's that has not created its pod yet"


def test_the_queue_of_a_pod_is_its_team_s(cluster: Any) -> None:
    assert data.place_of(cluster, "vision", "mnist", "img", "", ()).queue == ""
    cluster.claim["metadata"]["labels"] = {TEAM_LABEL: "vision"}
    names = {"vision": "root", "vision-low": "vision", "vision-high": "vision", "audio": "root"}
    cluster.all_queues = [{"metadata": {"name": name, "labels": {TEAM_LABEL: name[:6].rstrip("-")}},
                           "spec": {"parent": parent}} for name, parent in names.items()]
    assert data.place_of(cluster, "vision", "mnist", "img", "", ()).queue == "vision-high"
    assert data.place_of(cluster, "vision", "mnist", "img", "vision-low", ()).queue == "vision-low"


def test_the_pod_is_restricted_small_and_in_the_team_s_queue() -> None:
    place = Place("vision", "mnist", "img", "vision", secrets=("bucket",))
    own = data_pod.pod(place, data_pod.work(place, "s", {}, [b"a", b"b"]), pulls=False)
    (container,) = own["spec"]["containers"]
    assert own["spec"]["securityContext"]["runAsNonRoot"]
    assert container["resources"]["limits"] == {"cpu": "100m", "memory": "64Mi"}
    assert own["spec"]["schedulerName"] == "volcano"
    assert own["metadata"]["annotations"] == {
        "scheduling.volcano.sh/queue-name": "vision", "sidecar.istio.io/inject": "false"}  # fmt: skip
    assert [item["key"] for item in own["spec"]["tolerations"]] == ["nvidia.com/gpu"]
    assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    pulls = data_pod.pod(place, data_pod.work(place, "s", {}, []), pulls=True)["spec"]
    assert "tolerations" not in pulls, "the admission lets only the small pod tolerate it"
    assert pulls["containers"][0]["resources"]["limits"] == {"cpu": "100m", "memory": "256Mi"}, "a tight quota has room"
    fresh = data_pod.pod(Place("a", "b", "img", bound=False), data_pod.work(place, "s", {}, []), pulls=False)["spec"]
    assert not {"tolerations", "schedulerName"} & fresh.keys(), "its volume is made on an ordinary node"


def test_what_cannot_be_brought_from_here_is_said_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/link").symlink_to("/etc/passwd")
    (tmp_path / "a/x").write_text("1")
    (tmp_path / "x").write_text("2")
    with pytest.raises(Unreadable) as error:
        read_files([tmp_path / "a", tmp_path / "x", tmp_path / "gone"], quiet)
    lines = str(error.value).splitlines()
    assert ["a link" in lines[0], f"the name of {tmp_path}/a/x" in lines[1], "got nothing" in lines[2]] == [True] * 3
    monkeypatch.setattr(local_files, "MOST_BYTES", 0)
    with pytest.raises(GangplankError, match="got 1 files with 1 bytes, expected at most 4000 files and 0 bytes"):
        read_files([tmp_path / "x"], quiet)


def test_folders_that_cannot_be_read_are_said_with_the_rest(
        source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source / "link").symlink_to("/etc/passwd")
    (source / "deep/er").mkdir(parents=True)
    closed, scan = {str(source / "raw"), str(source / "deep/er")}, os.scandir

    def refuse(place: Any) -> Any:
        if str(place) in closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(place))
        return scan(place)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(Unreadable) as error:
        read_files([source], quiet)
    said = [line.strip() for line in str(error.value).splitlines()]
    assert said.pop().startswith(f"{source}/link: got a link")
    denied = "got Permission denied, expected a folder that can be read. Fix: change its mode, or move it elsewhere"
    assert sorted(said) == [f"{place}: {denied}" for place in sorted(closed)]


@pytest.mark.parametrize("sums", [{"images.gz": "0" * 64}, {"other": "0" * 64}])
def test_files_with_other_hashes_than_expected_are_refused(cluster: Any, source: Path, sums: dict[str, str]) -> None:
    with pytest.raises(GangplankError, match=r"images\.gz: got SHA-256 "):
        push(cluster, source, sums=sums)
    assert cluster.pods == []


# From a web server: the pod takes the files itself.

class Web:
    """Files on the loopback; a request can be cut short, and a file can change."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cuts: dict[int, int] = {}  # after how many bytes an answer ends; by its number, from 1
        self.seen: list[tuple[str, str]] = []
        self.lengths = self.ranges = True
        self.url = ""


@pytest.fixture
def web() -> Iterator[Web]:
    state = Web()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/")
            wanted = self.headers.get("Range") or ""
            state.seen.append((name, wanted))
            if name not in state.files:
                self.send_error(404)
                return
            text = state.files[name]
            tag = f'"{hashlib.sha256(text).hexdigest()[:8]}"'
            start = int(wanted[6:-1]) if wanted and state.ranges and self.headers.get("If-Range") == tag else 0
            self.send_response(206 if start else 200)
            if state.lengths:
                self.send_header("Content-Length", str(len(text) - start))
                self.send_header("ETag", tag)
            self.end_headers()
            end = start + state.cuts.get(len(state.seen), len(text))
            with contextlib.suppress(ConnectionError):  # a pod that wants to know the length alone
                self.wfile.write(text[start:end])

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()


BIG = random.Random(2).randbytes(5 * 10**6)


def test_files_of_a_web_server_arrive_and_are_not_brought_twice(cluster: Any, web: Web) -> None:
    web.files = {"images.gz": BIG, "labels": b"0123"}
    addresses = [f"{web.url}/images.gz", f"{web.url}/labels?raw=1"]
    web.files["labels?raw=1"] = b"0123"
    result = pull(cluster, *addresses)
    assert contents(cluster.folder / "claim") == {"images.gz": BIG, "labels": b"0123"}
    assert result.sums == {"images.gz": hashlib.sha256(BIG).hexdigest(), "labels": hashlib.sha256(b"0123").hexdigest()}
    assert pull(cluster, *addresses).new == 0
    web.seen.clear()
    assert pull(cluster, *addresses, sums=result.sums).digest == result.digest
    assert cluster.objects == {}


def test_a_download_that_was_cut_continues_where_it_ended(cluster: Any, web: Web) -> None:
    web.files, web.cuts = {"images.gz": BIG}, {3: 3 * 10**6}  # the first two: how long is it?
    pull(cluster, f"{web.url}/images.gz")
    assert contents(cluster.folder / "claim") == {"images.gz": BIG}
    ranges = [wanted for _, wanted in web.seen if wanted]
    assert ranges == ["bytes=3000000-"], "what had arrived is not sent again"


def test_what_had_arrived_of_a_file_that_has_changed_here_is_removed(
        cluster: Any, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept the claim's space."""
    monkeypatch.setattr(local_files, "PIECES", 1)
    (source / "large").write_bytes(BIG)
    cluster.dies_at = 4
    monkeypatch.setattr(data, "TRIES", 0)
    with pytest.raises(data.AgainError):
        push(cluster, source)
    (part,) = (cluster.folder / "claim/.gangplank-data").iterdir()
    other = part.with_name("abandoned")
    other.write_bytes(b"a")
    os.utime(other, (1, 1))
    cluster.dies_at = -1
    (source / "large").write_bytes(BIG[::-1])
    push(cluster, source)
    assert contents(cluster.folder / "claim") == contents(source)


def test_a_download_that_was_cut_while_it_is_compared_is_no_other_file(cluster: Any, web: Web) -> None:
    """It was refused as another one, with the advice to replace it."""
    web.files = {"images.gz": BIG}
    pull(cluster, f"{web.url}/images.gz")
    web.cuts = {len(web.seen) + 2: 3 * 10**6}  # after: how long is it?
    assert pull(cluster, f"{web.url}/images.gz").new == 0
    assert contents(cluster.folder / "claim") == {"images.gz": BIG}


def test_a_file_that_has_changed_since_is_brought_from_its_beginning(
        cluster: Any, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "TRIES", 0)
    web.files, web.cuts = {"images.gz": BIG}, {3: 3 * 10**6}  # the first two: how long is it?
    with pytest.raises(data.AgainError):
        pull(cluster, f"{web.url}/images.gz")
    assert contents(cluster.folder / "claim").keys() == {f".gangplank-data/{name}" for name in
        [path.name for path in (cluster.folder / "claim/.gangplank-data").iterdir()]}, "a part is not taken for it"
    web.files = {"images.gz": BIG[::-1]}
    pull(cluster, f"{web.url}/images.gz")
    assert contents(cluster.folder / "claim") == {"images.gz": BIG[::-1]}


def test_a_server_that_sends_no_part_of_a_file_sends_it_again(cluster: Any, web: Web) -> None:
    web.files, web.cuts, web.ranges = {"images.gz": BIG}, {3: 3 * 10**6}, False
    pull(cluster, f"{web.url}/images.gz")
    assert contents(cluster.folder / "claim") == {"images.gz": BIG}


def test_a_server_that_does_not_say_how_long_a_file_is_will_do(cluster: Any, web: Web) -> None:
    web.files, web.lengths = {"images.gz": BIG}, False
    pull(cluster, f"{web.url}/images.gz")
    assert contents(cluster.folder / "claim") == {"images.gz": BIG}


def test_a_source_that_is_missing_or_another_is_one_message_and_the_claim_stays(cluster: Any, web: Web) -> None:
    web.files = {"a": b"1", "b": b"2"}
    with pytest.raises(GangplankError, match=f"{web.url}/gone: got 404 Not Found, expected a source that can be read"):
        pull(cluster, f"{web.url}/gone")
    with pytest.raises(GangplankError, match=f"a: got SHA-256 {hashlib.sha256(b'1').hexdigest()}, expected 0000"):
        pull(cluster, f"{web.url}/a", sums={"a": "0" * 64})
    with pytest.raises(GangplankError, match=r"c: got no file(.|\n)*b: got no hash"):
        pull(cluster, f"{web.url}/a", f"{web.url}/b", sums={"a": "0" * 64, "c": "0" * 64})
    with pytest.raises(GangplankError, match="got two files named a, expected one"):
        pull(cluster, f"{web.url}/a", f"{web.url}/a")
    assert contents(cluster.folder / "claim") == {}
    (cluster.folder / "claim/a").write_text("theirs")
    with pytest.raises(GangplankError, match="got other files named a, expected none, or the same files"):
        pull(cluster, f"{web.url}/b", f"{web.url}/a")
    assert contents(cluster.folder / "claim") == {"a": b"theirs"}
    pull(cluster, f"{web.url}/b", f"{web.url}/a", replace=("a",))
    assert contents(cluster.folder / "claim") == {"a": b"1", "b": b"2"}


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", receive.PARTS])
def test_a_key_that_leads_out_of_the_folder_is_refused(name: str) -> None:
    assert receive.unsafe(name)


def test_hashes_are_read_as_sha256sum_prints_them(tmp_path: Path) -> None:
    one, other = "0" * 64, "a" * 64
    (tmp_path / "sums").write_text(f"{one}  ./train images\n{other} *raw/b\n")
    assert sums_of(str(tmp_path / "sums"), ["a", "b"]) == {"train images": one, "raw/b": other}
    assert sums_of(one, ["https://a.example/x/y%20z?raw=1"]) == {"y z": one}
    (tmp_path / "sums").write_text("hello\n")
    with pytest.raises(GangplankError, match='sums:1: got "hello", expected a hash and a name'):
        sums_of(str(tmp_path / "sums"), ["a"])
    with pytest.raises(GangplankError, match="got one hash, expected one for each file"):
        sums_of(one, ["a", "b"])


def about(cluster: Any, verb: str, name: str = "") -> Json:
    return data.about(cluster, data.Order(place_of(cluster), name), verb, quiet)


def test_the_files_of_a_claim_are_listed_without_following_links(cluster: Any, source: Path) -> None:
    push(cluster, source, folder="set")
    (cluster.folder / "secret").write_text("outside")
    (cluster.folder / "claim/away").symlink_to(cluster.folder)
    listed = about(cluster, "ls")
    files = {f"set/{name}": len(text) for name, text in contents(source).items()}
    assert dict(listed["rows"]) == {**files, "away": None}
    assert (listed["files"], listed["bytes"]) == (5, sum(files.values()))
    assert about(cluster, "ls", "set/raw")["rows"] == [["labels", 4]]
    assert about(cluster, "ls", "set/raw/labels")["rows"] == [["labels", 4]]
    with pytest.raises(GangplankError, match=r"claim vision/mnist/away/secret: got the link away, expected a folder"):
        about(cluster, "ls", "away/secret")
    with pytest.raises(GangplankError, match=r"claim vision/mnist/sets: got nothing, expected a file or a folder"):
        about(cluster, "ls", "sets")
    assert cluster.objects == {}


@pytest.mark.slow
def test_what_is_removed_from_a_claim_is_on_it_and_nothing_else_goes(cluster: Any, source: Path) -> None:
    push(cluster, source, folder="set")
    push(cluster, source, folder="other")
    (cluster.folder / "secret").write_text("outside")
    (cluster.folder / "claim/set/away").symlink_to(cluster.folder)
    assert about(cluster, "rm", "other/raw/labels") == {"files": 1, "bytes": 4}
    with pytest.raises(GangplankError, match="got the link set/away, expected a folder"):
        about(cluster, "rm", "set/away/secret")
    assert about(cluster, "rm", "set") == {"files": 5, "bytes": 300_007}
    left = {f"other/{name}": text for name, text in contents(source).items() if name != "raw/labels"}
    assert contents(cluster.folder / "claim") == left
    assert (cluster.folder / "secret").read_text() == "outside"
    with pytest.raises(GangplankError, match="got nothing"):
        about(cluster, "rm", "set")


def test_a_pod_that_removes_and_dies_is_not_repeated(cluster: Any, source: Path) -> None:
    push(cluster, source)
    cluster.dies_at = len(cluster.pods) + 1
    with pytest.raises(KubeError, match="OOMKilled"):
        about(cluster, "rm", "raw")
    assert len(cluster.pods) == cluster.dies_at


UNREADABLE = """
import os, pathlib, sys
from gangplank.cluster.contents import contents, remove
mount = pathlib.Path(sys.argv[1])
if os.geteuid() == 0:
    os.setuid(65534)
print([tuple(row) for row in contents(mount, "", "claim")["rows"]])
try:
    remove(mount, "lost+found", "claim")
except Exception as error:
    print(error)
"""


def test_a_folder_of_another_user_is_listed_and_hides_no_other() -> None:
    with tempfile.TemporaryDirectory() as folder:  # which any user can enter
        mount = Path(folder)
        mount.chmod(0o755)
        (mount / "own").mkdir()
        (mount / "own/a").write_text("x")
        (mount / "lost+found").mkdir(mode=0)
        command = [sys.executable, "-c", UNREADABLE, folder]
        done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
        rows, *refusal = done.stdout.splitlines()
        assert rows == "[('lost+found/', None), ('own/a', 1)]"
        assert refusal == [] if os.geteuid() else "lost+found of another user" in refusal[0]
