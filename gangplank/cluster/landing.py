"""The folder that files are written to: each whole and checked, none outside the folder.

What is under way lies in PARTS under its hash, so that a later run continues it. RECORD, beside it, has what was
brought, and of which job: a later run of that job may replace it, and nothing else. No part of a name is followed if it
is a link: what is below a link may be anywhere. The pod that writes to a claim runs this module too (receive.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from gangplank.errors import FULL, GangplankError, Problem, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

PARTS = ".gangplank-fetch"
RECORD = "brought"  # in PARTS: a line of JSON for each file
DRAFT = f"{RECORD}.new"
RECORDED = 2  # lines of a file that count: the last may be of one that did not get its name
LINKS = {errno.ELOOP, errno.EMLINK}  # what systems say of a link under O_NOFOLLOW
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
LONGEST = 255  # bytes of a part of a name
KEPT_S = 24 * 3600  # a part that nobody continues


@dataclass(frozen=True)
class File:
    """A file of the output: its name below it, its size in bytes, its SHA-256."""

    name: str
    size: int
    sha256: str
    origin: str = ""  # where it comes from, in which version, if its hash is known only once it is here

    @property
    def part(self) -> str:
        """Its name in PARTS: which file it is, and in which version."""
        return f"{short(self.name)}-{short(self.origin or self.sha256)}"


def short(text: str) -> str:
    """What identifies a text in a name."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def problem(name: str, reserved: str = PARTS) -> str:
    """What is wrong with a file's name, "" if it is one below a folder.

    >>> problem("checkpoints/a.json"), problem("../a"), problem("/a")
    ('', 'a name that leads out of the folder', 'a name that leads out of the folder')
    """
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        return "a name that leads out of the folder"
    if parts[0] == reserved:
        return f"a name in {reserved}, which is for files under way"
    try:
        encoded = [os.fsencode(part) for part in parts]
    except UnicodeEncodeError:
        return "a name that this machine cannot write"
    if "\0" in name or any(len(part) > LONGEST for part in encoded):
        return "a name that this machine cannot write"
    return ""


def is_named(name: str, names: Iterable[str]) -> bool:
    """Whether a file, or a folder that it is in, is among some names.

    >>> is_named("a/b", ["./a/"]), is_named("ab", ["a"])
    (True, False)
    """
    plain = [one.removeprefix("./").rstrip("/") for one in names]
    return any(name == one or name.startswith(f"{one}/") for one in plain)


