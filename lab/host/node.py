"""A lab node on this machine: a network namespace and a mount namespace, its cgroup, and their removal.

The switch is a namespace of its own with a bridge; every node and the host hang on it by one veth pair each. A node has
no default route, so nothing in it can reach outside this machine. Everything is found again by name, never by state
kept elsewhere: namespaces under /run/netns and RUN/mnt, cgroups under <controller>/gangplank.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.wait import late, polls
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUN = Path("/run/gangplank")
NETNS = Path("/run/netns")
CGROUPS = Path("/sys/fs/cgroup")
SLICE = "gangplank"
SWITCH = "gangplank-switch"
HOST_LINK = "gangplank0"
NSFS_MAGIC = 0x6E736673
CGROUP_S = 5  # the longest that a cgroup may stay busy once its processes are gone


@dataclass(frozen=True)
class Bind:
    """A folder of the host's at `target` in the node, read-only unless `writable`."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Network:
    """A node's address and the host's, both CIDR, and its routes {CIDR: "via ADDRESS"}."""

    address: str
    host_address: str
    routes: dict[str, str]


def run(command: list[str], stdin: str = "") -> str:
    """Run a short command; raise LabError with what it said."""
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is missing; it comes with Debian's iproute2, util-linux or mount") from error
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _is_namespace(path: Path) -> bool:
    """Say whether a namespace is pinned at `path` (a left-over file is not one)."""

    class Statfs(ctypes.Structure):
        _fields_ = (("f_type", ctypes.c_long), ("rest", ctypes.c_byte * 240))

    found = Statfs()
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.statfs(os.fsencode(path), ctypes.byref(found)) == 0 and found.f_type == NSFS_MAGIC)


def _mounts(path: Path) -> list[str]:
    """Return the mount points at and below `path`, in the order they were made."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if point == str(path) or point.startswith(f"{path}/")]


def _unmount(path: Path) -> None:
    """Unmount `path` with all below it, however often it was mounted over."""
    while str(path) in _mounts(path):
        run(["umount", "--lazy", str(path)])


def netns(node: str) -> Path:
    """Return where the node's network namespace is pinned."""
    return NETNS / f"gangplank-{node}"


def mntns(node: str) -> Path:
    """Return where the node's mount namespace is pinned."""
    return RUN / "mnt" / node


def enter(node: str) -> list[str]:
    """Return the command prefix that runs something inside the node; it execs, so the process id stays."""
    return ["nsenter", f"--net={netns(node)}", f"--mount={mntns(node)}", "--wdns=/", "--"]


def _batch(namespace: str | None, lines: list[str]) -> None:
    if lines:
        run(["ip", *(["-n", namespace] if namespace else []), "-batch", "-"], "\n".join(lines) + "\n")


def _links(namespace: str | None) -> set[str]:
    shown = run(["ip", *(["-n", namespace] if namespace else []), "-o", "link", "show"])
    return {line.split(": ")[1].split("@")[0] for line in shown.splitlines()}


def _settings(namespace: Path, values: dict[str, str]) -> None:
    """Write sysctls of a network namespace: /proc/sys/net shows the one of whoever opens it."""
    lines = [f"echo {value} > /proc/sys/{name.replace('.', '/')}" for name, value in values.items()]
    run(["nsenter", f"--net={namespace}", "sh", "-eu", "-c", "\n".join(lines)])


def ensure_switch(host_address: str) -> bool:
    """Make the switch and the host's link to it; return whether anything was missing. `host_address` is CIDR."""
    changed = False
    if not _is_namespace(NETNS / SWITCH):
        run(["ip", "netns", "add", SWITCH])
        _settings(NETNS / SWITCH, {"net.ipv6.conf.all.disable_ipv6": "1"})
        _batch(SWITCH, ["link set lo up", "link add br0 type bridge forward_delay 0", "link set br0 up"])
        changed = True
    if HOST_LINK not in _links(None):
        _batch(None, [f"link add {HOST_LINK} type veth peer name host netns {SWITCH}"])
        _settings(Path("/proc/self/ns/net"), {f"net.ipv6.conf.{HOST_LINK}.disable_ipv6": "1"})
        _batch(SWITCH, ["link set host master br0 up"])
        _batch(None, [f"address add {host_address} dev {HOST_LINK}", f"link set {HOST_LINK} up"])
        changed = True
    return changed


