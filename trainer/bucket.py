"""Inputs and outputs in a bucket: s3://… and gs://… in --data, --dir and --output stand for folders here.

    train.py --data mnist:s3://datasets/mnist --output s3://runs/mnist

Every rank downloads the data into a folder of its own. Rank 0 downloads existing checkpoints and writes to a folder,
from where a thread uploads each file as soon as it is whole; the rest is uploaded at the end. The ranks have met by
then, so that one may take longer than others wait for it at the rendezvous. Address and
credentials come from the environment alone (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY; for gs://
GOOGLE_APPLICATION_CREDENTIALS, or the node's own): in a pod, from a Secret.
fsspec does the work: https://filesystem-spec.readthedocs.io.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from log import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ADDRESS = re.compile(r"(?:s3|gs)://[^/\s]+/?.*")
WRITTEN = ("--output", "--dir")  # flags whose folders are uploaded, by rank 0 alone
NEEDS = {"s3": "AWS_ENDPOINT_URL, the credentials' Secret and its rights", "gs": "the credentials and their rights"}
STEP = re.compile(r"checkpoints/step-\d+")
PERIOD_S = 0.5  # between two looks for files to upload
Stamp = tuple[int, int]  # bytes, nanoseconds of the last change


class BucketError(OSError):
    """A bucket that cannot be read or written: which, why, and the fix; never a credential."""


class Mirror:
    """A local folder and an address with the same files; those still being written have names with a leading dot."""

    def __init__(self, address: str, folder: Path, written: bool = False) -> None:
        self.address, self.folder, self.written = address.rstrip("/"), folder, written
        self.uploaded: dict[str, Stamp] = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it prints what it raises, with a traceback
        try:
            import fsspec
            self.files: Any
            self.files, self.root = fsspec.core.url_to_fs(self.address)
        except ImportError as error:
            raise BucketError(f"{address}: needs the Python package {error.name}. Fix: add it to the image") from error

    def download(self, below: str = "") -> int:
        """Copy the address's files into the folder; return their number."""
        def copy() -> int:
            start = f"{self.root}/{below}".rstrip("/")
            paths = [path for path in self.files.find(start) if not path.endswith("/")]
            if not paths:
                try:
                    self.files.ls(self.root.split("/")[0])  # reports a bucket that is missing as such
                except OSError as error:  # credentials for a part of the bucket may list that alone; gcsfs has no class
                    if not isinstance(error, PermissionError) and not str(error).startswith("Forbidden"):
                        raise
            names = [path.removeprefix(f"{self.root}/") for path in paths]
            for name in names:  # all of them first: a key is any text
                if name.startswith("/") or ".." in name.split("/"):
                    raise BucketError(f"{self.address} has the key {name!r}, which is not a path in a folder. "
                                      "Fix: rename the object, or remove it")
            for path, name in zip(paths, names, strict=True):
                target = self.folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                self.files.get_file(path, str(target))
            return len(paths)
        count: int = self._ask("read", copy)
        self.uploaded = self._stamps()
        return count

    def upload(self) -> None:
        """Copy new and changed files to the address, the newest checkpoint first, and remove those that are past."""
        stamps = self._stamps()

        def copy() -> None:
            for name in sorted(sorted(stamps), key=folder_of, reverse=True):
                if self.uploaded.get(name) != stamps[name]:
                    with self._unless_gone(name):
                        self.files.put_file(str(self.folder / name), f"{self.root}/{name}")
                        self.uploaded[name] = stamps[name]
            # What says whose a checkpoint is goes last: a part of one without it would stay for good.
            for name in sorted(self._past(stamps), key=lambda name: name.endswith("/state.json")):
                with contextlib.suppress(FileNotFoundError):  # a rule of the bucket, or a person, was faster
                    self.files.rm_file(f"{self.root}/{name}")
                del self.uploaded[name]
        self._ask("written", copy)

    @contextlib.contextmanager
    def _unless_gone(self, name: str) -> Iterator[None]:
        """Pass over a file that is removed meanwhile, as checkpoints are: those after it are not to wait for it."""
        try:
            yield
        except FileNotFoundError:
            if (self.folder / name).exists():  # the bucket is missing
                raise

    def _past(self, stamps: dict[str, Stamp]) -> set[str]:
        """The uploaded files that are gone from the folder, and for which the address has something newer.

        A look beside a save may miss the new checkpoint, while the old one is gone already. Where saves come faster
        than uploads something is always missing: a checkpoint is past then once a later one of `stamps` is there.
        """
        now = self._stamps()
        gone = self.uploaded.keys() - now.keys()
        if all(self.uploaded.get(name) == stamp for name, stamp in now.items()):
            return gone
        missing = {folder_of(name) for name, stamp in stamps.items() if self.uploaded.get(name) != stamp}
        newest = max({folder for folder in map(folder_of, stamps) if STEP.fullmatch(folder)} - missing, default="")
        return {name for name in gone if STEP.fullmatch(folder_of(name)) and folder_of(name) < newest}

    def end(self) -> None:
        """Upload the rest, if the thread was started."""
        if self.thread.ident is None:
            return
        self.ended.set()
        self.thread.join()
        self.upload()

    def _follow(self) -> None:
        reason = ""
        while not self.ended.wait(PERIOD_S):
            try:
                self.upload()
            except FileNotFoundError:
                continue  # a checkpoint was removed while it was being looked at
            except OSError as error:  # training continues; the end tries again, and its exit status reports it
                if str(error) != reason:
                    reason = str(error)
                    say("upload_failed", rank=0, reason=reason)

    def _stamps(self) -> dict[str, Stamp]:
        stamps = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                status = path.stat()
                stamps[str(name)] = (status.st_size, status.st_mtime_ns)
        return stamps

    def _ask(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except FileNotFoundError as error:
            if error.filename and Path(str(error.filename)).is_relative_to(self.folder):
                raise
            raise BucketError(f"{self.address} cannot be {what}: no such bucket. "
                              "Fix: create it, or correct the address") from error
        except BucketError:
            raise
        except Exception as error:  # each store's client has errors of its own
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            needs = NEEDS.get(self.address.partition("://")[0], "the address")
            raise BucketError(f"{self.address} cannot be {what}: {reason}. Fix: check {needs}") from error


def staged(run: Callable[[list[str], Callable[[], None] | None], int], arguments: list[str]) -> int:
    """Run with folders instead of addresses; the exit status: the run's, 2 unreadable, 1 not all written.

    `run` also gets what downloads the files into the folders, None if there are none; it may raise BucketError.
    """
    if not any(ADDRESS.search(word) for word in arguments):
        return run(arguments, None)
    mirrors: list[Mirror] = []
    with tempfile.TemporaryDirectory(prefix="bucket-") as folder:
        try:
            words = [localize(at, arguments, Path(folder, str(at)), mirrors) for at in range(len(arguments))]
        except BucketError as error:
            return refuse(error, 2)

        def download() -> None:
            for mirror in mirrors:
                if not mirror.download("checkpoints" if mirror.written else "") and not mirror.written:
                    raise BucketError(f"{mirror.address} has no files. Fix: upload the data")
            for mirror in mirrors:  # no earlier: a folder that goes after a refusal must not empty its address
                if mirror.written:
                    mirror.thread.start()

        code = 1
        try:
            code = run(words, download)
        finally:
            for mirror in mirrors:
                try:
                    mirror.end()
                except BucketError as error:
                    code = refuse(error, 1)
    return code


def folder_of(name: str) -> str:
    """The folder of a name with slashes; "" if it has none. Those of checkpoints sort as steps do."""
    return name.rpartition("/")[0]


def localize(at: int, arguments: list[str], folder: Path, mirrors: list[Mirror]) -> str:
    """One argument with the folder instead of its address, which is added to `mirrors` unless rank 0 alone needs it."""
    word = arguments[at]
    address = ADDRESS.search(word)
    if not address:
        return word
    folder.mkdir()
    local = word[: address.start()] + str(folder)
    is_output = any(word.startswith(f"{flag}=") or arguments[at - 1] == flag for flag in WRITTEN)
    if is_output and os.environ.get("RANK", "0") != "0":
        return local  # only rank 0 touches the output
    mirrors.append(Mirror(address.group(), folder, is_output))
    return local


def refuse(error: object, code: int) -> int:
    """One line on standard error, and the exit status."""
    print(f"train.py: {error}", file=sys.stderr, flush=True)
    return code
