"""Data, checkpoints and results in a bucket of a real server on the loopback, whose buckets are folders.

S3 is versitygw and the trainer's root as it is; Google Cloud Storage is fake-gcs-server and a root with gcsfs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from gangplank.cluster import data_pod, in_pod
from lab.build.parts import build
from tests.support.event_files import scalars
from tests.trainer.harness import REPOSITORY, Rank, Root, free_port, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY, SECRET = "trainer", "a-secret-that-no-one-may-see"
FLAGS = ("--epochs", "2", "--batch-size", "64", "--seed", "3", "--checkpoint-interval", "4")
PACKAGES = "/usr/local/lib/python3.14/dist-packages"  # where Debian's Python looks first
WHEELS = ("--no-deps", "--python-version=3.14", "--platform=manylinux2014_x86_64")


class Store:
    """The S3 server: its buckets are the folders of `folder`, an object is a file."""

    scheme, part = "s3", "versitygw"
    unusable: ClassVar = [({"AWS_SECRET_ACCESS_KEY": "wrong-secret"}, "Fix: check AWS_ENDPOINT_URL"),
                          ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Could not connect")]

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        for bucket in ("runs", "datasets"):
            (folder / bucket).mkdir()
        program = Path(build([self.part], print)["bin"][self.part]) / self.part
        credentials = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        self.process = subprocess.Popen([program, *self.words()], env={**os.environ, **credentials},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self._answers, "the server answers")

    def words(self) -> list[str]:
        """The server's arguments."""
        return ["--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(self.folder)]

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}", timeout=10)
        except urllib.error.HTTPError:
            return True  # it wants a signature, or has nothing there
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.wait(20)

    def at(self, name: str) -> str:
        """The address of a bucket, or below one."""
        return f"{self.scheme}://{name}"

    def put(self, name: str, data: bytes) -> None:
        """An object, of another program."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    @property
    def env(self) -> dict[str, str]:
        """What a pod has from its Secret."""
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1"}


class GoogleStore(Store):
    """The server of Google Cloud Storage's API."""

    scheme, part = "gs", "fake-gcs-server"
    unusable: ClassVar = [({"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"}, "Cannot connect")]

    def words(self) -> list[str]:
        place = f"127.0.0.1:{self.port}"
        return ["-scheme=http", "-host=127.0.0.1", f"-port={self.port}", f"-public-host={place}",
                f"-external-url=http://{place}", "-backend=filesystem", f"-filesystem-root={self.folder}"]

    def put(self, name: str, data: bytes) -> None:
        bucket, _, key = name.partition("/")
        where = f"http://127.0.0.1:{self.port}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={key}"
        urllib.request.urlopen(urllib.request.Request(where, data, method="POST"), timeout=10).read()

    @property
    def env(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{self.port}", "FSSPEC_GCS_TOKEN": "anon",
                "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}  # its other API, over gRPC, which the server lacks


@pytest.fixture(scope="module", params=[Store, GoogleStore], ids=["s3", "gs"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    server: Store = request.param(tmp_path_factory.mktemp("buckets"))
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def root(root: Root, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """The trainer's root, for gs:// with what lab/images/gcs adds to the image."""
    if store.scheme == "s3":
        yield root
        return
    own = Root(Path(os.environ["GANGPLANK_TRAINER_ROOT"]), tmp_path_factory.mktemp("gcs-root"))
    try:
        packages = own.new()
        listed = REPOSITORY / "lab/images/gcs/requirements.txt"
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *WHEELS, f"--target={own.host(packages)}",
                        f"--requirement={listed}"], check=True, timeout=300)
        subprocess.run(own.command(["cp", "-r", f"{packages}/.", PACKAGES]), check=True, timeout=60)
        yield own
    finally:
        own.close()


def put_idx(store: Store, prefix: str, count: int) -> None:
    """A data set in MNIST's files."""
    images = bytes((at * 37 + at // 7) % 256 for at in range(count * 64))
    store.put(f"{prefix}-images-idx3-ubyte", struct.pack(">4I", 0x803, count, 8, 8) + images)
    labels = bytes(at % 10 for at in range(count))
    store.put(f"{prefix}-labels-idx1-ubyte", struct.pack(">2I", 0x801, count) + labels)


def test_a_run_leaves_in_the_bucket_what_it_leaves_in_a_folder(root: Root, store: Store) -> None:
    folder = root.new()
    plain = root.train(2, *FLAGS, "--output", folder)
    ranks = root.train(2, *FLAGS, "--output", store.at("runs/a/b"), "--dir", store.at("runs/events"), env=store.env)
    assert [rank.code for rank in ranks + plain] == [0] * 4, ranks[0].text

    def names(path: Path) -> list[str]:
        return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())

    bucket = store.folder / "runs/a/b"
    assert names(bucket) == names(root.host(folder))
    assert (bucket / "model.safetensors").read_bytes() == (root.host(folder) / "model.safetensors").read_bytes()
    assert any(name.startswith("checkpoints/step-") for name in names(bucket))
    (events,) = (store.folder / "runs/events").iterdir()
    assert [tag for tag, _, _ in scalars(events)].count("accuracy") == 2


def test_the_program_of_gangplank_data_brings_a_bucket_onto_a_claim(root: Root, store: Store) -> None:
    source, claim, work = store.folder / "datasets/mnist", root.new(), root.new()
    store.put("datasets/mnist/raw/images", random.Random(1).randbytes(3 * 10**6))
    store.put("datasets/mnist/labels", b"0123")
    (root.host(work) / "program.zip").write_bytes(data_pod.program())

    def run(address: str, **more: Any) -> dict[str, Any]:
        request = {"sources": [address], "sums": {}, "write": True, "folder": "", "replace": [], "title": "claim a/b"}
        (root.host(work) / "request.json").write_text(json.dumps(request | more))
        words = ["python3", "-I", f"{work}/program.zip", f"{work}/request.json", work, claim]
        done = subprocess.run(root.command(words, store.env), capture_output=True, text=True, check=False, timeout=60)
        assert SECRET not in done.stdout + done.stderr
        last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return last

    hashes = {name: hashlib.sha256((source / name).read_bytes()).hexdigest() for name in ("labels", "raw/images")}
    assert run(store.at("datasets/mnist"))["end"]["sums"] == hashes
    for name in hashes:
        assert (root.host(claim) / name).read_bytes() == (source / name).read_bytes()
    assert run(store.at("datasets/mnist"), sums=hashes)["end"]["lacking"] == 0
    store.put("datasets/mnist/labels", b"3210")
    assert run(store.at("datasets/mnist"))["end"]["other"] == ["labels"]
    assert (root.host(claim) / "labels").read_bytes() == b"0123"
    one = run(store.at("datasets/mnist/labels"), replace=["labels"])
    assert list(one["end"]["sums"]) == ["labels"], "an object alone has its own name"
    assert (root.host(claim) / "labels").read_bytes() == b"3210"
    missing = store.at("datasets/gone: got no object, expected a source")
    assert run(store.at("datasets/gone"))["problem"].startswith(missing)
    assert run(store.at("nowhere/a"))["problem"].startswith(store.at("nowhere/a: got no such bucket"))


def test_the_program_of_gangplank_fetch_lists_and_sends_what_is_in_a_bucket(root: Root, store: Store) -> None:
    place = store.folder / "runs/fetched"
    store.put("runs/fetched/a/model.bin", bytes(range(256)) * 1000)
    store.put("runs/fetched/empty", b"")
    source = Path(in_pod.__file__).read_text()

    def run(what: str, address: str, argument: str) -> list[dict[str, Any]]:
        line = root.command(["python3", "-c", source, what, address, argument], store.env)
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
        assert SECRET not in done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    *files, last = run("list", store.at("runs/fetched"), "")
    assert last == {"end": 2}
    assert {line["file"]: line["sha256"] for line in files} == {
        name: hashlib.sha256((place / name).read_bytes()).hexdigest() for name in ("a/model.bin", "empty")}
    assert [line.get("file") for line in run("list", store.at("runs/fetched"), "a")] == ["a/model.bin", None]
    *parts, last = run("send", store.at("runs/fetched"), json.dumps([["a/model.bin", 100_000, 60_000]]))
    data = b"".join(base64.b64decode(line["data"]) for line in parts)
    assert data == (place / "a/model.bin").read_bytes()[100_000:160_000]
    assert last == {"end": hashlib.sha256(data).hexdigest()}
    assert run("list", store.at("runs/fetched"), "missing")[-1]["got"] == "no object below runs/fetched/missing"
    assert run("list", store.at("none/a"), "")[-1]["got"] == "no such bucket"


def test_no_rank_prints_the_secret_or_has_it_in_its_arguments(root: Root, store: Store) -> None:
    at, running = root.store(), None
    try:
        running = root.start([0, 1], 2, *FLAGS, "--output", store.at("runs/quiet"), port=at["port"], env=store.env)
        wait_for(lambda: '"step"' in running.text(0), "rank 0 trains")
        arguments = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in running.pids)
        ranks = running.wait()
    finally:
        root.close_store(at)
    assert [rank.code for rank in ranks] == [0, 0]
    assert SECRET.encode() not in arguments
    assert not any(SECRET in rank.text for rank in ranks)
    written = b"".join(path.read_bytes() for path in (store.folder / "runs/quiet").rglob("*") if path.is_file())
    assert SECRET.encode() not in written


def test_an_interrupted_run_resumes_from_the_bucket_and_ends_the_same(root: Root, store: Store) -> None:
    where = ("--output", store.at("runs/killed"), "--epochs", "6", *FLAGS[2:])
    at = root.store()
    running = root.start([0, 1], 2, *where, port=at["port"], env=store.env)
    checkpoints = store.folder / "runs/killed/checkpoints"
    try:
        wait_for(lambda: list(checkpoints.glob("step-*/state.safetensors")), "a checkpoint")
        for rank in (0, 1):
            running.kill(rank, signal.SIGKILL)
        running.wait()
    finally:
        root.close_store(at)
    ranks = root.train(2, *where, env=store.env)
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].text
    assert ranks[0].event("resume")["step"] > 0
    folder = root.new()
    root.train(2, *where[2:], "--output", folder)
    ended = (store.folder / "runs/killed/model.safetensors").read_bytes()
    assert ended == (root.host(folder) / "model.safetensors").read_bytes()


def test_what_is_saved_when_the_others_are_lost_reaches_the_bucket(root: Root, store: Store) -> None:
    """Before, the rank left at once, and what was not uploaded by then was lost with it."""
    at, checkpoints = root.store(), store.folder / "runs/left/checkpoints"
    running = root.start([0, 1], 2, "--output", store.at("runs/left"), "--epochs", "400", *FLAGS[2:], port=at["port"],
                         env=store.env)
    try:
        wait_for(lambda: list(checkpoints.glob("step-*/SHA256SUMS")), "a checkpoint")
        os.kill(store.process.pid, signal.SIGSTOP)
        before = running.text(0).count('"event":"checkpoint"')
        wait_for(lambda: running.text(0).count('"event":"checkpoint"') > before + 1, "others, which are not uploaded")
        running.kill(1, signal.SIGKILL)
        wait_for(lambda: "lost the others" in running.text(0), "rank 0 gives rank 1 up")
        os.kill(store.process.pid, signal.SIGCONT)
        rank, _ = running.wait()
    finally:
        os.kill(store.process.pid, signal.SIGCONT)
        root.close_store(at)
    assert rank.code == 1, rank.text
    assert (checkpoints / str(rank.event("checkpoint")["checkpoint"]) / "SHA256SUMS").exists()


def test_checkpoints_that_the_run_removed_leave_the_bucket(root: Root, store: Store) -> None:
    where = ("--output", store.at("runs/few"), "--keep-checkpoints", "1", *FLAGS)
    assert root.train(1, *where, env=store.env)[0].code == 0
    assert len(list((store.folder / "runs/few/checkpoints").glob("step-*/SHA256SUMS"))) == 1


def test_a_lost_bucket_is_reported_at_once_and_ends_in_failure(root: Root, store: Store, tmp_path: Path) -> None:
    lost, at = type(store)(tmp_path), root.store()
    try:
        running = root.start([0], 1, "--epochs", "80", *FLAGS[2:], "--output", store.at("runs/lost"), port=at["port"],
                             env=lost.env)
        wait_for(lambda: list(tmp_path.glob("runs/lost/checkpoints/step-*")), "a checkpoint")
        lost.process.kill()
        (rank,) = running.wait()
    finally:
        root.close_store(at)
        lost.close()
    assert rank.code == 1, rank.text
    assert rank.event("end")["steps"] == 80 * 24  # the training itself continued, for longer than a save is tried
    assert store.at("runs/lost cannot be written") in str(rank.event("upload_failed")["reason"])
    said = f"train.py: {store.at('runs/lost')} cannot be written"
    assert [line for line in rank.text.splitlines() if line.startswith(said)]


def test_data_comes_from_a_bucket(root: Root, store: Store) -> None:
    put_idx(store, "datasets/small/train", 64)
    put_idx(store, "datasets/small/t10k", 16)
    data = f"mnist:{store.at('datasets/small')}"
    (rank,) = root.train(1, "--data", data, "--epochs", "1", "--batch-size", "16", env=store.env)
    assert rank.code == 0, rank.text
    assert rank.event("end")["samples"] == 64


def test_ranks_with_data_from_a_bucket_are_one_job_and_resume(root: Root, store: Store) -> None:
    """Each rank has the data in a folder of its own, which is not a setting."""
    put_idx(store, "datasets/shared/train", 64)
    put_idx(store, "datasets/shared/t10k", 16)
    where = ("--data", f"mnist:{store.at('datasets/shared')}", "--output", store.at("runs/with-data"))
    flags = ("--batch-size", "8", "--seed", "3", "--checkpoint-interval", "2")
    for epochs in (1, 2):
        ranks = root.train(2, *where, *flags, "--epochs", str(epochs), env=store.env)
        assert [rank.code for rank in ranks] == [0, 0], ranks[0].text
    assert ranks[0].event("resume")["step"] == 4
    lines = (store.folder / "runs/with-data/evidence.jsonl").read_text().splitlines()
    settings = [record["settings"] for record in map(json.loads, lines) if "settings" in record]
    assert (len(settings), len({*settings})) == (4, 1)  # of both runs and both ranks


def test_a_bucket_may_take_longer_than_ranks_wait_for_each_other(root: Root, store: Store) -> None:
    """Before, the ranks met after rank 0 had its checkpoints: the others had left by then."""
    at = root.store()
    os.kill(store.process.pid, signal.SIGSTOP)
    try:
        running = root.start([0, 1], 2, *FLAGS, "--output", store.at("runs/slow"), "--rendezvous-timeout", "25",
                             "--collective-timeout", "25", port=at["port"], env=store.env)
        assert not running.until(lambda: running.ended(0) or running.ended(1), 40), running.text(0) + running.text(1)
        os.kill(store.process.pid, signal.SIGCONT)
        ranks = running.wait()
    finally:
        os.kill(store.process.pid, signal.SIGCONT)
        root.close_store(at)
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].text


