"""Faults B1 to B7 on a live lab: what a pod could do to its neighbours, its node and the machine."""

from __future__ import annotations

import json
import re
import socket
import stat
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster.conftest import STATE, Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
IMAGE = "gangplank.dev/trainer:0.1.0"
# Echoes on TCP and UDP, and keeps a connection to each peer (name, kind, address): a line for each time it is used.
WIRE = """
import json, os, socket, sys, threading, time
def stream(server):
    while True:
        threading.Thread(target=echo, args=(server.accept()[0],)).start()
def echo(peer):
    while data := peer.recv(100):
        peer.sendall(data)
def keep(name, kind, address):
    wire = None
    while not wire:
        try:
            wire = socket.socket(socket.AF_INET, getattr(socket, kind))
            wire.connect((address, 7000))
        except OSError:
            wire = time.sleep(0.1)  # it does not listen yet
    wire.settimeout(1)
    while True:
        try:
            wire.send(b"x")
            now = "open" if wire.recv(100) else "closed"
        except OSError:
            now = "cut"
        os.write(1, f"{name} {now}\\n".encode())
        time.sleep(0.1)
for peer in json.loads(sys.argv[1]):
    threading.Thread(target=keep, args=peer).start()
threading.Thread(target=stream, args=(socket.create_server(("", 7000)),)).start()
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("", 7000))
while True:
    data, sender = datagrams.recvfrom(100)
    datagrams.sendto(data, sender)
"""
# Tries from its first moment on, as fast as it can.
HASTY = """
import socket, sys, time
end, tries = time.monotonic() + 3, 0
while time.monotonic() < end:
    tries += 1
    try:
        socket.create_connection((sys.argv[1], 7000), 0.05).close()
    except OSError:
        continue
    sys.exit("reached at try %d" % tries)
print("never reached")
"""
# As many processes as it gets, all at once, for a moment; no more than 5000.
BOMB = """
import os, time
pids = []
try:
    for _ in range(5000):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        pids.append(pid)
except OSError as error:
    print("refused after %d: %s" % (len(pids), error.strerror), flush=True)
time.sleep(3)
for pid in pids:
    os.kill(pid, 9)
for pid in pids:
    os.waitpid(pid, 0)
print("over", flush=True)
"""
NODE = "node-1"
SERVER = {"podSelector": {"matchLabels": {"app": "server"}}}


def pod(name: str, *command: str, node: str = NODE, **spec: object) -> Json:
    container = {"name": "main", "image": IMAGE, "command": list(command)}
    whole = {"nodeName": node, "terminationGracePeriodSeconds": 0, "restartPolicy": "Never", "containers": [container]}
    meta = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": whole | spec}


