"""Which process holds something: what identifies it, and whether it lives, or a fork of it, and how that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PR_SET_PDEATHSIG = 1
PROGRAM = ("boot", "command", "arguments")  # a fork has these of its parent


def process(pid: int) -> dict[str, Any]:
    """What identifies a living process, and its command; empty if it has ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if fields[0] not in "ZX":
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            own = {"pid": pid, "started": int(fields[19]), "boot": boot(), "command": command[:300]}
            return own | {"arguments": int(fields[45])}  # arg_start of proc_pid_stat(5)
    return {}


def boot() -> str:
    """What identifies this start of this machine; OSError if it has no /proc."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def living(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a living process, or what it is of a living fork; empty if there is none.

    A fork continues when its parent alone is killed: ansible-playbook runs each task in one.
    """
    alive = process(record["pid"])
    if alive and all(alive[key] == record.get(key) for key in ("started", "boot")):
        return dict(record)
    return next((record | fork for fork in _forks(record)), {})


def _forks(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The living forks of a recorded process.

    The kernel draws where a program's arguments are each time that it starts one, and a fork has them in that place.
    """
    drawn = Path("/proc/sys/kernel/randomize_va_space").read_text().strip() != "0"
    place = record.get("arguments") if drawn else 0  # 0 too if another user's process hides it
    for entry in Path("/proc").glob("[0-9]*") if place else ():
        other = process(int(entry.name))
        if other and all(other[key] == record[key] for key in PROGRAM if key in record):
            yield other


def origin() -> int:
    """The process of which this one is a fork, as tasks are of ansible-playbook; itself if that has ended."""
    own, parent = process(os.getpid()), process(os.getppid())
    return os.getppid() if own and parent and all(own[key] == parent[key] for key in PROGRAM) else os.getpid()


def end_with_parent(yes: bool) -> None:
    """Let a fork that reports to its parent end with it, on Linux; any other process stays as it is.

    The fork has both ends of the pipe between them. Without its parent it would wait without end to write a result
    that is longer than the pipe holds, and count as a living run meanwhile. See prctl(2).
    """
    import ctypes  # a worker has loaded both, and others need neither
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL if yes else 0, 0, 0, 0)
    if yes and os.getppid() != parent.pid:
        os._exit(1)


def is_hidden(pid: int) -> bool:
    """Whether a process exists that another user may not see: proc(5), hidepid."""
    try:
        Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True
        except OSError:
            return False
    return False
