"""Faults of storage, from the image's Python: one case a call, its outcome as JSON."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, "/opt/gangplank/trainer")
import bucket
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem


def refuses(*_: object) -> None:
    """What a store says of a place that is not for these credentials."""
    raise PermissionError(errno.EACCES, "Access Denied")


def keys(*names: str) -> dict[str, object]:
    """Download a bucket with such keys; what was written where, and the refusal."""
    files = MemoryFileSystem()
    for name in ("a/good", *names):
        path = f"/runs/{name}"
        files.store[path] = MemoryFile(files, path, b"content")
    top = Path(tempfile.mkdtemp())
    (top / "in").mkdir()
    mirror = bucket.Mirror("memory://runs", top / "in")
    mirror.root = "/runs"
    mirror.files.find = lambda start: [path for path in files.store if path.startswith(start)]
    mirror.files.ls = refuses  # credentials for a part of the bucket
    refusal = ""
    try:
        mirror.download()
        assert mirror.download("none") == 0
    except bucket.BucketError as error:
        refusal = str(error)
    written = sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())
    return {"refusal": refusal, "files": written, "absolute": Path("/tmp/absolute").exists()}


def thread(kind: str) -> dict[str, object]:
    """An error of this kind in one look for files to upload; whether the next ones are still uploaded."""
    files, folder = MemoryFileSystem(), Path(tempfile.mkdtemp())
    mirror = bucket.Mirror("memory://runs", folder)
    mirror.root = "/runs"
    look, put, failed = mirror._stamps, files.put_file, threading.Event()

    def fail_once(call: object, *words: object) -> object:
        if not failed.is_set():
            failed.set()
            raise {"permission": PermissionError(errno.EACCES, "Permission denied", str(folder / "a")),
                   "client": RuntimeError("the session is closed"), "key": KeyError("ETag")}[kind]
        return call(*words)

    if kind == "permission":
        mirror._stamps = lambda: fail_once(look)
    else:
        mirror.files.put_file = lambda *words: fail_once(put, *words)
    (folder / "a").write_text("content")
    bucket.PERIOD_S = 0.01
    mirror.thread.start()
    failed.wait(60)
    for _ in range(3000):
        if "/runs/a" in files.store or not mirror.thread.is_alive():
            break
        time.sleep(0.01)
    return {"alive": mirror.thread.is_alive(), "uploaded": "/runs/a" in files.store}


def gone() -> dict[str, object]:
    """A file that the run removes when its object is gone already; the refusal, and what is left."""
    files, folder = MemoryFileSystem(), Path(tempfile.mkdtemp())
    mirror = bucket.Mirror("memory://runs", folder)
    mirror.root = "/runs"
    for name in ("a", "b"):
        (folder / name).write_text("content")
    mirror.upload()
    files.rm_file("/runs/a")
    for name in ("a", "b"):
        (folder / name).unlink()
    refusal = ""
    try:
        mirror.upload()
    except bucket.BucketError as error:
        refusal = str(error)
    return {"refusal": refusal, "left": [path for path in files.store if path.startswith("/runs/")]}


def beside() -> dict[str, object]:
    """A look that saw neither the new checkpoint nor the old one, which it replaced: the bucket after each upload."""
    files, folder = MemoryFileSystem(), Path(tempfile.mkdtemp())
    mirror = bucket.Mirror("memory://runs", folder)
    mirror.root = "/runs"
    (folder / "old").write_text("content")
    mirror.upload()
    (folder / "old").rename(folder / "new")
    look, looks = mirror._stamps, []

    def miss_once() -> dict[str, tuple[int, int]]:
        looks.append(look())
        return looks[-1] if looks[1:] else {}

    mirror._stamps = miss_once
    after = []
    for _ in range(2):
        mirror.upload()
        after.append(sorted(path for path in files.store if path.startswith("/runs/")))
    return {"after": after}


def lines() -> dict[str, object]:
    """Processes that print short and long lines to one slow pipe."""
    code = ("import sys, time; sys.path.insert(0, '/opt/gangplank/trainer'); from log import say\n"
            "rank = int(sys.argv[1])\n"
            "for at in range(40):\n"
            "    say('step', rank=rank, text='x' * (9 if rank else 30_000))\n"
            "    time.sleep(0.001 if rank else 0)\n")
    read, write = os.pipe()
    ranks = [subprocess.Popen([sys.executable, "-c", code, str(rank)], stdout=write) for rank in range(3)]
    os.close(write)
    data = b""
    while part := os.read(read, 1500):  # so that it is always full
        data += part
    os.close(read)
    broken = 0
    for line in data.decode().splitlines():
        try:
            json.loads(line)
        except ValueError:
            broken += 1
    return {"codes": [rank.wait() for rank in ranks], "lines": data.count(b"\n"), "broken": broken}


def rotate() -> dict[str, object]:
    """A save after which the removal of an old checkpoint fails, and one after which the folder cannot be read."""
    import checkpoint
    import torch

    folder, tensors = Path(tempfile.mkdtemp()), {"weights": torch.arange(6.0)}
    saver, real = checkpoint.Saver(folder, 1, "job"), shutil.rmtree

    def refuse(path: Path, *more: object, **options: object) -> None:
        if Path(path).name == f".writing-{checkpoint.step_name(1)}":  # as it is called while it is removed
            raise OSError(errno.EIO, "Input/output error", str(path))
        real(path, *more, **options)

    checkpoint.shutil.rmtree = refuse
    for step in (1, 2):
        saver.save(lambda step=step: (tensors, {"step": step, "job_uid": "job"}, b""))
    saver.wait()
    checkpoint.shutil.rmtree = real
    unreadable = True

    def hook(event: str, words: tuple[object, ...]) -> None:
        if unreadable and event in {"os.listdir", "os.scandir"} and str(words[0]).rstrip("/") == str(folder):
            raise OSError(errno.EIO, "Input/output error", str(folder))

    sys.addaudithook(hook)
    saver.save(lambda: (tensors, {"step": 3, "job_uid": "job"}, b""))
    saver.wait()
    unreadable = False
    return {"failure": str(saver.failure or ""), "names": sorted(path.name for path in folder.iterdir())}


def replace() -> dict[str, object]:
    """A checkpoint that takes the place of another: what is there after a kill before each change of names."""
    import checkpoint
    import torch

    def write(folder: Path, first: float) -> None:
        meta = {"step": 1, "format": checkpoint.FORMAT}
        checkpoint.write(folder, "step-00000001", {"weights": torch.arange(6.0) + first}, meta, b"")

    outcomes: list[list[object]] = []
    while not outcomes or outcomes[-1][0] != 0:
        folder, limit = Path(tempfile.mkdtemp()), len(outcomes) + 1
        write(folder, 0)
        pid = os.fork()
        if not pid:
            count = 0

            def hook(event: str, _: object, limit: int = limit) -> None:
                nonlocal count
                if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
                    count += 1
                    if count == limit:
                        os.kill(os.getpid(), 9)

            sys.addaudithook(hook)
            write(folder, 1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        checkpoint.restore(folder)
        try:
            first = checkpoint.read(folder / "step-00000001").tensors()["weights"][0].item()
        except ValueError as error:
            first = str(error)
        outcomes.append([status, first, sorted(path.name for path in folder.iterdir())])
    return {"outcomes": outcomes}


CASES = {"keys": keys, "thread": thread, "gone": gone, "beside": beside, "lines": lines, "rotate": rotate,
         "replace": replace}
print(json.dumps(CASES[sys.argv[1]](*sys.argv[2:])))
