"""What a node costs that joins a lab: a run of playbooks/lab.yml that adds it, less one that changes nothing.

The floor is the node itself: a bare shell loop that makes its namespaces and mounts and starts the same programs with
the same files until it is Ready. The other nodes' kubelets start again when a node joins: a node offers its share of
the machine's memory, and that gets smaller. This is in the cost, not in the floor.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Beside, figure
from bench.part import STATE, Lab, Part
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

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("What a node costs that joins a lab of 2, 4 and 8", minutes=7, lab=Lab.DOWN, usual=False)
SIZES = (2, 4, 8)
ROUNDS = 3
LIKE_FLOOR = 1.2
UNSHARE = ("unshare", "--propagation", "private")
SOCKET = Path("/run/gangplank/supervisor.sock")


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


def once(folder: Path, size: int) -> tuple[float, float]:
    """A round: what the next node costs, and its floor. The lab is as before afterwards."""
    fewer, more = inventory(folder, size), inventory(folder, size + 1)
    unchanged = lab_s(fewer)
    joined = lab_s(more)
    bare = floor_s(f"node-{size}")
    lab_s(fewer, "-e", "lab_cluster_remove_left=true")
    return joined - unchanged, bare


def figures(rounds: Mapping[int, Sequence[tuple[float, float]]]) -> Iterator[Figure]:
    """A figure for each size."""
    for size, rows in rounds.items():
        floor = Beside.of("the node itself, made by a bare shell loop", [bare for _, bare in rows])
        yield figure(f"joining.{size}", f"a node joins a lab of {size}", "s", [cost for cost, _ in rows], floor=floor,
                     goal=LIKE_FLOOR * floor.value, why=f"{LIKE_FLOOR} x the floor")  # fmt: skip


def measure(setting: Setting) -> Iterator[Figure]:
    """All sizes, from the smallest lab to the largest."""
    rounds: dict[int, list[tuple[float, float]]] = {size: [] for size in SIZES}
    try:
        for size, rows in rounds.items():
            lab_s(inventory(setting.folder, size))
            for number in range(ROUNDS):
                cost, bare = once(setting.folder, size)
                rows.append((cost, bare))
                setting.say(f"{size} nodes, round {number + 1} of {ROUNDS}: {cost:.1f} s, the node itself {bare:.1f} s")
    finally:
        playbook("playbooks/lab-down.yml")
    yield from figures(rounds)