def policy(name: str, who: str, **rules: list[Json]) -> Json:
    kinds = [way.title() for way in rules]
    spec = {"podSelector": {"matchLabels": {"app": who}}, "policyTypes": kinds, **rules}
    api = "networking.k8s.io/v1"
    return {"apiVersion": api, "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec}


class Space:
    """A namespace of our own."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.name = lab, name

    def kubectl(self, *arguments: str, **options: Any) -> str:
        return self.lab.kubectl("-n", self.name, "--request-timeout=60s", *arguments, **options)

    def create(self, *objects: Json) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.lab.wait("the namespace's account", lambda: self.kubectl("get", "serviceaccount", "default"))
        self.kubectl("create", "-f", "-", stdin=json.dumps(items))

    def address(self, name: str) -> str:
        def running() -> str:
            status = self.lab.get("pod", name, "-n", self.name)["status"]
            return str(status["podIP"]) if status["phase"] == "Running" else ""

        return str(self.lab.wait(f"{name} runs", running))

    def python(self, name: str, program: str, *arguments: str) -> str:
        return self.kubectl("exec", name, "--", "python3", "-c", program, *arguments, check=False)

    def wires(self, name: str) -> dict[str, str]:
        """Of each connection that a pod keeps, what it was last."""
        lines = self.kubectl("logs", name, "--since=3s").splitlines()
        return dict(line.split() for line in lines)

    def log(self, name: str) -> str:
        def ended() -> bool:
            return self.lab.get("pod", name, "-n", self.name)["status"]["phase"] in ("Succeeded", "Failed")

        self.lab.wait(f"{name} ends", ended, 180)
        return self.kubectl("logs", name)


@pytest.fixture(scope="module")
def space(lab: Lab) -> Iterator[Space]:
    """With a server, which echoes, a pod that waits, and one on the node's own network, which no policy guards."""
    name = f"hardening-{uuid.uuid4().hex[:6]}"
    lab.kubectl("create", "namespace", name)
    space = Space(lab, name)
    outside = pod(f"{name}-outside", "python3", "-c", WIRE, "[]", node="node-0", hostNetwork=True)
    try:
        neighbour = pod("neighbour", "sleep", "3600", securityContext={"runAsUser": 0})
        space.create(pod("server", "python3", "-c", WIRE, "[]"), neighbour)
        lab.kubectl("-n", "kube-system", "create", "-f", "-", stdin=json.dumps(outside))
        space.address("server")
        space.address("neighbour")
        yield space
    finally:
        lab.kubectl("-n", "kube-system", "delete", "pod", f"{name}-outside", "--now", "--wait=false", check=False)
        lab.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(autouse=True)
def policies(space: Space) -> Iterator[None]:
    """None of an earlier test."""
    yield
    space.kubectl("delete", "networkpolicies", "--all")


def test_b1_pods_have_no_ipv6(space: Space) -> None:
    for name in ("server", "neighbour"):
        lines = space.kubectl("exec", name, "--", "cat", "/proc/net/if_inet6").splitlines()
        assert [line for line in lines if not line.endswith(" lo")] == []


def test_b1_a_neighbour_is_not_reached_by_its_ipv6_link_local_address(space: Space) -> None:
    """Its hardware address, which ARP tells everybody on the node, is in it."""
    listen = "import socket, time; s = socket.create_server(('::', 7001), family=socket.AF_INET6); time.sleep(3600)"
    space.create(pod("listener", "python3", "-c", listen))
    space.address("listener")
    text = space.kubectl("exec", "listener", "--", "cat", "/sys/class/net/eth0/address").strip()
    parts = [int(part, 16) for part in text.split(":")]
    parts = [parts[0] ^ 2, *parts[1:3], 0xFF, 0xFE, *parts[3:]]
    address = "fe80::" + ":".join(f"{high << 8 | low:x}" for high, low in zip(parts[::2], parts[1::2], strict=True))
    socket.inet_pton(socket.AF_INET6, address)
    connect = "import socket; socket.create_connection(('{}%eth0', 7001), 3); print('reached')"
    answer = space.python("neighbour", connect.format(address))
    assert "OSError" in answer, answer
    assert "reached" not in answer.splitlines()


def test_b2_a_fork_bomb_stays_in_its_pod(space: Space) -> None:
    """5000 processes of one pod are less than the machine can have, and more than a pod may."""
    assert int(Path("/proc/sys/kernel/pid_max").read_text()) > 20_000, "or the bomb would reach the machine"
    space.create(pod("bomb", "python3", "-c", BOMB))
    line = re.compile(r"refused after (\d+): (.*)")
    refusal = space.lab.wait("the refusal", lambda: line.search(space.kubectl("logs", "bomb")))
    assert 1000 < int(refusal[1]) < 4096
    assert refusal[2] == "Resource temporarily unavailable"
    assert space.lab.inside(NODE, "echo", "the node forks") == "the node forks\n"
    assert space.kubectl("exec", "neighbour", "--", "echo", "so do other pods") == "so do other pods\n"
    assert "over" in space.log("bomb")


def test_b3_a_pod_is_guarded_from_its_first_packet(space: Space) -> None:
    space.create(policy("hasty", "hasty", egress=[]))
    space.create(pod("hasty", "python3", "-c", HASTY, space.address("server")))
    assert space.log("hasty") == "never reached\n"


def test_b3_a_policy_cuts_earlier_connections_that_it_does_not_allow_and_no_others(space: Space) -> None:
    addresses = {entry["type"]: entry["address"] for entry in space.lab.get("node", "node-0")["status"]["addresses"]}
    places = {"server": space.address("server"), "outside": addresses["InternalIP"]}
    kinds = {"tcp": "SOCK_STREAM", "udp": "SOCK_DGRAM"}
    peers = [(f"{place}/{name}", kind, at) for place, at in places.items() for name, kind in kinds.items()]
    space.create(pod("client", "python3", "-c", WIRE, json.dumps(peers)))
    client = space.address("client")
    inward = [("client/tcp", "SOCK_STREAM", client), ("client/udp", "SOCK_DGRAM", client)]
    space.create(pod("caller", "python3", "-c", WIRE, json.dumps(inward)))

    def expect(want: Json) -> None:
        space.lab.wait(f"{want}", lambda: space.wires("client") | space.wires("caller") == want)

    everything = {f"{place}/{kind}": "open" for place in (*places, "client") for kind in kinds}
    expect(everything)
    nobody_in = policy("in", "client", ingress=[])
    inside_only = policy("out", "client", egress=[{"to": [SERVER]}])
    cut = everything | dict.fromkeys(("client/tcp", "client/udp"), "cut")
    space.create(nobody_in)
    expect(cut)
    time.sleep(1.5)
    expect(cut)
    space.create(inside_only)
    cut |= dict.fromkeys(("outside/tcp", "outside/udp"), "cut")
    expect(cut)
    inside_only["spec"]["egress"] = []
    space.kubectl("apply", "-f", "-", stdin=json.dumps(inside_only))
    expect(dict.fromkeys(everything, "cut"))


def reached(space: Space, address: str, port: int) -> bool:
    """Whether the pod `neighbour` gets there."""
    program = "import socket; socket.create_connection(('{}', {}), 10); print('reached')"
    return "reached" in space.python("neighbour", program.format(address, port)).splitlines()


SHIM = """#!/bin/sh
rules=$(cat)
case "$rules" in *"ctproto sctp"*) echo "unknown match" >&2; exit 2;; esac
echo "$rules" | exec xtables-nft-multi iptables-restore "$@"
"""
# The root file system of a node is read-only: a copy of its folder of commands is mounted on it.
EXCHANGE = f"""set -e
cp -a /usr/sbin /run/sbin && rm /run/sbin/iptables-restore
cat > /run/sbin/iptables-restore <<'E'
{SHIM}E
chmod +x /run/sbin/iptables-restore && mount --bind /run/sbin /usr/sbin
"""


def test_b4_a_rule_that_the_node_does_not_know_freezes_no_other_policy(space: Space) -> None:
    """SCTP, and an iptables-restore that refuses it."""
    server = space.address("server")
    space.lab.inside(NODE, "sh", "-c", EXCHANGE)
    try:
        sctp = [{"from": [SERVER], "ports": [{"port": 80, "protocol": "SCTP"}]}]
        space.create(policy("sctp", "server", ingress=sctp))
        space.lab.wait("the server is closed", lambda: not reached(space, server, 7000))
        space.create(policy("tcp", "server", ingress=[{"ports": [{"port": 7000}]}]))
        space.lab.wait("the server is open", lambda: reached(space, server, 7000))
    finally:
        space.lab.inside(NODE, "sh", "-c", "umount -l /usr/sbin && rm -r /run/sbin")
        log = (STATE / f"logs/network-policy-{NODE}.log").read_text()
    assert "left out, so dropped: -m conntrack --ctorigsrc" in log


def test_b5_a_flushed_table_is_written_again(space: Space) -> None:
    server = space.address("server")
    space.create(policy("guard", "server", ingress=[]))
    space.lab.wait("the server is closed", lambda: not reached(space, server, 7000))
    before = re.sub(r"\[.*?\]|#.*", "", space.lab.inside(NODE, "iptables-save", "-t", "security"))
    assert "-A " in before
    space.lab.inside(NODE, "iptables", "-t", "security", "-F")

    def now() -> str:
        return re.sub(r"\[.*?\]|#.*", "", space.lab.inside(NODE, "iptables-save", "-t", "security"))

    space.lab.wait("the table as it was", lambda: now() == before)
    assert not reached(space, server, 7000)


def test_b5_a_pod_reaches_itself_through_a_service_and_a_sidecars_port_has_its_name(space: Space) -> None:
    server = space.address("server")
    sidecar = {"name": "side", "image": IMAGE, "command": ["python3", "-c", WIRE, "[]"], "restartPolicy": "Always",
               "ports": [{"name": "wire", "containerPort": 7000}]}  # fmt: skip
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "self"}, "spec": {
        "selector": {"app": "self"}, "ports": [{"port": 80, "targetPort": 7000}]}}  # fmt: skip
    guarded = pod("self", "sleep", "3600", initContainers=[sidecar])
    space.create(service, guarded, policy("self", "self", ingress=[], egress=[]))
    own = space.address("self")
    at = space.lab.get("service", "self", "-n", space.name)["spec"]["clusterIP"]
    program = "import socket; w = socket.create_connection(('{}', {}), 20); w.send(b'x'); print('got', w.recv(9))"
    got = "got b'x'"
    space.lab.wait("the Service", lambda: got in space.python("self", program.format(at, 80)))
    assert got in space.python("self", program.format(own, 7000))
    assert got not in space.python("self", program.format(server, 7000)), "it is guarded"
    assert not reached(space, own, 7000)
    space.create(policy("by-name", "self", ingress=[{"ports": [{"port": "wire"}]}]))
    space.lab.wait("the port by name", lambda: reached(space, own, 7000))


