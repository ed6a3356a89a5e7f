"""The cgroups of the lab: gangplank/<node> in every hierarchy."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gangplank.wait import late, polls
from lab.errors import LabError

CGROUPS = Path("/sys/fs/cgroup")
SLICE = "gangplank"
SYSTEM = "system"  # of supervisord and of its programs: gangplank/system
LENT = "user.gangplank.lent"  # an attribute of v2's gangplank: the controllers that were off before
CGROUP_S = 30  # how long a cgroup may stay busy after its processes ended


def controllers() -> list[Path]:
    """The cgroup hierarchies to use: one per v1 controller, or the single one of v2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return sorted(path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists() and path.name != "unified")


def _words(path: Path) -> set[str]:
    return set(path.read_text().split()) if path.exists() else set()


def _pass_down(parent: Path, folder: Path) -> bool:
    """Enable every controller of v2 for the cgroups in `parent`; return whether one was off.

    The kubelet refuses a cgroup without one of its controllers (cpu, cpuset, hugetlb, memory, pids) that the machine
    has, and runc enables all. `folder`, the child that needs them, keeps what was off, for `remove_cgroup`.
    """
    switch = parent / "cgroup.subtree_control"
    off = _words(parent / "cgroup.controllers") - _words(switch)
    if off:
        os.setxattr(folder, LENT, " ".join(sorted(off | _lent(folder))).encode())
        words = " ".join(f"+{controller}" for controller in sorted(off))
        try:
            switch.write_text(words)  # at once: the kernel takes all or none
        except OSError as error:
            fix = f"move the processes in {parent}/cgroup.procs to a cgroup of their own, then run it again"
            raise LabError(f"{switch}: got {error.strerror} for {words}, expected them enabled. Fix: {fix}") from error
    return bool(off)


def _lent(folder: Path) -> set[str]:
    """The controllers that were off before this cgroup was made."""
    with contextlib.suppress(OSError):
        return set(os.getxattr(folder, LENT).decode().split())
    return set()


def ensure_cgroup(name: str) -> bool:
    """Create <controller>/gangplank/<name> in every hierarchy; return whether anything was missing."""
    changed = False
    for base in controllers():
        for parent, folder in ((base, base / SLICE), (base / SLICE, base / SLICE / name)):
            if not folder.exists():
                folder.mkdir()
                changed = True
            changed |= _pass_down(parent, folder)
            for setting in ("cpuset.cpus", "cpuset.mems"):  # v1 leaves a new cpuset empty, and no process may join it
                own = folder / setting
                if (base / "cgroup.controllers").exists() or not own.exists():
                    continue
                if not own.read_text().strip():
                    own.write_text((parent / setting).read_text())
                    changed = True
    return changed


def join_cgroup(name: str) -> None:
    """Move this process into gangplank/<name> of every hierarchy; its children follow."""
    for base in controllers():
        (base / SLICE / name / "cgroup.procs").write_text("0")


def _hierarchies() -> list[Path]:
    """Every hierarchy that may contain our cgroups: runc also uses v2's, if it is mounted next to v1's controllers."""
    unified = CGROUPS / "unified"
    return [*controllers(), *([unified] if unified.is_dir() else [])]


def _whole(top: Path) -> list[Path]:
    """A cgroup with all below it, leaves first. A runtime removes its own meanwhile: os.walk passes over those."""
    return [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]


def members(name: str = "") -> set[int]:
    """The ids of the processes in gangplank/<name>, or in all of gangplank, and below."""
    pids: set[int] = set()
    for base in _hierarchies():
        for folder in _whole(base / SLICE / name):
            with contextlib.suppress(OSError):
                pids.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split())
    return pids


def remove_cgroup(name: str = "") -> None:
    """Remove gangplank/<name> (all of gangplank without a name) from every hierarchy, leaves first."""
    for base in _hierarchies():
        top = base / SLICE / name if name else base / SLICE
        lent = set() if name else _lent(top)  # the other nodes keep theirs
        for folder in _whole(top):
            busy = ""
            for _ in polls(CGROUP_S, 0.02):
                if not folder.exists():
                    break
                try:
                    folder.rmdir()
                    break
                except OSError as error:  # a killed process stays in its cgroup for a moment
                    busy = error.strerror or str(error)
            else:
                fix = "end the processes in its cgroup.procs, then run it again"
                raise LabError(late(f"cgroup {folder}", busy, "it removed", CGROUP_S, fix))
        for controller in sorted(lent):
            with contextlib.suppress(OSError):  # another cgroup uses it by now
                (top.parent / "cgroup.subtree_control").write_text(f"-{controller}")
