"""A lab node on this machine: a network namespace and a mount namespace, its cgroup, and their removal.

The switch is a namespace of its own with a bridge; every node and the host hang on it by one veth pair each. A node has
no default route, so nothing in it can reach outside this machine. Everything is found again by name, never by state
kept elsewhere: namespaces under /run/netns and RUN/mnt, cgroups under <controller>/gangplank.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from lab.host.cgroups import ensure_cgroup, members, remove_cgroup
from lab.host.mounts import ensure_mounts, remove_mounts, unmount
from lab.host.namespaces import NETNS, RUN, mntns, netns, run
from lab.host.network import HOST_LINK, SWITCH, ensure_network, ensure_switch, links
from lab.host.processes import kill, kill_all, pinned_namespaces, within

if TYPE_CHECKING:
    from pathlib import Path

    from lab.host.mounts import Bind
    from lab.host.network import Network


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
    there = mntns(node).exists() or netns(node).exists() or bool(members(node))
    namespaces = pinned_namespaces(node)
    remove_mounts(node)  # first the pins: supervisord would start the node's programs again behind them
    if netns(node).exists():
        run(["ip", "netns", "del", f"gangplank-{node}"])
    kill(lambda: set(within(namespaces)) | members(node))
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
    unmount(RUN)
    for node in nodes:
        remove_node(node)
    if HOST_LINK in links(None):
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
