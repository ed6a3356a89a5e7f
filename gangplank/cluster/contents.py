"""What a claim has, and what of it is removed: the pod of `gangplank data ls` and `rm` runs this (receive.py).

No link is followed, so that nothing outside the claim is listed or removed.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from gangplank.errors import GangplankError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]
MOST_NAMES = 20_000  # in a log, which the kubelet shows whole up to 10 MiB


def contents(mount: Path, name: str, title: str) -> Json:
    """The files below a folder of the claim, or the one file, with their sizes, by name; links have none."""
    place = inside(mount, name, title)
    rows = sorted(files(place, "" if place.is_dir() else place.name))
    total = sum(size or 0 for _, size in rows)
    return {"rows": rows[:MOST_NAMES], "files": len(rows), "bytes": total}


def remove(mount: Path, name: str, title: str) -> Json:
    """Remove a file or a folder of the claim; how much that was."""
    place = inside(mount, name, title)
    rows = list(files(place, place.name))
    try:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()
    except PermissionError as error:
        fix = "remove it from a pod that runs as its owner"
        problem = Problem(title, f"{error.filename} of another user", "what user 1000 may remove", fix)
        raise GangplankError(str(problem)) from None
    return {"files": len(rows), "bytes": sum(size or 0 for _, size in rows)}


def inside(mount: Path, name: str, title: str) -> Path:
    """A place on the claim; raises if there is nothing, or if a link leads to it."""
    place = mount
    for part in name.split("/") if name else []:
        if place.is_symlink():
            fix = "name what it points to"
            raise GangplankError(str(Problem(title, f"the link {place.relative_to(mount)}", "a folder", fix)))
        place /= part
    if not os.path.lexists(place):
        raise GangplankError(str(Problem(title, "nothing", "a file or a folder", "see gangplank data ls CLAIM")))
    return place


def files(place: Path, name: str) -> Iterator[tuple[str, int | None]]:
    """Each file below a place, named from there, and its size; None for what is neither, or cannot be read."""
    if place.is_symlink() or not place.is_dir():
        yield name, place.lstat().st_size if place.is_file() and not place.is_symlink() else None
        return
    try:
        entries = sorted(place.iterdir())
    except PermissionError:  # lost+found, or a folder of another user
        yield f"{name}/", None
        return
    for entry in entries:
        yield from files(entry, f"{name}/{entry.name}" if name else entry.name)