def test_a_rank_without_its_files_ends_the_others_wait(root: Root, store: Store) -> None:
    at = root.store()
    data = f"mnist:{store.at('datasets/unreadable')}"
    put_idx(store, "datasets/unreadable/train", 64)
    put_idx(store, "datasets/unreadable/t10k", 16)
    try:
        first = root.start([0], 2, *FLAGS, "--data", data, port=at["port"], env=store.env)
        second = root.start([1], 2, *FLAGS, "--data", data, port=at["port"],
                            env={**store.env, **store.unusable[0][0]})
        ranks = [*first.wait(), *second.wait()]
    finally:
        root.close_store(at)
    assert [rank.code for rank in ranks] == [1, 2], ranks[0].text
    assert "lost the others" in ranks[0].text
    assert "cannot be read" in refusal(ranks[1])


@pytest.mark.parametrize(("flag", "place", "message"), [
    ("--output", "{}://none/a", "{}://none/a cannot be read: no such bucket"),
    ("--data", "mnist:{}://datasets/empty", "{}://datasets/empty has no files"),
], ids=["no bucket", "no data"])
def test_what_is_not_there_is_one_line(root: Root, store: Store, flag: str, place: str, message: str) -> None:
    (rank,) = root.train(1, flag, place.format(store.scheme), env=store.env)
    assert message.format(store.scheme) in refusal(rank)


