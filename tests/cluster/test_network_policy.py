"""Every form of a NetworkPolicy keeps out whom it has to, on the node itself and between nodes, and nobody else."""

from __future__ import annotations

import functools
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.teams_live import answer, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
POLICIES = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
# Serves on two ports; asked for ?to=ADDRESS:PORT it tries to get there itself.
PROGRAM = """
import http.server, socket, threading, urllib.parse
class Probe(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        to = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["to"][0].split(":")
        try:
            socket.create_connection((to[0], int(to[1])), 1.5).close()
            answer = b"yes"
        except OSError:
            answer = b"no"
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
servers = [http.server.ThreadingHTTPServer(("", port), Probe) for port in (8000, 9000)]
threading.Thread(target=servers[0].serve_forever).start()
servers[1].serve_forever()
"""
WAYS = ("friend 8000", "friend 9000", "other 8000", "other 9000")  # to the server; `other` is in another namespace
FRIEND = {"podSelector": {"matchLabels": {"app": "friend"}}}
SERVER = {"podSelector": {"matchLabels": {"app": "server"}}}
OTHERS = {"namespaceSelector": {"matchLabels": {"of": "others"}}}
ALL, NONE = set(WAYS), set[str]()


def said(*terms: tuple[str, ...]) -> Json:
    """Pods by expressions: key, operator, values."""
    expressions = [
        {"key": key, "operator": operator, **({"values": words} if words else {})} for key, operator, *words in terms
    ]
    return {"podSelector": {"matchExpressions": expressions}}


# (what, who is guarded, the rules, which ways are open); {friend} is that pod's address
CASES: tuple[tuple[str, str, Json, set[str]], ...] = (
    ("nothing in", "server", {"ingress": []}, NONE),
    ("everything in", "server", {"ingress": [{}]}, ALL),
    ("pods of the namespace", "server", {"ingress": [{"from": [{"podSelector": {}}]}]}, {*WAYS[:2]}),
    ("some pods of the namespace", "server", {"ingress": [{"from": [SERVER]}]}, NONE),
    ("another namespace", "server", {"ingress": [{"from": [OTHERS]}]}, {*WAYS[2:]}),
    ("some pods of another namespace", "server", {"ingress": [{"from": [OTHERS | SERVER]}]}, NONE),
    ("either", "server", {"ingress": [{"from": [OTHERS, FRIEND]}]}, ALL),
    ("expressions that hold", "server", {"ingress": [{"from": [said(
        ("app", "In", "friend"), ("app", "NotIn", "server"), ("app", "Exists"), ("none", "DoesNotExist"))]}]},
        {*WAYS[:2]}),
    ("expressions of which none holds", "server", {"ingress": [{"from": [
        said(("app", "In", "server")), said(("app", "NotIn", "friend")), said(("none", "Exists")),
        said(("app", "DoesNotExist"))]}]}, NONE),
    ("a port", "server", {"ingress": [{"ports": [{"port": 9000}]}]}, {WAYS[1], WAYS[3]}),
    ("a port by name", "server", {"ingress": [{"ports": [{"port": "web"}]}]}, {WAYS[0], WAYS[2]}),
    ("a range of ports", "server", {"ingress": [{"ports": [{"port": 8500, "endPort": 9500}]}]}, {WAYS[1], WAYS[3]}),
    ("another protocol", "server", {"ingress": [{"ports": [{"port": 8000, "protocol": "UDP"}]}]}, NONE),
    (
        "addresses but one",
        "server",
        {"ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["{friend}/32"]}}]}]},
        {*WAYS[2:]},
    ),
    ("nothing out", "friend", {"egress": []}, {*WAYS[2:]}),
    ("out to a port", "friend", {"egress": [{"to": [SERVER], "ports": [{"port": "web"}]}]}, ALL - {WAYS[1]}),
    ("out to others", "friend", {"egress": [{"to": [OTHERS]}]}, {*WAYS[2:]}),
)  # fmt: skip


@pytest.fixture(scope="module")
def spaces(kube: Kube) -> Iterator[tuple[str, str]]:
    """Two namespaces of our own."""
    run = uuid.uuid4().hex[:6]
    names = f"policies-{run}", f"others-{run}"
    for name, labels in zip(names, ({}, {"of": "others"}), strict=True):
        kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    yield names
    for name in names:
        kube.call("DELETE", f"/api/v1/namespaces/{name}")


def created(kube: Kube, where: str, pod: dict[str, Any]) -> bool:
    """Whether the pod is created now: the service account of a new namespace may take a moment."""
    return not answer(kube, "POST", where, pod)


@pytest.fixture(scope="module")
def pods(kube: Kube, spaces: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """The namespace and the address of each pod; `friend` is on the server's node, `other` is not."""
    nodes = sorted(item["metadata"]["name"] for item in kube.call("GET", "/api/v1/nodes")["items"])
    places = {"server": (spaces[0], nodes[0]), "friend": (spaces[0], nodes[0]), "other": (spaces[1], nodes[-1])}
    assert nodes[0] != nodes[-1]
    for name, (space, node) in places.items():
        container = {
            "name": "main",
            "image": "gangplank.dev/trainer:0.1.0",
            "command": ["python3", "-c", PROGRAM],
            "ports": [{"name": "web", "containerPort": 8000}],
            "readinessProbe": {"tcpSocket": {"port": 9000}, "periodSeconds": 1},
        }
        spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
        where = f"/api/v1/namespaces/{space}/pods"
        pod = {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
        until(functools.partial(created, kube, where, pod), f"{name} is created")
    items: dict[str, tuple[str, str]] = {}

    def ready(name: str) -> bool:
        status = kube.call("GET", f"/api/v1/namespaces/{places[name][0]}/pods/{name}")["status"]
        items[name] = places[name][0], status.get("podIP", "")
        return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))

    for name in places:
        until(functools.partial(ready, name), f"{name} is ready")
    return items


def open_ways(kube: Kube, pods: dict[str, tuple[str, str]]) -> set[str]:
    """The ways that are open now."""

    def ask(way: str) -> bool:
        name, port = way.split()
        where = f"/api/v1/namespaces/{pods[name][0]}/pods/{name}:8000/proxy/"
        body: bytes = kube.open("GET", where, query={"to": f"{pods['server'][1]}:{port}"}).data
        return body == b"yes"

    with ThreadPoolExecutor(len(WAYS)) as pool:
        return {way for way, there in zip(WAYS, pool.map(ask, WAYS), strict=True) if there}


@pytest.mark.parametrize(("who", "rules", "expected"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_a_policy_opens_these_ways_and_no_others(
    kube: Kube, pods: dict[str, tuple[str, str]], who: str, rules: Json, expected: set[str]
) -> None:
    text = str(rules)
    if "{friend}" in text:
        rules["ingress"][0]["from"][0]["ipBlock"]["except"] = [f"{pods['friend'][1]}/32"]
    kinds = [{"ingress": "Ingress", "egress": "Egress"}[key] for key in rules]
    spec = {"podSelector": {"matchLabels": {"app": who}}, "policyTypes": kinds, **rules}
    place = POLICIES.format(pods[who][0])
    kube.call("POST", place, {"metadata": {"name": "probe"}, "spec": spec})
    try:
        until(lambda: open_ways(kube, pods) == expected, f"exactly {sorted(expected) or 'no way'} open")
    finally:
        kube.call("DELETE", f"{place}/probe")
        until(lambda: open_ways(kube, pods) == ALL, "all ways open again")
