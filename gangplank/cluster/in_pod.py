"""What the pod that reads a job's output runs: it prints which files there are, or some of their bytes, to its log.

    python3 -c SOURCE list PLACE PATH              each file with its size and its SHA-256
    python3 -c SOURCE send PLACE '[["a", 0, 9]]'   bytes of files, as (name, first byte, number)

Its text is sent along (fetch.py), so it uses the standard library alone, of any Python 3.8. PLACE is a folder, or the
address of a bucket, for which the image has fsspec. Each line is JSON in ASCII; the last one has the key `end`, and a
log without it is incomplete. It follows no link, and what it cannot send it says.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

LINE = 48 * 1024  # bytes a line; 64 KiB as base64
MOST = 6 * 2**20  # characters of a list: the kubelet begins another file at 10 MiB, and shows the last one alone


class RefusedError(Exception):
    """What cannot be read: what was found there, and what was expected."""


class Folder:
    """A folder of a volume."""

    def __init__(self, place: str) -> None:
        self.root = Path(place).resolve()
        if not self.root.is_dir():
            raise RefusedError("no folder " + place, "one that the job has written")

    def names(self, path: str) -> Iterator[tuple[str, str]]:
        """The regular files below a path, and what is something else, with the reason."""
        start = (self.root / path).resolve()
        if not self.has(start):
            raise RefusedError(path + ", which leads out of the output", "a path in it")
        if not start.exists():
            raise RefusedError("no " + path, "a file or a folder of the output")
        if not start.is_dir():
            yield str(start.relative_to(self.root)), ""
            return
        failures: list[OSError] = []
        for name, folders, files in os.walk(start, onerror=failures.append):
            folders.sort()
            folder = Path(name)
            places = [folder / name for name in files] + [folder / name for name in folders]
            for place in sorted(places):
                if not place.is_dir() or place.is_symlink():
                    try:
                        why = self.unfit(place)
                    except FileNotFoundError:
                        why = "removed meanwhile"
                    yield str(place.relative_to(self.root)), why
        for error in failures:
            yield str(Path(error.filename).relative_to(self.root)), "unreadable"

    def has(self, place: Path) -> bool:
        """Whether a place, all links in it resolved, is in the folder."""
        return self.root in (place, *place.parents)

    def unfit(self, place: Path) -> str:
        """Why something is not sent, "" if it is."""
        if place.is_symlink():
            try:
                return "link inside" if self.has(place.resolve(strict=True)) else "link out of it"
            except (OSError, RuntimeError):
                return "link to nothing"
        return "" if stat.S_ISREG(place.lstat().st_mode) else "not a file"

    def open(self, name: str) -> IO[bytes]:
        """A file, opened without following a link in any part of its name."""
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            *parents, base = name.split("/")
            for part in parents:
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = below
            return os.fdopen(os.open(base, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb")
        finally:
            os.close(folder)


class Bucket:
    """What is below an address of a bucket."""

    def __init__(self, place: str) -> None:
        import fsspec  # type: ignore[import-not-found]  # of the image

        self.files, self.root = fsspec.core.url_to_fs(place.rstrip("/"))

    def names(self, path: str) -> Iterator[tuple[str, str]]:
        """The objects below a path."""
        start = (self.root + "/" + path).rstrip("/")
        try:
            names = [name for name in self.files.find(start) if not name.endswith("/")]
        except FileNotFoundError:  # some stores' clients say no more than that
            raise RefusedError("no such bucket", "the bucket of " + self.root) from None
        if not names:
            raise RefusedError("no object below " + start, "what the job has written")
        for name in names:
            yield name[len(self.root) + 1 :], ""

    def open(self, name: str) -> Any:
        """An object."""
        return self.files.open(self.root + "/" + name, "rb")


def listing(source: Folder | Bucket, path: str) -> None:
    """Each file with its size and hash; what is not sent, with the reason."""
    size = count = 0
    for name, unfit in source.names(path):
        try:
            line = {"left": name, "why": unfit} if unfit else described(source, name)
        except OSError as error:
            line = {"left": name, "why": error.strerror or type(error).__name__}
        count += "file" in line
        size += len(say(line))
        if size > MOST:
            raise RefusedError("more than " + str(count) + " files", "fewer at a time, so name a folder of them")
    say({"end": count})


def described(source: Folder | Bucket, name: str) -> dict[str, Any]:
    """A file, its size, its hash."""
    digest, size = hashlib.sha256(), 0
    with source.open(name) as file:
        for part in iter(lambda: file.read(2**20), b""):
            digest.update(part)
            size += len(part)
    return {"file": name, "size": size, "sha256": digest.hexdigest()}


def opened(source: Folder | Bucket, name: str) -> Any:
    """A file; an empty one if it is gone, as a checkpoint that its job has removed."""
    try:
        return source.open(name)
    except FileNotFoundError:
        return io.BytesIO()


def send(source: Folder | Bucket, pieces: list[tuple[str, int, int]]) -> None:
    """The bytes of the pieces, one after the other, and the hash of them all.

    A file that is gone by now, or shorter, is sent with zeros: its own hash, from the list, says that it changed.
    """
    digest = hashlib.sha256()
    for name, start, length in pieces:
        with opened(source, name) as file:
            file.seek(start)
            missing = length
            while missing > 0:
                part = file.read(min(LINE, missing)) or bytes(min(LINE, missing))
                say({"data": base64.b64encode(part).decode()})
                digest.update(part)
                missing -= len(part)
    say({"end": digest.hexdigest()})


def say(line: dict[str, Any]) -> str:
    """Print a line, at once."""
    text = json.dumps(line)
    print(text, flush=True)
    return text


def main(what: str, place: str, argument: str) -> int:
    """Do what the command line says; the exit status."""
    try:
        source: Folder | Bucket = Bucket(place) if "://" in place else Folder(place)
        if what == "list":
            listing(source, argument)
        else:
            send(source, json.loads(argument))
    except RefusedError as problem:
        say({"got": problem.args[0], "expected": problem.args[1]})
        return 1
    except Exception as error:  # noqa: BLE001  # each store's client has errors of its own
        reason = type(error).__name__ + ": " + str(error)
        say({"got": reason.splitlines()[0][:300], "expected": place + " to be readable"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