def test_a_refusal_leaves_the_checkpoints_in_the_bucket(root: Root, store: Store) -> None:
    """An upload that had begun before could take the emptied folder for the run's, and remove them."""
    kept = [f"runs/refused/checkpoints/step-00000004/{name}" for name in ("state.safetensors", "SHA256SUMS")]
    for name in kept:
        store.put(name, b"x")
    where = ("--output", store.at("runs/refused"), "--data", f"mnist:{store.at('datasets/empty')}")
    (rank,) = root.train(1, *where, env=store.env)
    assert "has no files" in refusal(rank)
    assert all((store.folder / name).exists() for name in kept)


def test_a_store_that_does_not_answer_or_refuses_is_one_line(root: Root, store: Store) -> None:
    for env, message in store.unusable:
        (rank,) = root.train(1, "--output", store.at("runs/a"), env=store.env | env)
        line = refusal(rank)
        assert line.startswith(f"train.py: {store.at('runs/a')} cannot be read: ")
        assert message in line
        assert "wrong-secret" not in rank.text


def refusal(rank: Rank) -> str:
    """The one line of a run that has not begun."""
    lines = [line for line in rank.text.splitlines() if line.startswith("train.py: ")]
    assert (rank.code, len(lines)) == (2, 1), rank.text
    assert "Traceback" not in rank.text
    assert SECRET not in rank.text
    return lines[0]
