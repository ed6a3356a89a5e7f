"""The switch, a namespace with a bridge, and the veth pair that joins each node and the host to it.

Each fact is looked at by itself: a run that was killed between two commands leaves any of them out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.host.namespaces import NETNS, ensure_netns, netns, run

SWITCH = "gangplank-switch"
HOST_LINK = "gangplank0"


def _batch(namespace: str | None, lines: list[str]) -> bool:
    """Run `ip` commands in a network namespace, or in the host's; return whether there were any."""
    if lines:
        run(["ip", *(["-n", namespace] if namespace else []), "-batch", "-"], "\n".join(lines) + "\n")
    return bool(lines)


def links(namespace: str | None) -> dict[str, dict[str, Any]]:
    """The links of a network namespace, or of the host's, by name, as `ip -json address` shows them."""
    output = run(["ip", *(["-n", namespace] if namespace else []), "-json", "address", "show"])
    return {link["ifname"]: link for link in json.loads(output)}


def _corrections(present: dict[str, dict[str, Any]], name: str, *, address: str = "", master: str = "") -> list[str]:
    """The `ip` commands that give a link its address and its bridge and bring it up; none if it is like that."""
    link = present.get(name, {})
    addresses = [f"{item['local']}/{item['prefixlen']}" for item in link.get("addr_info", []) if address]
    lines = [f"address del {other} dev {name}" for other in addresses if other != address]
    if address and address not in addresses:
        lines.append(f"address add {address} dev {name}")
    if master and link.get("master") != master:
        lines.append(f"link set {name} master {master}")
    if "UP" not in link.get("flags", []):
        lines.append(f"link set {name} up")
    return lines


def _ensure_sysctls(namespace: Path, values: dict[str, str]) -> bool:
    """Write what differs in a network namespace: /proc/sys/net is that of the process that opens it."""
    paths = {f"/proc/sys/{name.replace('.', '/')}": value for name, value in values.items()}
    present = run(["nsenter", f"--net={namespace}", "cat", *paths]).split()
    pairs = zip(paths.items(), present, strict=True)
    wrong = [f"echo {value} > {path}" for (path, value), old in pairs if value != old]
    if wrong:
        run(["nsenter", f"--net={namespace}", "sh", "-eu", "-c", "\n".join(wrong)])
    return bool(wrong)


def _remove_link(namespace: str | None, name: str) -> None:
    """Remove a link, unless the kernel does so at this moment because the other end's namespace is gone."""
    try:
        _batch(namespace, [f"link del {name}"])
    except LabError:
        if name in links(namespace):
            raise


def _ensure_pair(namespace: str | None, name: str, port: str) -> bool:
    """Ensure the veth pair of `name` and the switch's `port`; one end alone is left of another switch or node."""
    own, ports = name in links(namespace), port in links(SWITCH)
    if own and ports:
        return False
    if own:
        _remove_link(namespace, name)
    if ports:
        _remove_link(SWITCH, port)
    return _batch(namespace, [f"link add {name} type veth peer name {port} netns {SWITCH}"])


def ensure_switch(host_address: str) -> bool:
    """Ensure the switch and the host's link to it; return whether anything was not right. `host_address` is CIDR."""
    changed = ensure_netns(SWITCH)
    changed |= _ensure_sysctls(NETNS / SWITCH, {"net.ipv6.conf.all.disable_ipv6": "1"})
    present = links(SWITCH)
    bridge = [] if "br0" in present else ["link add br0 type bridge forward_delay 0"]
    changed |= _batch(SWITCH, [*bridge, *_corrections(present, "lo"), *_corrections(present, "br0")])
    changed |= _ensure_pair(None, HOST_LINK, "host")
    changed |= _ensure_sysctls(Path("/proc/self/ns/net"), {f"net.ipv6.conf.{HOST_LINK}.disable_ipv6": "1"})
    changed |= _batch(SWITCH, _corrections(links(SWITCH), "host", master="br0"))
    changed |= _batch(None, _corrections(links(None), HOST_LINK, address=host_address))
    return changed


def port_of(address: str) -> str:
    """The switch's end of the veth pair of the node with this address, with or without its prefix.

    >>> port_of("198.18.0.3/24")
    'port3'
    """
    return "port" + address.partition("/")[0].rpartition(".")[2]


def ensure_network(node: str, address: str, routes: dict[str, str]) -> bool:
    """Ensure the node's namespace, its link to the switch and its routes {CIDR: "via ADDRESS"}; `address` is CIDR."""
    name = netns(node).name
    changed = ensure_netns(name)
    sysctls = {
        "net.ipv6.conf.all.disable_ipv6": "1",
        "net.ipv4.ip_forward": "1",
        "net.bridge.bridge-nf-call-iptables": "1",
    }
    changed |= _ensure_sysctls(netns(node), sysctls)
    port = port_of(address)
    changed |= _ensure_pair(name, "eth0", port)
    changed |= _batch(SWITCH, _corrections(links(SWITCH), port, master="br0"))
    present = links(name)
    changed |= _batch(name, [*_corrections(present, "lo"), *_corrections(present, "eth0", address=address)])
    lines = run(["ip", "-n", name, "-o", "route", "show"]).splitlines()
    expected = [f"{cidr} {how}" for cidr, how in routes.items()]
    missing = [route for route in expected if not any(f"{line} ".startswith(f"{route} ") for line in lines)]
    return _batch(name, [f"route replace {route}" for route in missing]) or changed
