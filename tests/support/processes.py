"""What a process has started."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """The processes below one, the nearest first."""
    pids = [pid]
    for member in pids:
        for listing in Path(f"/proc/{member}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread may end while it is looked at
                pids += map(int, listing.read_text().split())
    return pids[1:]


def kill_with_descendants(pid: int) -> None:
    """End a process and all below it, which may have ended by themselves: also those with a session of their own."""
    for member in (pid, *descendants(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
