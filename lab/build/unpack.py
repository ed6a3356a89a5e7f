"""Extract a tar archive into a new folder, and nothing outside of it.

The filters of tarfile's own extractall() came with Python 3.11.4; Debian 12 has 3.11.2.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from lab.errors import PartError

if TYPE_CHECKING:
    import tarfile


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write files, folders and links into a folder without links; refuses all else before it writes a file.

    Folders and programs get mode 755, other files 644. Links come last, so that nothing is written through one.
    """
    members = [(member, folder.joinpath(*inside(member.name))) for member in archive]
    for member, _ in members:
        if not (member.isreg() or member.isdir() or member.issym()):
            raise refused(member.name, "a device, a pipe or a hard link")
        if member.issym() and PurePosixPath(member.linkname).is_absolute():
            raise refused(member.name, f"a link to {member.linkname}")
    folder.mkdir(parents=True, exist_ok=True)
    for member, path in members:
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif content := archive.extractfile(member) if member.isreg() else None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file)
            path.chmod(0o755 if member.mode & 0o100 else 0o644)
            os.utime(path, (member.mtime, member.mtime))
    link({path: member.linkname for member, path in members if member.issym()}, folder)


def link(targets: dict[Path, str], folder: Path) -> None:
    """Make links, or none if one of them does not lead to something in the folder."""
    links: list[Path] = []
    try:
        for path, target in targets.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                raise refused(str(path.relative_to(folder)), "a link with the name of another member")
            path.symlink_to(target)
            links.append(path)
        for path in links:  # once all are there, since a link may lead through another
            if not ends_inside(path, folder):
                raise refused(str(path.relative_to(folder)), f"a link to {targets[path]}")
    except PartError:
        for path in links:
            path.unlink()
        raise


def inside(name: str) -> tuple[str, ...]:
    """The parts of a member's name; refuses one that leaves the folder.

    >>> inside("./blobs/sha256/0a")
    ('blobs', 'sha256', '0a')
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise refused(name, "a path that leaves it")
    return path.parts


def ends_inside(path: Path, folder: Path) -> bool:
    """Whether a link leads to something in the folder."""
    try:
        return path.resolve(strict=True).is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # it leads to nothing, or in a circle
        return False


def refused(name: str, what: str) -> PartError:
    """The error of a member that is not extracted."""
    expected = "files, folders, and links to them, inside the archive"
    return PartError(
        f"got {what}, expected {expected}", f"{name} of the archive", "use another archive: this is not safe"
    )
