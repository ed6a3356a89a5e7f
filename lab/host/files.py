"""The files of a host, written next to their place and renamed: an interrupted run leaves the old or the new file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.disk import rename

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class HostFile:
    """A file with its mode and its content, or the file that it is a copy of."""

    path: Path
    mode: int
    content: str | None = None
    copy: Path | None = None


@dataclass(frozen=True)
class Change:
    """The content of a file before and after; `secret` if others may not read it."""

    path: Path
    before: str
    after: str
    secret: bool


def draft_of(path: Path) -> Path:
    """Where `write` has what it writes; an interrupted run leaves it there."""
    return path.with_name(f".{path.name}.gangplank")


def write(path: Path, data: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Write `data` to `path` with exactly `mode`, and `owner` (user, group) if any; its folder must exist."""
    draft = draft_of(path)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as stream:
            if owner:
                os.fchown(stream.fileno(), *owner)
            os.fchmod(stream.fileno(), mode)
            stream.write(data)
        rename(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        error.filename = str(path)  # a full disk has none, and nobody knows the draft
        raise


def ensure(files: Iterable[HostFile], *, dry: bool) -> list[Change]:
    """Write every file whose content or mode differs, and its folder; return what changed. Raises OSError."""
    changes = []
    for file in files:
        path, mode = file.path, file.mode
        if file.copy:
            if dry and not file.copy.exists():
                continue  # an earlier task of this run would have made it
            data = file.copy.read_bytes()
        else:
            data = (file.content or "").encode()
        old = path.read_bytes() if path.exists() else None
        if old == data and path.stat().st_mode & 0o7777 == mode:
            continue
        before = (old or b"").decode(errors="replace")
        changes.append(Change(path, before, data.decode(errors="replace"), secret=not mode & 0o004))
        if not dry:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, data, mode)
    return changes
