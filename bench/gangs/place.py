"""Where gangs start: a namespace and simulated nodes, and how they become empty again."""

from __future__ import annotations

import contextlib
import functools
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bench.part import BenchError
from bench.programs import requests
from gangplank.backends import BACKENDS
from gangplank.errors import KubeError
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
NODES, SIZE = 100, {"cpu": "16", "memory": "64Gi"}
LABELS = {"simulated": "gangs"}
HOME = "bench-gangs"
PODS = f"/api/v1/namespaces/{HOME}/pods"
VOLCANO_JOBS = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{HOME}/jobs"
JOBS = f"/apis/batch/v1/namespaces/{HOME}/jobs"
POD_GROUPS = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{HOME}/podgroups"
WITH_PODS = {"propagationPolicy": BACKENDS["volcano"].propagation}
CLIENTS = 16  # connections that create, and of the bare client
LIMIT_S, LEAST_RATE = 300, 5  # pods a second: more pods have more time
EMPTY_S = 1200  # for 10,000 pods
PAGE = {"limit": "1000"}  # what one request lists or removes: more would take longer than a client waits
QUIET = 6  # looks in a row, half a second apart, that saw nothing left of a run
STILL, STILL_S = 4, 300  # the same of its requests: controllers still report on 1,000 pods, at 20 requests a second
EVENTS = f"/api/v1/namespaces/{HOME}/events"
# Of a run; a lab writes others all the time: it reports 1,000 new nodes for ten minutes, which is POST events.
WRITES = re.compile(r"(?!GET|LIST)\w+ (pods|jobs|podgroups)\b|PATCH events")


def limit_s(pods: int) -> float:
    """How long so many pods may take.

    >>> limit_s(1000), limit_s(10_000)
    (300, 2000.0)
    """
    return max(LIMIT_S, pods / LEAST_RATE)


def warnings(kube: Kube) -> Iterable[Json]:
    """Events of the namespace that report something wrong."""
    query = {"fieldSelector": "type=Warning"}
    items: list[Json] = kube.call("GET", EVENTS, query=query)["items"]
    return items


def cleared(kube: Kube) -> None:
    """No job, no pod, no event is left of the last run."""
    empty, left = 0, 0
    for _ in polls(EMPTY_S, 0.5):
        kube.call("DELETE", VOLCANO_JOBS, WITH_PODS, repeat=True)
        for path in (JOBS, POD_GROUPS):
            kube.call("DELETE", path, {"propagationPolicy": "Background"}, repeat=True)
        left = without_pods(kube) + sum(len(kube.call("GET", path)["items"]) for path in (VOLCANO_JOBS, JOBS))
        empty = 0 if left else empty + 1
        if empty == QUIET:  # a controller that worked on a removed job may have created another pod of it
            break
    else:
        raise BenchError(late(HOME, f"{left} pods and jobs", "none", EMPTY_S))
    forgotten(kube)


def without_pods(kube: Kube) -> int:
    """Remove all pods, and say how many there were; of a collection, the API server removes one after another."""
    count = 0
    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in polls(EMPTY_S, 0):
            items = kube.call("GET", PODS, query=PAGE)["items"]
            if not items:
                break
            list(pool.map(functools.partial(let_go, kube), items))
            count += len(items)
    return count


def still(kube: Kube) -> None:
    """Wait until no controller writes anything of the last run: it would be counted and timed with the next one."""
    before, looks = dict[str, float](), 0
    for _ in polls(STILL_S, 0.5):
        now = {name: count for name, count in requests(kube).items() if WRITES.match(name)} | reported(kube)
        new = sorted(name for name, count in now.items() if count != before.get(name))
        before, looks = now, 0 if new else looks + 1
        if looks == STILL:
            return
    raise BenchError(late("API server", ", ".join(new), "no request of the last run", STILL_S))


def reported(kube: Kube) -> dict[str, float]:
    """How many events the namespace has."""
    first = kube.call("GET", EVENTS, query={"limit": "1"})
    return {f"events of {HOME}": len(first["items"]) + first["metadata"].get("remainingItemCount", 0)}


def forgotten(kube: Kube) -> None:
    """No event of the last run is left."""
    for _ in polls(EMPTY_S, 0):
        kube.call("DELETE", EVENTS, query=PAGE, repeat=True)
        if not any(reported(kube).values()):
            return
    raise BenchError(late(f"events of {HOME}", "some", "none", EMPTY_S))


def let_go(kube: Kube, pod: Json) -> None:
    """Remove a pod, if it is still there, and its finalizers: a Job's controller sends 20 requests a second."""
    where = f"{PODS}/{pod['metadata']['name']}"
    with contextlib.suppress(KubeError):
        if pod["metadata"].get("finalizers"):
            kube.call("PATCH", where, {"metadata": {"finalizers": None}})
        kube.call("DELETE", where, {"gracePeriodSeconds": 0}, repeat=True)


def removed(kube: Kube) -> None:
    """The namespace and the nodes are gone."""
    query = {"labelSelector": ",".join(f"{key}={value}" for key, value in LABELS.items())}
    kube.call("DELETE", "/api/v1/nodes", query=query, repeat=True)
    where = f"/api/v1/namespaces/{HOME}"
    for _ in polls(LIMIT_S, 0.5):
        live = kube.get(where)
        if not live:
            return
        if "deletionTimestamp" not in live["metadata"]:
            kube.call("DELETE", where)
    raise BenchError(late(f"namespace {HOME}", "one that is being removed", "none", LIMIT_S))
