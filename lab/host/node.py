"""The lab's nodes on this machine: each a network namespace, a mount namespace and a cgroup. And their removal.

The switch is a namespace with a bridge; one veth pair joins each node and the host to it. A node has no default route,
so nothing in it can reach beyond this machine. Everything is identified by its name, and no state is kept elsewhere:
namespaces are under /run/netns and RUN/mnt, cgroups under <controller>/gangplank.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.disk import discard
from gangplank.errors import Problem
from lab.errors import LabError
from lab.host.cgroups import ensure_cgroup, members, remove_cgroup
from lab.host.files import write
from lab.host.lock import NAME, refuse_foreign
from lab.host.mounts import Bind, are_complete, make_mounts, mounts_below, remove_mounts, unmount
from lab.host.namespaces import NETNS, RUN, is_namespace, mntns, netns, run
from lab.host.network import HOST_LINK, SWITCH, ensure_network, ensure_switch, links
from lab.host.processes import kill, kill_all, pinned_namespaces, processes_in, strays

if TYPE_CHECKING:
    from collections.abc import Sequence

PARENT = Path("/var/lib/gangplank")  # of the default lab_cluster_folder
OWN_NETNS = RUN / "netns"
STAMP = "tree.path"  # in a node's folder: the tree and the binds of its mounts, once these are complete


@dataclass(frozen=True)
class Node:
    """A node: its address without a prefix length, the CIDR of its pods, and the host's folders that it sees."""

    name: str
    folder: Path
    address: str
    pods: str
    binds: Sequence[Bind]
    """A source that is not absolute is in the node's folder."""


def ensure_nodes(nodes: Sequence[Node], tree: str, host_address: str, services: str) -> dict[str, list[str]]:
    """Create what the switch and the nodes lack, or a whole node again if its mounts are not complete or to be others.

    `host_address` and `services` are CIDR. Return what was not right: lines by node, and by SWITCH.
    """
    lines = {}
    note_netns()
    if ensure_switch(host_address):
        lines[SWITCH] = ["it, or the link of this machine to it, was missing or incomplete"]
    length = host_address.partition("/")[2]
    for node in nodes:
        # The control plane's own requests to a Service need a route before kube-proxy's rules redirect them.
        routes = {services: "dev eth0"} | {other.pods: f"via {other.address}" for other in nodes if other != node}
        lines[node.name] = _ensure_node(node, tree, f"{node.address}/{length}", routes)
    return lines


def note_netns() -> None:
    """Note that `ip netns` has not been used here: it mounts NETNS then, and leaves it so."""
    RUN.mkdir(parents=True, exist_ok=True)
    if str(NETNS) not in mounts_below(NETNS) and not OWN_NETNS.exists():
        write(OWN_NETNS, b"" if NETNS.exists() else b"folder", 0o644)


def _restore_netns() -> None:
    """Take back what `ip netns` has made for the lab, unless others use it by now."""
    if OWN_NETNS.exists() and not any(NETNS.glob("*")):
        unmount(NETNS)
        if OWN_NETNS.read_bytes() and NETNS.exists():
            NETNS.rmdir()


def _ensure_node(place: Node, tree: str, address: str, routes: dict[str, str]) -> list[str]:
    """Create what the node lacks; return what was not right, a line each."""
    node, stamp = place.name, place.folder / STAMP
    binds = [Bind(str(place.folder / bind.source), bind.target, bind.writable) for bind in place.binds]
    layout = f"{tree} {binds}"
    removed, lines = "", []
    as_asked = stamp.exists() and stamp.read_text() == layout
    if not (as_asked and is_namespace(netns(node)) and are_complete(node, binds)):
        if is_namespace(netns(node)) and is_namespace(mntns(node)):  # else neither is left to use
            removed = "its mounts were incomplete" if as_asked else "it had the mounts of another version"
        remove_node(node)  # also if it has no pin: programs live on in what an interrupted removal unpinned
    if ensure_network(node, address, routes):
        lines.append("its network was missing or incomplete")
    if ensure_cgroup(node):
        lines.append("its cgroup was missing or incomplete")
    place.folder.mkdir(parents=True, exist_ok=True)
    if not mntns(node).exists():
        stamp.unlink(missing_ok=True)  # it says that the mounts are complete
        make_mounts(node, tree, str(place.folder / "root"), binds)
        write(stamp, layout.encode(), 0o644)
        lines.append("its mounts were missing")
    return [removed] if removed else lines


def remove_node(node: str) -> bool:
    """Remove the node with its processes, but not its files. Return whether it existed."""
    existed = mntns(node).exists() or netns(node).exists() or bool(members(node))
    with pinned_namespaces(node) as namespaces:
        remove_mounts(node)  # pins first: otherwise supervisord would restart the node's programs in them
        if netns(node).exists():
            run(["ip", "netns", "del", netns(node).name])
        kill(lambda: set(processes_in(namespaces)) | members(node) | strays())
    remove_cgroup(node)
    return existed


def lab_nodes() -> list[str]:
    """The names of the existing nodes, from their pins."""
    from_net = {path.name.removeprefix("gangplank-") for path in NETNS.glob("gangplank-*") if path.name != SWITCH}
    return sorted(from_net | {path.name for path in (RUN / "mnt").glob("*")})


def lab_exists(state: Path, *, keep: bool) -> bool:
    """Whether `remove_lab` would remove anything."""
    return bool(lab_nodes()) or RUN.exists() or (NETNS / SWITCH).exists() or (state.exists() and not keep)


def refuse_mounts(folder: Path) -> None:
    """Raise LabError if something is mounted below a folder that is to be removed: its files are the user's."""
    points = [point for point in mounts_below(folder.resolve()) if point != str(folder.resolve())]
    if points:
        fix = f"umount {' '.join(reversed(points))}, then run it again"
        raise LabError(str(Problem(str(folder), f"mounts in it: {', '.join(points)}", "only the lab's own files", fix)))


def _remove_folder(state: Path) -> None:
    """Remove the lab's folder: the file that marks it goes last, so that a killed removal can be repeated.

    A lab that comes up after a killed one finds no half of a node's images, nor of etcd's data.
    """
    for path in sorted(state.iterdir()):  # first what an interrupted removal has left, which `discard` would find too
        if path.is_dir() and not path.is_symlink():
            discard(path)
        elif path.name != NAME:
            path.unlink()
    (state / NAME).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a run that waited for this one may have begun
        state.rmdir()


def remove_lab(state: Path, *, keep: bool = False) -> bool:
    """Remove every node, the switch, the host's link and the cgroups; return whether any existed.

    Its files in `state` are removed too, unless `keep`: the next lab is then the same cluster, with its data.
    """
    refuse_foreign(state)
    existed = lab_exists(state, keep=keep)
    kill_all()
    nodes = lab_nodes()
    unmount(RUN)
    for node in nodes:
        remove_node(node)
    if HOST_LINK in links(None):
        run(["ip", "link", "del", HOST_LINK])
    if (NETNS / SWITCH).exists():
        run(["ip", "netns", "del", SWITCH])
    remove_cgroup()
    _restore_netns()
    if RUN.exists():
        shutil.rmtree(RUN)
    if state.exists() and not keep:
        _remove_folder(state)
    if state.parent == PARENT:  # any other may be the user's own, also if it is empty
        with contextlib.suppress(OSError):  # it contains other files
            PARENT.rmdir()
    return existed
