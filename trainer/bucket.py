"""Inputs and outputs in a bucket: s3://… and gs://… in --data and --output stand for folders here.

    train.py --data mnist:s3://datasets/mnist --output s3://runs/mnist

Every rank brings the data into a folder of its own. Rank 0 brings the checkpoints that are there and writes to a
folder, from where a thread takes each file to the bucket as soon as it is whole; the end takes the rest. Address and
credentials come from the environment alone (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY): in a pod,
from a Secret.
fsspec does the work: https://filesystem-spec.readthedocs.io.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from log import say

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS = re.compile(r"(?:s3|gs)://[^/\s]+/?.*")
PERIOD_S = 0.5  # between two looks at what is to be taken
Stamp = tuple[int, int]  # bytes, nanoseconds of the last change


class BucketError(OSError):
    """A bucket that cannot be read or written: which, why, the cure; never a credential."""


class Mirror:
    """A folder here and an address there, alike but for what is still being written (names that begin with a dot)."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder = address.rstrip("/"), folder
        self.taken: dict[str, Stamp] = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        try:
            import fsspec
            self.files: Any
            self.files, self.root = fsspec.core.url_to_fs(self.address)
        except ImportError as error:
            raise BucketError(f"{address}: needs the Python package {error.name}; add it to the image") from error

    def bring(self, below: str = "") -> int:
        """Copy what is there into the folder; return how many files that were."""
        def copy() -> int:
            self.files.ls(self.root.split("/")[0])  # a bucket that is not there, or not ours, is told as such
            start = f"{self.root}/{below}".rstrip("/")
            found = [path for path in self.files.find(start) if not path.endswith("/")]
            for path in found:
                here = self.folder / path.removeprefix(f"{self.root}/")
                here.parent.mkdir(parents=True, exist_ok=True)
                self.files.get_file(path, str(here))
            return len(found)
        count: int = self._ask("read", copy)
        self.taken = self._here()
        return count

    def take(self) -> None:
        """Copy what is new or changed, and remove what was taken and is no longer here (an old checkpoint)."""
        here = self._here()

        def copy() -> None:
            for name, stamp in here.items():
                if self.taken.get(name) != stamp:
                    self.files.put_file(str(self.folder / name), f"{self.root}/{name}")
                    self.taken[name] = stamp
            for name in self.taken.keys() - here.keys():
                self.files.rm_file(f"{self.root}/{name}")
                del self.taken[name]
        self._ask("written", copy)

    def end(self) -> None:
        """Take the rest."""
        self.ended.set()
        self.thread.join()
        self.take()

    def _follow(self) -> None:
        told = ""
        while not self.ended.wait(PERIOD_S):
            try:
                self.take()
            except BucketError as error:  # the training goes on; the end tries again, and tells by its exit status
                if str(error) != told:
                    told = str(error)
                    say("upload_failed", rank=0, reason=told)
            except FileNotFoundError:
                continue  # a checkpoint was removed while it was being looked at

    def _here(self) -> dict[str, Stamp]:
        found = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                status = path.stat()
                found[str(name)] = (status.st_size, status.st_mtime_ns)
        return found

    def _ask(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except FileNotFoundError as error:
            if error.filename and Path(str(error.filename)).is_relative_to(self.folder):
                raise
            raise BucketError(f"{self.address} cannot be {what}: no such bucket; create it, or correct the address"
                              ) from error
        except client_errors() as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise BucketError(f"{self.address} cannot be {what}: {reason}; check AWS_ENDPOINT_URL, the credentials' "
                              "Secret and its rights") from error


def client_errors() -> tuple[type[Exception], ...]:
    """What a store, and the way to it, can answer: fsspec makes an OSError of most, botocore has its own for others."""
    try:
        from botocore.exceptions import BotoCoreError
    except ImportError:
        return (OSError,)
    return (OSError, BotoCoreError)


def staged(run: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Run with folders in the place of addresses; the exit status: the run's, 2 unreadable, 1 not all written."""
    if not any(ADDRESS.search(word) for word in arguments):
        return run(arguments)
    outputs: list[Mirror] = []
    with tempfile.TemporaryDirectory(prefix="bucket-") as folder:
        try:
            words = [bring(at, arguments, Path(folder, str(at)), outputs) for at in range(len(arguments))]
        except BucketError as error:
            return refuse(error, 2)
        code = 1
        try:
            code = run(words)
        finally:
            for mirror in outputs:
                try:
                    mirror.end()
                except BucketError as error:
                    code = refuse(error, 1)
    return code


def bring(at: int, arguments: list[str], folder: Path, outputs: list[Mirror]) -> str:
    """One argument with the folder in the place of its address; what rank 0 has to take there goes to `outputs`."""
    word = arguments[at]
    found = ADDRESS.search(word)
    if not found:
        return word
    folder.mkdir()
    local = word[: found.start()] + str(folder)
    is_output = word.startswith("--output=") or arguments[at - 1] == "--output"
    if is_output and os.environ.get("RANK", "0") != "0":
        return local  # only rank 0 touches the output
    mirror = Mirror(found.group(), folder)
    if not mirror.bring("checkpoints" if is_output else "") and not is_output:
        raise BucketError(f"{mirror.address} has no files; put the data there")
    if is_output:
        mirror.thread.start()
        outputs.append(mirror)
    return local


def refuse(error: object, code: int) -> int:
    """One line on standard error, and the exit status."""
    print(f"train.py: {error}", file=sys.stderr, flush=True)
    return code