def ensure_network(node: str, address: str, routes: dict[str, str]) -> bool:
    """Make the node's namespace, its link to the switch and its routes {CIDR: "via ADDRESS"}; `address` is CIDR."""
    changed = False
    if not _is_namespace(netns(node)):
        run(["ip", "netns", "add", f"gangplank-{node}"])
        wanted = {
            "net.ipv6.conf.all.disable_ipv6": "1",
            "net.ipv4.ip_forward": "1",
            "net.bridge.bridge-nf-call-iptables": "1",
        }
        _settings(netns(node), wanted)
        _batch(f"gangplank-{node}", ["link set lo up"])
        changed = True
    port = "port" + address.partition("/")[0].rpartition(".")[2]
    if "eth0" not in _links(f"gangplank-{node}"):
        if port in _links(SWITCH):
            _batch(SWITCH, [f"link del {port}"])
        _batch(f"gangplank-{node}", [f"link add eth0 type veth peer name {port} netns {SWITCH}"])
        _batch(SWITCH, [f"link set {port} master br0 up"])
        _batch(f"gangplank-{node}", [f"address add {address} dev eth0", "link set eth0 up"])
        changed = True
    shown = run(["ip", "-n", f"gangplank-{node}", "-o", "route", "show"]).splitlines()
    missing = [f"{cidr} {how}" for cidr, how in routes.items() if not any(f"{cidr} {how}" in line for line in shown)]
    _batch(f"gangplank-{node}", [f"route replace {route}" for route in missing])
    return changed or bool(missing)


# Inside the new mount namespace: $1 is the node's own root, $2 the tree it shows; then source, target, ro|rw each.
# What a program of upstream's finds at a fixed path is thereby this node's alone; the host sees none of its mounts.
_MOUNTS = """
root=$1 tree=$2; shift 2
mount --bind "$tree" "$root"
mount -o remount,ro,bind "$root"
for own in run mnt var/lib; do mount -t tmpfs -o mode=755 gangplank "$root/$own"; done
mount -t tmpfs -o mode=1777 gangplank "$root/tmp"
for shared in /dev /proc /sys; do mount --rbind "$shared" "$root$shared"; done
while [ $# -gt 0 ]; do
  case $2 in /mnt/*|/run/*|/var/lib/*) mkdir -p "$root$2" ;; esac
  mount --bind "$1" "$root$2"
  [ "$3" = rw ] || mount -o remount,ro,bind "$root$2"
  shift 3
done
cd "$root"
pivot_root . .
umount -l .
mount --make-rshared /
"""


def ensure_mounts(node: str, tree: str, root: str, binds: list[Bind]) -> bool:
    """Make the node's mount namespace over `tree`; return whether it was missing."""
    if _is_namespace(mntns(node)):
        return False
    mntns(node).parent.mkdir(parents=True, exist_ok=True)
    if str(RUN) not in _mounts(RUN):  # a namespace can be pinned only on a mount that is private
        run(["mount", "--bind", str(RUN), str(RUN)])
        run(["mount", "--make-private", str(RUN)])
    mntns(node).touch()
    Path(root).mkdir(parents=True, exist_ok=True)
    flat: list[str] = []
    for bind in binds:
        if not Path(bind.source).exists():
            Path(bind.source).mkdir(parents=True)
        flat += [bind.source, bind.target, "rw" if bind.writable else "ro"]
    pinned = ["unshare", f"--mount={mntns(node)}", "--propagation", "private", "sh", "-eu", "-c", _MOUNTS, "sh"]
    try:
        run([*pinned, root, tree, *flat])
    except LabError:
        remove_mounts(node)
        raise
    return True


def controllers() -> list[Path]:
    """Return the cgroup hierarchies to use: one per v1 controller, or the single v2 one."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return sorted(path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists() and path.name != "unified")


def ensure_cgroup(name: str) -> bool:
    """Make <controller>/gangplank/<name> in every hierarchy; return whether one was missing."""
    changed = False
    for base in controllers():
        for parent, folder in ((base, base / SLICE), (base / SLICE, base / SLICE / name)):
            if (parent / "cgroup.subtree_control").exists():  # v2 hands controllers down one level at a time
                have = (parent / "cgroup.controllers").read_text().split()
                on = (parent / "cgroup.subtree_control").read_text().split()
                for controller in {"cpu", "cpuset", "io", "memory", "pids"} & set(have) - set(on):
                    (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            if not folder.exists():
                folder.mkdir()
                changed = True
            for setting in ("cpuset.cpus", "cpuset.mems"):  # v1 leaves a new cpuset empty, and then nothing may enter
                own = folder / setting
                if (base / "cgroup.controllers").exists() or not own.exists():
                    continue
                if not own.read_text().strip():
                    own.write_text((parent / setting).read_text())
    return changed


def join_cgroup(name: str, pid: int) -> None:
    """Move a process into gangplank/<name> of every hierarchy; its children follow."""
    for base in controllers():
        (base / SLICE / name / "cgroup.procs").write_text(str(pid))


def _hierarchies() -> list[Path]:
    """Return every hierarchy that may hold a cgroup of ours: runc uses v2's beside v1's controllers if it is there."""
    unified = CGROUPS / "unified"
    return [*controllers(), *([unified] if unified.is_dir() else [])]


def _members(name: str = "") -> set[int]:
    pids: set[int] = set()
    for base in _hierarchies():
        for listing in (base / SLICE / name).rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                pids.update(int(pid) for pid in listing.read_text().split())
    return pids


def _namespaces(node: str | None) -> set[int]:
    """Return the inodes of the pinned namespaces of one node, or of all."""
    pins = [netns(node), mntns(node)] if node else [*NETNS.glob("gangplank-*"), *(RUN / "mnt").glob("*")]
    return {path.stat().st_ino for path in pins if _is_namespace(path)}


def _within(namespaces: set[int]) -> Iterator[int]:
    """Yield processes whose network or mount namespace is one of these."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if {(entry / "ns" / kind).stat().st_ino for kind in ("net", "mnt")} & namespaces:
                    yield int(entry.name)