@pytest.mark.usefixtures("lab")
def test_b6_other_users_of_the_machine_read_no_pods_data() -> None:
    assert stat.S_IMODE(STATE.stat().st_mode) == 0o700
    done = subprocess.run(
        ["ls", STATE / "shared"], capture_output=True, text=True, check=False, user=65534, group=65534, extra_groups=[],
        cwd="/",
    )  # fmt: skip
    assert "Permission denied" in done.stderr


def test_b7_the_api_server_uses_the_kubelets_and_is_nobody_else(space: Space) -> None:
    assert "kube" in space.kubectl("exec", "server", "--", "cat", "/proc/1/cgroup")
    space.kubectl("logs", "server")
    user = "--as=kube-apiserver-kubelet-client"
    lab = space.lab
    assert lab.kubectl("auth", "can-i", "*", "*", user, check=False).startswith("no")
    assert lab.kubectl("auth", "can-i", "list", "secrets", "-A", user, check=False).startswith("no")
    assert lab.kubectl("auth", "can-i", "create", "nodes", "--subresource=proxy", user, check=False).startswith("yes")
    subject = subprocess.run(
        ["openssl", "x509", "-noout", "-subject", "-in", STATE / "pki/kubelet-client.crt"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "system:masters" not in subject


def test_b7_a_pod_of_any_namespace_sends_in_no_other_name(space: Space) -> None:
    """Without NET_RAW there is no ARP of its own; ping works without it."""
    program = "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('raw')"
    answer = space.python("neighbour", program)
    assert "PermissionError" in answer, answer
    ping = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); print('ping')"
    assert space.python("neighbour", ping) == "ping\n"
    container: Json = {"name": "c", "image": IMAGE, "securityContext": {"capabilities": {"add": ["NET_RAW"]}}}
    raw = yaml.safe_dump(pod("raw", containers=[container]))
    answer = space.kubectl("create", "-f", "-", stdin=raw, check=False)
    assert 'violates PodSecurity "baseline:latest"' in answer
