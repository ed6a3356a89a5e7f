"""The namespaces of a node, identified by name: network namespaces under NETNS, mount namespaces under RUN/mnt."""

from __future__ import annotations

import ctypes
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

RUN = Path("/run/gangplank")
NETNS = Path("/run/netns")
NSFS_MAGIC = 0x6E736673


def run(command: list[str], stdin: str = "") -> str:
    """Run a short command; raise LabError with its output."""
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        fix = "install Debian's iproute2, util-linux and mount"
        raise LabError(f"{command[0]}: got no such program, expected it on PATH. Fix: {fix}") from error
    if done.returncode:
        output = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}, it printed nothing"
        raise LabError(f"{' '.join(command)}: {output}")
    return done.stdout


def is_namespace(path: Path) -> bool:
    """Whether a namespace is pinned at `path`; a leftover file is not one."""

    class Statfs(ctypes.Structure):
        _fields_ = (("f_type", ctypes.c_long), ("rest", ctypes.c_byte * 240))

    system = Statfs()
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.statfs(os.fsencode(path), ctypes.byref(system)) == 0 and system.f_type == NSFS_MAGIC)


def ensure_netns(name: str) -> bool:
    """Create the network namespace `name`; return whether it was missing."""
    pin = NETNS / name
    if is_namespace(pin):
        return False
    pin.unlink(missing_ok=True)  # where /run is on the disk, a reboot leaves a plain file
    run(["ip", "netns", "add", name])
    return True


def netns(node: str) -> Path:
    """Where the node's network namespace is pinned."""
    return NETNS / f"gangplank-{node}"


def mntns(node: str) -> Path:
    """Where the node's mount namespace is pinned."""
    return RUN / "mnt" / node


def enter(node: str) -> list[str]:
    """The command prefix that runs a command inside the node; it uses exec, so the process id stays."""
    return ["nsenter", f"--net={netns(node)}", f"--mount={mntns(node)}", "--wdns=/", "--"]


def in_network(node: str, call: Callable[[], T]) -> T:
    """The result of a call in the node's network: a thread enters it, and ends with the call."""

    def inside() -> T:
        with netns(node).open("rb") as pin:
            if ctypes.CDLL(None, use_errno=True).setns(pin.fileno(), 0):
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), str(netns(node)))
        return call()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(inside).result()
