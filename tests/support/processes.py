"""What a process has started."""

from __future__ import annotations

import contextlib
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """The processes below one, the nearest first."""
    pids = [pid]
    for member in pids:
        for listing in Path(f"/proc/{member}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread may end while it is looked at
                pids += map(int, listing.read_text().split())
    return pids[1:]