class Landing:
    """The folder, for as long as one command writes to it."""

    command, reserved = "gangplank fetch", PARTS
    busy = "wait for it, or name another folder with -o"
    unfit = "remove what has this name, or name another folder with -o"
    full = "free some space on its disk and fetch again, which continues, or name another folder with -o"

    def __init__(self, folder: Path, owner: str = "") -> None:
        self.folder, self.owner = folder, owner
        self.top = self.parts = -1

    def title(self, name: str) -> str:
        """What a message calls the folder, or a place in it."""
        return str(self.folder / name)

    def __enter__(self) -> Self:
        """Open the folder, made if there is none, for this command alone."""
        with self.errors(""):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.top = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        while True:
            with self.errors(""):
                self.parts = self.below(self.top, self.reserved)
            try:
                fcntl.flock(self.parts, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.close()
                got = f"another `{self.command}` that writes to it"
                refusal = Problem(self.title(""), got, "one at a time", self.busy)
                raise GangplankError(str(refusal)) from None
            if self._is_there():
                return self
            os.close(self.parts)

    def _is_there(self) -> bool:
        """Whether PARTS is still the folder that is locked: another command that ends removes it."""
        try:
            named = os.stat(self.reserved, dir_fd=self.top, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self.parts))

    def __exit__(self, *_: object) -> None:
        """Leave what can be continued, and the record; PARTS goes if there is nothing in it."""
        with contextlib.suppress(OSError):
            os.rmdir(self.reserved, dir_fd=self.top)
        self.close()

    def close(self) -> None:
        """Close the folders."""
        for folder in (self.parts, self.top):
            os.close(folder)

    @contextlib.contextmanager
    def errors(self, name: str) -> Iterator[None]:
        """Turn what the file system says into a message with the file and the fix."""
        try:
            yield
        except OSError as error:
            got, fix = error.strerror or str(error), self.full if error.errno in FULL else self.unfit
            raise Unreadable(str(Problem(self.title(name), got, "a place that can be written", fix))) from None

    def below(self, folder: int, name: str) -> int:
        """A folder in a folder, made if there is none."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        return os.open(name, OPEN_FOLDER, dir_fd=folder)

    @contextlib.contextmanager
    def place(self, name: str) -> Iterator[tuple[int, str]]:
        """The open folder that a file belongs in, and the last part of its name."""
        *parents, base = name.split("/")
        folder = os.dup(self.top)
        try:
            for part in parents:
                inner = self.below(folder, part)
                os.close(folder)
                folder = inner
            yield folder, base
        finally:
            os.close(folder)

    def has(self, file: File) -> bool:
        """Whether the folder has a file, byte by byte."""
        with self.errors(file.name), self.place(file.name) as (folder, base):
            return self._is(folder, base, file)

    def size(self, name: str) -> int | None:
        """The size of what has a name; -1 if it is not a file, None if nothing has it. It creates nothing."""
        *parents, base = name.split("/")
        folder = os.dup(self.top)
        try:
            for part in parents:
                inner = os.open(part, OPEN_FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            status = os.stat(base, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError:
            return -1
        finally:
            os.close(folder)
        return status.st_size if stat.S_ISREG(status.st_mode) else -1

    def stamp(self, name: str) -> tuple[int, ...]:
        """What differs once a name is of something else, or of other content; () if nothing has it."""
        try:
            status = os.stat(name, dir_fd=self.top, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return ()
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def fetched(self, file: File) -> int:
        """How many bytes of a file an earlier run has fetched; never more than it has."""
        try:
            return min(os.stat(file.part, dir_fd=self.parts, follow_symlinks=False).st_size, file.size)
        except FileNotFoundError:
            return 0

    def write(self, file: File, start: int, data: bytes) -> None:
        """Write some bytes of a file."""
        with self.errors(file.name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
            with os.fdopen(os.open(file.part, flags, 0o666, dir_fd=self.parts), "wb") as part:
                part.truncate(start)
                part.seek(start)
                part.write(data)

    def digest(self, file: File) -> hashlib._Hash:
        """The hash so far of the bytes that an earlier run has brought."""
        try:
            with os.fdopen(os.open(file.part, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self.parts), "rb") as part:
                return hashlib.file_digest(part, "sha256")
        except FileNotFoundError:
            return hashlib.sha256()

    def finish(self, file: File) -> bool:
        """Put a whole file in its place; false, and none of it left, if its bytes are not those that were listed."""
        with self.errors(file.name):
            if not self._is(self.parts, file.part, file):
                os.unlink(file.part, dir_fd=self.parts)
                return False
            with self.place(file.name) as (folder, base):  # not synced: the next run compares its hash again
                os.replace(file.part, base, src_dir_fd=self.parts, dst_dir_fd=folder)
        return True

    def remember(self, file: File) -> None:
        """Note that a file is brought, before it gets its name; each line begins with its end, for one that was cut."""
        with self.errors(file.name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with os.fdopen(os.open(RECORD, flags, 0o666, dir_fd=self.parts), "a", encoding="utf-8") as record:
                record.write("\n" + json.dumps([self.owner, file.name, file.size, file.sha256]))

    def settle(self, files: Iterable[File]) -> None:
        """Note these files, all here now, and keep one line for each other name; without space, at a later run."""
        rows = {name: (owner, name, *last) for (owner, name), (*_, last) in self._record().items()}
        rows |= {file.name: (self.owner, file.name, file.size, file.sha256) for file in files}
        if not rows:
            return
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(DRAFT, flags, 0o666, dir_fd=self.parts), "w", encoding="utf-8") as record:
                record.writelines(f"{json.dumps(row)}\n" for row in rows.values())
                record.flush()
                os.fsync(record.fileno())
            os.replace(DRAFT, RECORD, src_dir_fd=self.parts, dst_dir_fd=self.parts)

    def others(self, names: Sequence[str]) -> list[str]:
        """Of some names, those of something that was not brought for this owner, or that was changed since."""
        brought = self._record() if names else {}
        return [name for name in names
                if self.stamp(name) and not self._is_one_of(name, brought.get((self.owner, name), ()))]

    def _is_one_of(self, name: str, brought: Sequence[tuple[int, str]]) -> bool:
        with self.errors(name), self.place(name) as (folder, base):
            return bool(brought) and self._hash(folder, base, {size for size, _ in brought}) in brought

    def _record(self) -> dict[tuple[str, str], list[tuple[int, str]]]:
        """By owner and name, the last versions that were noted."""
        rows: dict[tuple[str, str], list[tuple[int, str]]] = {}
        with self.errors(f"{self.reserved}/{RECORD}"):
            try:
                opened = os.fdopen(os.open(RECORD, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self.parts), "rb")
            except FileNotFoundError:
                return {}
            with opened:
                for line in opened:
                    with contextlib.suppress(ValueError, TypeError):  # a line that was cut
                        owner, name, size, sha256 = json.loads(line)
                        before = rows.get((str(owner), str(name)), [])
                        rows[str(owner), str(name)] = [*before, (int(size), str(sha256))][-RECORDED:]
        return rows

    def forget(self, names: Iterable[str]) -> None:
        """Remove what has arrived of other versions of files that are here by now."""
        here = set(map(short, names))
        self._remove(lambda part, _: part in here)

    def forget_old(self, asked: Iterable[str] = ()) -> None:
        """Remove what nobody has continued for a day, but of the files that are asked for."""
        kept = set(map(short, asked))
        self._remove(lambda part, age_s: part not in kept and age_s > KEPT_S)

    def _remove(self, unwanted: Callable[[str, float], bool]) -> None:
        for name in {*os.listdir(self.parts)} - {RECORD}:  # noqa: PTH208  # an open folder has no path
            with contextlib.suppress(OSError):
                age_s = time.time() - os.stat(name, dir_fd=self.parts, follow_symlinks=False).st_mtime
                if unwanted(name.partition("-")[0], age_s):
                    os.unlink(name, dir_fd=self.parts)

    def free(self) -> int:
        """Bytes that can still be written."""
        space = os.fstatvfs(self.top)
        return space.f_bavail * space.f_frsize

    def _is(self, folder: int, name: str, file: File) -> bool:
        return self._hash(folder, name, {file.size}) == (file.size, file.sha256)

    def _hash(self, folder: int, name: str, sizes: Collection[int]) -> tuple[int, str] | None:
        """The size and hash of a file that has one of some sizes; None for one of another, or for no file."""
        try:
            opened = os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb")
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in LINKS:
                return None  # replaced, not followed
            raise
        with opened:
            status = os.fstat(opened.fileno())
            if status.st_size not in sizes or not stat.S_ISREG(status.st_mode):
                return None
            os.fsync(opened.fileno())  # a name must not outlive, in a crash, the bytes that it was given for
            return status.st_size, hashlib.file_digest(opened, "sha256").hexdigest()
