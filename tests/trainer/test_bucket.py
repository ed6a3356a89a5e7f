"""Data, checkpoints and results in a bucket of a real S3 server: versitygw over a folder, on the loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster import data_pod, in_pod
from lab.build.parts import build
from tests.support.event_files import scalars
from tests.trainer.harness import free_port, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.trainer.harness import Root

KEY, SECRET = "trainer", "a-secret-that-no-one-may-see"
FLAGS = ("--epochs", "2", "--batch-size", "64", "--seed", "3", "--checkpoint-interval", "4")


class Store:
    """The server: its buckets are the folders of `folder`, an object is a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        program = Path(build(["versitygw"], print)["bin"]["versitygw"]) / "versitygw"
        credentials = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        self.process = subprocess.Popen([program, "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", folder],
                                        env={**os.environ, **credentials}, stdout=subprocess.DEVNULL)
        wait_for(self._answers, "the S3 server answers", 30)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}", timeout=1)
        except urllib.error.HTTPError:
            return True  # it wants a signature
        except OSError:
            return False
        return True

    @property
    def env(self) -> dict[str, str]:
        """What a pod has from its Secret."""
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("buckets")
    (folder / "runs").mkdir()
    (folder / "datasets").mkdir()
    server = Store(folder)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(20)


def idx(folder: Path, prefix: str, count: int) -> None:
    """A data set in MNIST's files."""
    images = bytes((at * 37 + at // 7) % 256 for at in range(count * 64))
    (folder / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 8, 8) + images)
    labels = bytes(at % 10 for at in range(count))
    (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels)


def test_a_run_leaves_in_the_bucket_what_it_leaves_in_a_folder(root: Root, store: Store) -> None:
    folder = root.new()
    plain = root.train(2, *FLAGS, "--output", folder)
    ranks = root.train(2, *FLAGS, "--output", "s3://runs/a/b", "--dir", "s3://runs/events", env=store.env)
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
    source, claim = store.folder / "datasets/mnist", root.new()
    (source / "raw").mkdir(parents=True)
    (source / "raw/images").write_bytes(random.Random(1).randbytes(3 * 10**6))
    (source / "labels").write_bytes(b"0123")
    work = root.new()
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
    assert run("s3://datasets/mnist")["end"]["sums"] == hashes
    for name in hashes:
        assert (root.host(claim) / name).read_bytes() == (source / name).read_bytes()
    assert run("s3://datasets/mnist", sums=hashes)["end"]["lacking"] == 0
    (source / "labels").write_bytes(b"3210")
    assert run("s3://datasets/mnist")["end"]["other"] == ["labels"]
    assert (root.host(claim) / "labels").read_bytes() == b"0123"
    one = run("s3://datasets/mnist/labels", replace=["labels"])
    assert list(one["end"]["sums"]) == ["labels"], "an object alone has its own name"
    assert (root.host(claim) / "labels").read_bytes() == b"3210"
    assert run("s3://datasets/gone")["problem"].startswith("s3://datasets/gone: got no object, expected a source")
    assert run("s3://nowhere/a")["problem"].startswith("s3://nowhere/a: got ")


def test_the_program_of_gangplank_fetch_lists_and_sends_what_is_in_a_bucket(root: Root, store: Store) -> None:
    place = store.folder / "runs/fetched"
    (place / "a").mkdir(parents=True)
    (place / "a/model.bin").write_bytes(bytes(range(256)) * 1000)
    (place / "empty").touch()
    source = Path(in_pod.__file__).read_text()

    def run(what: str, address: str, argument: str) -> list[dict[str, Any]]:
        line = root.command(["python3", "-c", source, what, address, argument], store.env)
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
        assert SECRET not in done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    *files, last = run("list", "s3://runs/fetched", "")
    assert last == {"end": 2}
    assert {line["file"]: line["sha256"] for line in files} == {
        name: hashlib.sha256((place / name).read_bytes()).hexdigest() for name in ("a/model.bin", "empty")}
    assert [line.get("file") for line in run("list", "s3://runs/fetched", "a")] == ["a/model.bin", None]
    *parts, last = run("send", "s3://runs/fetched", json.dumps([["a/model.bin", 100_000, 60_000]]))
    data = b"".join(base64.b64decode(line["data"]) for line in parts)
    assert data == (place / "a/model.bin").read_bytes()[100_000:160_000]
    assert last == {"end": hashlib.sha256(data).hexdigest()}
    assert run("list", "s3://runs/fetched", "missing")[-1]["got"] == "no object below runs/fetched/missing"
    assert "The specified bucket does not exist" in run("list", "s3://none/a", "")[-1]["got"]


def test_no_rank_prints_the_secret_or_has_it_in_its_arguments(root: Root, store: Store) -> None:
    at, running = root.store(), None
    try:
        running = root.start([0, 1], 2, *FLAGS, "--output", "s3://runs/quiet", port=at["port"], env=store.env)
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
    where = ("--output", "s3://runs/killed", "--epochs", "6", *FLAGS[2:])
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


def test_checkpoints_that_the_run_removed_leave_the_bucket(root: Root, store: Store) -> None:
    where = ("--output", "s3://runs/few", "--keep-checkpoints", "1", *FLAGS)
    assert root.train(1, *where, env=store.env)[0].code == 0
    assert len(list((store.folder / "runs/few/checkpoints").glob("step-*/SHA256SUMS"))) == 1


def test_a_lost_bucket_is_reported_at_once_and_ends_in_failure(root: Root, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    lost, at = Store(tmp_path), root.store()
    try:
        running = root.start([0], 1, "--epochs", "80", *FLAGS[2:], "--output", "s3://runs/lost", port=at["port"],
                             env=lost.env)
        wait_for(lambda: list(tmp_path.glob("runs/lost/checkpoints/step-*")), "a checkpoint")
        lost.process.kill()
        (rank,) = running.wait()
    finally:
        root.close_store(at)
        lost.process.wait(20)
    assert rank.code == 1, rank.text
    assert rank.event("end")["steps"] == 80 * 24  # the training itself continued, for longer than a save is tried
    assert "s3://runs/lost cannot be written" in str(rank.event("upload_failed")["reason"])
    assert [line for line in rank.text.splitlines() if line.startswith("train.py: s3://runs/lost cannot be written")]


def test_data_comes_from_a_bucket(root: Root, store: Store) -> None:
    folder = store.folder / "datasets/small"
    folder.mkdir()
    idx(folder, "train", 64)
    idx(folder, "t10k", 16)
    (rank,) = root.train(1, "--data", "mnist:s3://datasets/small", "--epochs", "1", "--batch-size", "16", env=store.env)
    assert rank.code == 0, rank.text
    assert rank.event("end")["samples"] == 64


@pytest.mark.parametrize(("flags", "env", "message"), [
    (["--output", "s3://none/a"], {}, "s3://none/a cannot be read: no such bucket"),
    (["--data", "mnist:s3://datasets/empty"], {}, "s3://datasets/empty has no files"),
    (["--output", "s3://runs/a"], {"AWS_SECRET_ACCESS_KEY": "wrong-secret"}, "s3://runs/a cannot be read"),
    (["--output", "s3://runs/a"], {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Could not connect"),
], ids=["no bucket", "no data", "wrong secret", "no server"])
def test_a_bucket_that_cannot_be_read_is_one_line(root: Root, store: Store, flags: list[str], env: dict[str, str],
                                                  message: str) -> None:
    (rank,) = root.train(1, *flags, env=store.env | env)
    lines = [line for line in rank.text.splitlines() if line.startswith("train.py: ")]
    assert (rank.code, len(lines)) == (2, 1), rank.text
    assert message in lines[0]
    assert "Traceback" not in rank.text
    assert "wrong-secret" not in rank.text
    assert SECRET not in rank.text