def _kill(find: Callable[[], set[int]], deadline_s: float = 20.0) -> None:
    """Kill what `find` finds until it finds nothing; this process and the one that waits for it are never ended."""
    alive: set[int] = set()
    for _ in polls(deadline_s, 0.05):
        alive = find() - {os.getpid(), os.getppid()}
        if not alive:
            return
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    names = ", ".join(str(pid) for pid in sorted(alive)[:8])
    fix = "look at them with ps, then run it again"
    raise LabError(late(f"processes {names}", "them alive", "their end", deadline_s, fix))


def kill_members(cgroup: str) -> None:
    """Kill every process in the cgroup gangplank/<cgroup>."""
    _kill(lambda: _members(cgroup))


def kill_all() -> None:
    """Kill every process of the lab."""
    namespaces = _namespaces(None)
    _kill(lambda: set(_within(namespaces)) | _members())


def remove_mounts(node: str) -> None:
    """Unpin the node's mount namespace; its mounts go with its last process."""
    _unmount(mntns(node))
    mntns(node).unlink(missing_ok=True)


def remove_cgroup(name: str = "") -> None:
    """Remove gangplank/<name> (all of gangplank without a name) from every hierarchy, leaves first."""
    for base in _hierarchies():
        top = base / SLICE / name if name else base / SLICE
        folders = [*sorted((p for p in top.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)), top]
        for folder in folders:
            busy = ""
            for _ in polls(CGROUP_S, 0.02):
                if not folder.exists():
                    break
                try:
                    folder.rmdir()
                    break
                except OSError as error:  # a killed process leaves its cgroup a moment after it is gone
                    busy = error.strerror or str(error)
            else:
                fix = "look at the processes in its cgroup.procs, then run it again"
                raise LabError(late(f"cgroup {folder}", busy, "it removed", CGROUP_S, fix))


def ensure_node(node: str, folder: Path, tree: str, network: Network, binds: list[Bind]) -> bool:
    """Make what is missing of the node, all of it anew where it stood on another tree or other binds."""
    stamp = folder / "tree.path"
    stands_on = f"{tree} {binds}"
    if mntns(node).exists() and (not stamp.exists() or stamp.read_text() != stands_on):
        remove_node(node)
    changed = ensure_switch(network.host_address)
    changed |= ensure_network(node, network.address, network.routes)
    changed |= ensure_cgroup(node)
    folder.mkdir(parents=True, exist_ok=True)
    if ensure_mounts(node, tree, str(folder / "root"), binds):
        stamp.write_text(stands_on)
        changed = True
    return changed


def remove_node(node: str) -> bool:
    """Remove all that runs in or holds up the node; its files stay. Return whether anything was there."""
    there = mntns(node).exists() or netns(node).exists() or bool(_members(node))
    namespaces = _namespaces(node)
    remove_mounts(node)  # first the pins: supervisord would start the node's programs again behind them
    if netns(node).exists():
        run(["ip", "netns", "del", f"gangplank-{node}"])
    _kill(lambda: set(_within(namespaces)) | _members(node))
    remove_cgroup(node)
    return there


def lab_nodes() -> list[str]:
    """Return the names of the nodes that are there, from their pins."""
    from_net = {path.name.removeprefix("gangplank-") for path in NETNS.glob("gangplank-*") if path.name != SWITCH}
    return sorted(from_net | {path.name for path in (RUN / "mnt").glob("*")})


def lab_there(state: Path, *, keep: bool) -> bool:
    """Say whether `remove_lab` has anything to remove."""
    return bool(lab_nodes()) or RUN.exists() or (NETNS / SWITCH).exists() or (state.exists() and not keep)


def remove_lab(state: Path, *, keep: bool = False) -> bool:
    """Remove every node, the switch, the host's link and the cgroups; return whether any was there.

    The lab's files in `state` go too, unless `keep`: the next lab is then the same cluster with its objects and data.
    """
    there = lab_there(state, keep=keep)
    kill_all()
    nodes = lab_nodes()
    _unmount(RUN)
    for node in nodes:
        remove_node(node)
    if HOST_LINK in _links(None):
        run(["ip", "link", "del", HOST_LINK])
    if (NETNS / SWITCH).exists():
        run(["ip", "netns", "del", SWITCH])
    remove_cgroup()
    for folder in (RUN,) if keep else (RUN, state):
        if folder.exists():
            shutil.rmtree(folder)
    with contextlib.suppress(OSError):  # the folder above is ours too, unless somebody put something else there
        state.parent.rmdir()
    return there
