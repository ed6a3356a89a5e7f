"""The floor: the requests of each pod's start by a client that does nothing else."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.gangs.jobs import volcano_job
from bench.gangs.place import CLIENTS, LABELS, LIMIT_S, NODES, PODS
from bench.gangs.start import Start
from bench.part import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.cluster.client import Kube

MANY = 2000  # pods; fewer take less than 20 s


class Bare:
    """A client that sends requests over connections that stay open."""

    def __init__(self, kube: Kube) -> None:
        settings = kube.api.configuration
        self.host = urlsplit(settings.host).netloc
        self.context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        self.context.load_cert_chain(settings.cert_file, settings.key_file)
        self.local = threading.local()
        self.opened: list[http.client.HTTPSConnection] = []

    def connect(self, together: threading.Barrier) -> None:
        """Open this thread's connection, and wait until all threads have theirs."""
        self.send("GET", "/version", b"")
        together.wait(LIMIT_S)

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self.opened:
            connection.close()

    def send(self, method: str, path: str, body: bytes) -> None:
        """One request, and its answer."""
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection(self.host, context=self.context, timeout=LIMIT_S)
            self.opened.append(self.local.connection)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        self.local.connection.request(method, path, body or None, {"Content-Type": kind})
        answer = self.local.connection.getresponse()
        text = answer.read()
        if answer.status >= http.client.BAD_REQUEST:
            raise BenchError(f"{method} {path}: got {answer.status} ({text[:200]!r}), expected success")


def status(name: str) -> bytes:
    """What KWOK says of a pod that has started."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = {"running": {"startedAt": now}}
    kinds = ("Initialized", "Ready", "ContainersReady")
    return json.dumps({"status": {
        "phase": "Running", "startTime": now, "podIP": "10.0.0.1", "hostIP": "10.0.0.1",
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
        "containerStatuses": [{"name": "worker", "image": "pause", "imageID": "", "restartCount": 0, "ready": True,
                               "started": True, "state": state}],
    }, "metadata": {"name": name}}).encode()  # fmt: skip


@contextlib.contextmanager
def targets(kube: Kube, pods: int) -> Iterator[list[str]]:
    """The names of nodes that are not KWOK's. They exist only for many pods.

    The controller manager removes pods whose node does not exist, but not before 40 s have passed.
    """
    names = [f"floor-{number}" for number in range(NODES)]
    created = names if pods > MANY else []
    for name in created:
        node = {"metadata": {"name": name, "labels": LABELS}, "spec": {"unschedulable": True}}
        kube.call("POST", "/api/v1/nodes", node)
    try:
        yield names
    finally:
        for name in created:
            kube.call("DELETE", f"/api/v1/nodes/{name}")


def replayed(kube: Kube, shape: tuple[int, int]) -> Start:
    """The floor: each pod is created, bound and started, by as many connections as there are."""
    count, size = shape
    pod = volcano_job("floor", size)["spec"]["tasks"][-1]["template"]
    pod |= {"apiVersion": "v1", "kind": "Pod"}
    pod["spec"]["schedulerName"] = "nobody"  # no scheduler looks at it
    bound, running = list[float](), list[float]()

    def one(number: int) -> None:
        name = f"floor-{number}"
        pod_of = {**pod, "metadata": {**pod["metadata"], "name": name}}
        target = {"apiVersion": "v1", "kind": "Node", "name": nodes[number % NODES]}
        client.send("POST", PODS, json.dumps(pod_of).encode())
        client.send("POST", f"{PODS}/{name}/binding", json.dumps({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}).encode())  # fmt: skip
        bound.append(time.monotonic())
        client.send("PATCH", f"{PODS}/{name}/status", status(name))
        running.append(time.monotonic())

    with (
        targets(kube, count * size) as nodes,
        contextlib.closing(Bare(kube)) as client,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        together = threading.Barrier(CLIENTS)
        for opened in [pool.submit(client.connect, together) for _ in range(CLIENTS)]:
            opened.result()
        begin = time.monotonic()
        for done in [pool.submit(one, number) for number in range(count * size)]:
            done.result()
    return Start(max(bound) - begin, max(running) - begin, (), 0)
