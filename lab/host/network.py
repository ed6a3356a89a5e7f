"""The switch, a namespace with a bridge, and the veth pair that joins each node and the host to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.host.namespaces import NETNS, is_namespace, netns, run

SWITCH = "gangplank-switch"
HOST_LINK = "gangplank0"


@dataclass(frozen=True)
class Network:
    """A node's address and the host's, both CIDR, and its routes {CIDR: "via ADDRESS"}."""

    address: str
    host_address: str
    routes: dict[str, str]


def _batch(namespace: str | None, lines: list[str]) -> None:
    if lines:
        run(["ip", *(["-n", namespace] if namespace else []), "-batch", "-"], "\n".join(lines) + "\n")


def links(namespace: str | None) -> set[str]:
    """The names of the links in a network namespace, or in the host's."""
    output = run(["ip", *(["-n", namespace] if namespace else []), "-o", "link", "show"])
    return {line.split(": ")[1].split("@")[0] for line in output.splitlines()}


def _settings(namespace: Path, values: dict[str, str]) -> None:
    """Write sysctls of a network namespace: /proc/sys/net is that of the process that opens it."""
    lines = [f"echo {value} > /proc/sys/{name.replace('.', '/')}" for name, value in values.items()]
    run(["nsenter", f"--net={namespace}", "sh", "-eu", "-c", "\n".join(lines)])


def ensure_switch(host_address: str) -> bool:
    """Create the switch and the host's link to it; return whether anything was missing. `host_address` is CIDR."""
    changed = False
    if not is_namespace(NETNS / SWITCH):
        run(["ip", "netns", "add", SWITCH])
        _settings(NETNS / SWITCH, {"net.ipv6.conf.all.disable_ipv6": "1"})
        _batch(SWITCH, ["link set lo up", "link add br0 type bridge forward_delay 0", "link set br0 up"])
        changed = True
    if HOST_LINK not in links(None):
        _batch(None, [f"link add {HOST_LINK} type veth peer name host netns {SWITCH}"])
        _settings(Path("/proc/self/ns/net"), {f"net.ipv6.conf.{HOST_LINK}.disable_ipv6": "1"})
        _batch(SWITCH, ["link set host master br0 up"])
        _batch(None, [f"address add {host_address} dev {HOST_LINK}", f"link set {HOST_LINK} up"])
        changed = True
    return changed


def ensure_network(node: str, address: str, routes: dict[str, str]) -> bool:
    """Create the node's namespace, its link to the switch and its routes {CIDR: "via ADDRESS"}; `address` is CIDR."""
    changed = False
    if not is_namespace(netns(node)):
        run(["ip", "netns", "add", f"gangplank-{node}"])
        sysctls = {
            "net.ipv6.conf.all.disable_ipv6": "1",
            "net.ipv4.ip_forward": "1",
            "net.bridge.bridge-nf-call-iptables": "1",
        }
        _settings(netns(node), sysctls)
        _batch(f"gangplank-{node}", ["link set lo up"])
        changed = True
    port = "port" + address.partition("/")[0].rpartition(".")[2]
    if "eth0" not in links(f"gangplank-{node}"):
        if port in links(SWITCH):
            _batch(SWITCH, [f"link del {port}"])
        _batch(f"gangplank-{node}", [f"link add eth0 type veth peer name {port} netns {SWITCH}"])
        _batch(SWITCH, [f"link set {port} master br0 up"])
        _batch(f"gangplank-{node}", [f"address add {address} dev eth0", "link set eth0 up"])
        changed = True
    present = run(["ip", "-n", f"gangplank-{node}", "-o", "route", "show"]).splitlines()
    missing = [f"{cidr} {how}" for cidr, how in routes.items() if not any(f"{cidr} {how}" in line for line in present)]
    _batch(f"gangplank-{node}", [f"route replace {route}" for route in missing])
    return changed or bool(missing)
