"""Files of this machine that a claim will get: which they are, and how they are cut into pieces for ConfigMaps."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gangplank.cluster.landing import PARTS as NOTES
from gangplank.cluster.landing import File, problem
from gangplank.cluster.receive import PARTS
from gangplank.errors import GangplankError, Problem, Unreadable
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PIECE, PIECES = 2**20 - 4096, 8  # bytes of a ConfigMap, which may have 1 MiB; ConfigMaps of a pod, beside its own
MOST_BYTES, MOST_FILES = 256 * 2**20, 4000  # all of it passes through the cluster's etcd
ROWS = 450_000  # characters of a pod's rows


class Local(NamedTuple):
    """A file of this machine, and what it will be called."""

    file: File
    place: Path


def local_files(places: Sequence[Path], say: Callable[[str, int, int], None]) -> tuple[Local, ...]:
    """The files of folders, and single files, with their hashes; raises with everything that cannot be brought."""
    title = listed([str(top) for top in places])
    names = named_files(places)
    if not names:
        raise Unreadable(str(Problem(title, "no file", "at least one", "add some")))
    total = sum(at.stat().st_size for at in names.values())
    if total > MOST_BYTES or len(names) > MOST_FILES:
        got = f"{len(names)} files with {total} bytes"
        expected = f"at most {MOST_FILES} files and {MOST_BYTES} bytes of this machine, which pass through etcd"
        fix = "put them into a bucket or onto a web server, and name its address"
        raise GangplankError(str(Problem(title, got, expected, fix)))
    files: list[Local] = []
    done = 0
    for name, at in names.items():
        try:
            with at.open("rb") as opened:
                sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
                files.append(Local(File(name, opened.tell(), sha256), at))
        except OSError as error:
            expected, fix = "a file that can be read", "change its mode, or move it elsewhere"
            raise Unreadable(str(Problem(str(at), error.strerror or str(error), expected, fix))) from None
        done += files[-1].file.size
        say("reads", done, total)
    return tuple(files)


def named_files(places: Sequence[Path]) -> dict[str, Path]:
    """The files below some places, by the names that they will have."""
    names: dict[str, Path] = {}
    problems: list[Problem] = []

    def unread(error: OSError) -> None:
        fix = "change its mode, or move it elsewhere"
        problems.append(Problem(str(error.filename), error.strerror or str(error), "a folder that can be read", fix))

    for top in places:
        every, above = [top], top.parent
        if top.is_dir():
            walk, above = os.walk(top, onerror=unread), top
            every = sorted(Path(at, name) for at, folders, files in walk for name in [*folders, *files])
        for at in every:
            name = str(at.relative_to(above))
            if at.relative_to(above).parts[0] == NOTES:
                continue
            if got := unfit(at, name):
                fix = "correct the name" if got == "nothing" else "leave it out, or replace it by a file"
                problems.append(Problem(str(at), got, "a folder or a file", fix))
            elif name in names:
                fix = "bring them into two folders of the claim"
                problems.append(Problem(str(at), f"the name of {names[name]}", "one of its own", fix))
            elif at.is_file():
                names[name] = at
    if problems:
        raise Unreadable("\n  ".join(map(str, problems)))
    return names


def unfit(at: Path, name: str) -> str:
    """Why something cannot be brought, "" if it can."""
    if at.is_symlink():
        return "a link"
    if not at.exists():
        return "nothing"
    return problem(name, PARTS) if at.is_file() else "" if at.is_dir() else "neither of them"


def batches(missing: Sequence[Local], begun: Mapping[str, int]) -> Iterator[tuple[list[list[Any]], list[bytes]]]:
    """Rows of a request and their pieces, as many as one pod gets; a row says where the bytes of a file are.

    >>> from pathlib import Path
    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile() as opened:
    ...     _, _ = opened.write(b"hello"), opened.flush()
    ...     [*batches([Local(File("a", 5, "5e"), Path(opened.name))], {"a": 2})]
    [([['a', 5, '5e', 2, [['0', 0, 3]]]], [b'llo'])]
    """
    rows: list[list[Any]] = []
    pieces, current = list[bytes](), bytearray()
    characters = 0
    for file, place in missing:
        at = begun.get(file.name, 0)
        while True:
            start, parts = at, list[list[Any]]()
            while at < file.size and len(pieces) < PIECES:
                length = min(PIECE - len(current), file.size - at)
                parts.append([str(len(pieces)), len(current), length])
                current += read(place, at, length)
                at += length
                if len(current) == PIECE:
                    pieces.append(bytes(current))
                    current.clear()
            rows.append([file.name, file.size, file.sha256, start, parts])
            characters += len(json.dumps(rows[-1]))
            if len(pieces) == PIECES or characters > ROWS:
                yield rows, [*pieces, *([bytes(current)] if current else [])]
                rows, pieces, characters = [], [], 0
                current.clear()
            if at == file.size:
                break
    if rows:
        yield rows, [*pieces, *([bytes(current)] if current else [])]


def read(place: Path, start: int, length: int) -> bytes:
    """Some bytes of a file that must not change meanwhile."""
    with place.open("rb") as opened:
        opened.seek(start)
        data = opened.read(length)
    if len(data) != length:
        fix = "try again, once nothing writes to it"
        raise Unreadable(str(Problem(str(place), "a file that has become shorter", "the file as it was", fix)))
    return data
