"""Find the lab's processes by their namespaces and cgroups, and end them."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.wait import late, polls
from lab.errors import LabError
from lab.host.cgroups import SYSTEM, members
from lab.host.namespaces import NETNS, RUN, is_namespace, mntns, netns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


KINDS = ("net", "mnt")  # of namespaces that a node has


@contextlib.contextmanager
def pinned_namespaces(node: str | None) -> Iterator[set[int]]:
    """The inodes of the pinned namespaces of one node, or of all.

    They are held open meanwhile: the kernel gives the number of a removed namespace to the next one on the machine,
    and its processes would be taken for the node's.
    """
    pins = [netns(node), mntns(node)] if node else [*NETNS.glob("gangplank-*"), *(RUN / "mnt").glob("*")]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in pins if is_namespace(path)]
        yield {os.fstat(file.fileno()).st_ino for file in files}


def processes_in(namespaces: set[int]) -> Iterator[int]:
    """Yield processes whose network or mount namespace is one of these."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if {(entry / "ns" / kind).stat().st_ino for kind in KINDS} & namespaces:
                    yield int(entry.name)


def strays() -> set[int]:
    """The lab's programs in what was a node's: the run that unpinned its network and its mounts was interrupted.

    A program of the container runtime may be in a pod's network, or have mounts of its own, but never both.
    """
    own = {Path(f"/proc/self/ns/{kind}").stat().st_ino for kind in KINDS}  # supervisord's
    with pinned_namespaces(None) as pinned:
        return members(SYSTEM) - {*processes_in(own | pinned)}


def kill(find: Callable[[], set[int]], deadline_s: float = 60.0) -> None:
    """Kill the processes that `find` returns until it returns none, but never this process and its parent."""
    alive: set[int] = set()
    for _ in polls(deadline_s, 0.05):
        alive = find() - {os.getpid(), os.getppid()}
        if not alive:
            return
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    names = ", ".join(str(pid) for pid in sorted(alive)[:8])
    fix = "look at them with `ps`, then run it again"
    raise LabError(late(f"processes {names}", "them alive", "their end", deadline_s, fix))


def kill_members(cgroup: str) -> None:
    """Kill every process in the cgroup gangplank/<cgroup>."""
    kill(lambda: members(cgroup))


def kill_all() -> None:
    """Kill every process of the lab."""
    with pinned_namespaces(None) as namespaces:
        kill(lambda: set(processes_in(namespaces)) | members())
