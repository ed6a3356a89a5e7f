"""Renames that survive a power cut: what is renamed is on the disk before, and its new name right after.

Without it a file system may keep the name and lose the content: a folder of empty files that looks finished.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GONE = "gone"  # the end of the name of a folder that is being removed


def sync(path: Path) -> None:
    """Write a file's content, or the names in a folder, to the disk; nothing where the file system has no such call."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # as shared folders of virtual machines answer for a folder
            raise
    finally:
        os.close(descriptor)


def sync_system(path: Path) -> None:
    """Write the whole file system of `path` to the disk: for 20,000 files one call instead of one each."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(path))
    finally:
        os.close(descriptor)


def rename(draft: Path, target: Path) -> None:
    """Rename a finished file or folder, so that `target` is whole or absent whenever the power fails."""
    if draft.is_dir():
        sync_system(draft)
    else:
        sync(draft)
    move(draft, target)


def move(source: Path, target: Path) -> None:
    """Rename what nobody will read as finished: the name is on the disk afterwards, the content perhaps not."""
    source.replace(target)
    sync(target.parent)


def discard(folder: Path) -> bool:
    """Remove a finished folder, first its name: an interruption leaves no half of it. Return whether it existed."""
    unnamed = folder.with_name(f".{folder.name}.{GONE}")
    shutil.rmtree(unnamed, ignore_errors=True)  # of an interrupted run
    if not folder.exists():
        return False
    move(folder, unnamed)
    shutil.rmtree(unnamed)
    return True
