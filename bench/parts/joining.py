"""What a node costs that joins a lab: a run of playbooks/lab.yml that adds it, less one that changes nothing.

The lab has a share of the machine's memory to spare for the node that joins (lab_cluster_shares). The peer is the same
lab without: the shares of all nodes shrink, and so their kubelets start again.

The floor is the node itself: a bare shell loop that makes its namespaces and mounts and starts the same programs with
the same files until it is Ready.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.figures import Beside, figure
from bench.part import SOCKET, STATE, Lab, Part
from bench.parts.lab import NODE_PROGRAMS, bare_s, commands, empty, playbook, steps
from gangplank.cluster.client import Kube
from lab.host.cgroups import ensure_cgroup
from lab.host.mounts import MOUNTS
from lab.host.namespaces import mntns, netns, run
from lab.host.network import SWITCH, links, port_of
from lab.host.node import STAMP, remove_node
from lab.host.supervisor import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("What a node costs that joins a lab of 2, 4 and 8", minutes=11, lab=Lab.DOWN, usual=False)
SIZES = (2, 4, 8)
ROUNDS = 3
LIKE_FLOOR = 1.2
SPARE = ("-e", json.dumps({"lab_cluster_shares": SIZES[-1] + 1}))
REMOVE = ("-e", json.dumps({"lab_cluster_remove_left": True}))
UNSHARE = ("unshare", "--propagation", "private")


def inventory(folder: Path, size: int) -> str:
    """A file that adds nodes to those of inventories/lab until there are so many; its path."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    hosts = dict.fromkeys(f"node-{number}" for number in range(size))
    path = folder / f"{size}.yml"
    path.write_text(json.dumps({"all": {"children": {"lab": {"hosts": hosts}}, "vars": local}}))
    return str(path)


def lab_s(file: str, *words: str) -> float:
    """Seconds of playbooks/lab.yml with the nodes of this file."""
    return playbook("-i", file, "playbooks/lab.yml", *words)[0]["finished"]


def itself(node: str) -> list[str]:
    """The lines of a shell script that make the namespaces and mounts that this node has now, and look at nothing."""
    space = netns(node).name
    address = links(space)["eth0"]["addr_info"][0]
    port = port_of(address["local"])
    routes = [line for line in run(["ip", "-n", space, "route", "show"]).splitlines() if " proto kernel " not in line]
    stamp = (STATE / "nodes" / node / STAMP).read_text()
    binds = re.findall(r"source='(.*?)', target='(.*?)', writable=(True|False)", stamp)
    access = {"True": "rw", "False": "ro"}
    words = [word for source, target, writable in binds for word in (source, target, access[writable])]
    tree, root = stamp.partition(" ")[0], str(STATE / "nodes" / node / "root")
    inside = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv4/ip_forward"
    return [
        f"ip netns add {space}",
        f"nsenter --net={netns(node)} sh -c {shlex.quote(inside)}",
        f"ip -n {space} link add eth0 type veth peer name {port} netns {SWITCH}",
        f"ip -n {SWITCH} link set {port} master br0 up",
        f"ip -n {space} address add {address['local']}/{address['prefixlen']} dev eth0",
        f"ip -n {space} link set lo up; ip -n {space} link set eth0 up",
        *(f"ip -n {space} route add {route}" for route in routes),
        f"touch {mntns(node)}",
        shlex.join([*UNSHARE, f"--mount={mntns(node)}", "sh", "-eu", "-c", MOUNTS, "sh", root, tree, *words]),
    ]


def floor_s(node: str) -> float:
    """Seconds of the bare shell loop until this node is Ready, which was removed before."""
    lines = commands()
    names = [f"{program}{node}" for program in NODE_PROGRAMS]
    server = connect(SOCKET)
    for name in names:
        server.stopProcess(name)
    Kube(str(STATE / "admin.kubeconfig")).call("DELETE", f"/api/v1/nodes/{node}")
    first = itself(node)
    remove_node(node)
    ensure_cgroup(node)
    empty(STATE / "nodes" / node / "kubelet")
    ready = f'get node {node} --no-headers 2>/dev/null | grep -c " Ready "'
    return bare_s([*first, *steps(lines, names)], ready, "1")


@dataclass(frozen=True)
class Round:
    """Seconds of one round."""

    cost: float
    """With a share to spare."""
    without: float
    """Without one."""
    bare: float


def once(folder: Path, size: int) -> Round:
    """What the next node costs. The lab is as before afterwards: so many nodes, and shares for all sizes."""
    fewer, more = inventory(folder, size), inventory(folder, size + 1)
    unchanged = lab_s(fewer, *SPARE)
    joined = lab_s(more, *SPARE)
    bare = floor_s(f"node-{size}")
    lab_s(fewer, *REMOVE)
    shrunk = lab_s(more)
    lab_s(fewer, *SPARE, *REMOVE)
    return Round(joined - unchanged, shrunk - unchanged, bare)


def figures(rounds: Mapping[int, Sequence[Round]]) -> Iterator[Figure]:
    """A figure for each size."""
    for size, rows in rounds.items():
        floor = Beside.of("the node itself, made by a bare shell loop", [row.bare for row in rows])
        peer = Beside.of("no share to spare: all kubelets start again", [row.without for row in rows])
        yield figure(f"joining.{size}", f"a node joins a lab of {size}", "s", [row.cost for row in rows], peer=peer,
                     floor=floor, goal=LIKE_FLOOR * floor.value, why=f"{LIKE_FLOOR} x the floor")  # fmt: skip


def measure(setting: Setting) -> Iterator[Figure]:
    """All sizes, from the smallest lab to the largest."""
    rounds: dict[int, list[Round]] = {size: [] for size in SIZES}
    try:
        for size, rows in rounds.items():
            lab_s(inventory(setting.folder, size), *SPARE)
            for number in range(ROUNDS):
                row = once(setting.folder, size)
                rows.append(row)
                setting.say(f"{size} nodes, round {number + 1} of {ROUNDS}: {row.cost:.1f} s, without a share to spare "
                            f"{row.without:.1f} s, the node itself {row.bare:.1f} s")  # fmt: skip
    finally:
        playbook("playbooks/lab-down.yml")
    yield from figures(rounds)
