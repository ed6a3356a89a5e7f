"""How long `fit` and `why` take to answer once the state has been read: 1,000 nodes, 10,000 pods, 100 queues.

For a job of 100 pods that fits, one that must wait, one that a taint keeps out, and the same with a volume whose CSI
driver limits how many a node may have, as all pods have them. Seconds are of CPU time. The floor is to read the same
objects from JSON, which every program that answers has to do first.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figures import Beside, figure
from bench.part import Part
from gangplank.scheduling import amounts
from gangplank.scheduling.fit import fit
from gangplank.scheduling.snapshot import Pods, Snapshot
from gangplank.scheduling.why import Situation, diagnose
from tests.unit.scheduling.states import CAPACITY, Json, group, job, node, pod, queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("fit and why on 1,000 nodes with 10,000 pods", minutes=1)
NODES, PODS, QUEUES, WORKERS, ROUNDS = 1000, 10_000, 100, 99, 5
LIMIT_S = 1.0
TAINT = {"key": "dedicated", "value": "other", "effect": "NoSchedule"}
DRIVER = "disk.example.com"
MOUNT = [{"claim": "data", "mount": "/data", "on": "all", "access": "ReadWriteMany"}]


class Case(NamedTuple):
    """One job on one kind of cluster."""

    title: str
    cpu: str = "1"  # of each of its pods
    tainted: bool = False
    mounts: bool = False  # whether all pods have volumes of a CSI driver


CASES = {
    "fits": Case("a job that fits"),
    "waits": Case("a job that must wait", cpu="31"),
    "tainted": Case("a job that a taint keeps out", tainted=True),
    "mounts": Case("a job with a volume that a taint keeps out", tainted=True, mounts=True),
}


def objects(seed: int, pods: int, *, tainted: bool) -> dict[str, tuple[Json, ...]]:
    """The objects of one cluster."""
    chance = random.Random(seed)  # noqa: S311  a measurement's own cluster
    nodes = [node(f"n{number}", cpu="32", taints=(TAINT,) if tainted else ()) for number in range(pods // 10)]
    places = [f"n{chance.randrange(len(nodes))}" for _ in range(pods)]
    running = [
        pod(f"p{number}", where, cpu=f"{chance.choice((250, 500, 1000, 2000))}m", group=f"g{number % QUEUES}")
        for number, where in enumerate(places)
    ]
    queues = [queue("root"), queue("default"), *(queue(f"q{number}") for number in range(QUEUES))]
    groups = [group(f"g{number}", f"q{number}") for number in range(QUEUES)]
    return {"nodes": tuple(nodes), "pods": tuple(running), "queues": tuple(queues), "groups": tuple(groups)}


def volumes(state_of: Mapping[str, Sequence[Json]]) -> dict[str, Any]:
    """A volume for each pod and for the job, and nodes that may have 110 of them, as many as pods."""
    users = [("vision", "data"), *((one["metadata"]["namespace"], one["metadata"]["name"]) for one in state_of["pods"])]
    for one in state_of["pods"]:
        one["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": one["metadata"]["name"]}}]
    having = [{"name": DRIVER, "allocatable": {"count": 110}}]
    spec = {"accessModes": ["ReadWriteMany"], "volumeName": "v-data"}
    claim = {"metadata": {"name": "data", "namespace": "vision"}, "spec": spec, "status": {"phase": "Bound"}}
    return {
        "claims": (claim,),
        "volumes": tuple({
            "metadata": {"name": f"v-{name}"},
            "spec": {"claimRef": {"namespace": namespace, "name": name}, "csi": {"driver": DRIVER}},
        } for namespace, name in users),
        "csi_nodes": tuple({"metadata": one["metadata"], "spec": {"drivers": having}} for one in state_of["nodes"]),
        "ignored": frozenset[str](),
    }  # fmt: skip


def state_and_more(seed: int, case: Case, pods: int) -> tuple[dict[str, tuple[Json, ...]], dict[str, Any]]:
    """The objects of a case's cluster, and those of its volumes."""
    state_of = objects(seed, pods, tainted=case.tainted)
    return state_of, volumes(state_of) if case.mounts else {}


def read_s(seed: int, case: Case, pods: int = PODS) -> float:
    """Seconds to read the same objects from JSON."""
    text = json.dumps(state_and_more(seed, case, pods), default=list)
    started = time.process_time()
    json.loads(text)
    return time.process_time() - started


def answer_s(seed: int, case: Case, pods: int = PODS) -> tuple[float, float]:
    """Seconds of `fit` alone, and of `fit` and `why`, on a cluster of its own."""
    state_of, more = state_and_more(seed, case, pods)
    mount: dict[str, Any] = {"volumes": MOUNT} if case.mounts else {}
    wanted = job(workers=WORKERS, resources={"cpu": case.cpu, "memory": "1Gi"}, **mount)
    amounts._REQUESTS.clear()  # as in a command of its own
    started = time.process_time()
    rest: dict[str, Any] = {kind: items for kind, items in state_of.items() if kind != "pods"}
    state = Snapshot(pods=Pods(state_of["pods"]), settings=CAPACITY, **rest, **more)
    fit(wanted, state)
    fitted = time.process_time() - started
    diagnose(Situation("digits", wanted, state))
    return fitted, time.process_time() - started


def measure(setting: Setting) -> Iterator[Figure]:
    """A figure per case."""
    for name, case in CASES.items():
        rounds = [(answer_s(seed, case)[1], read_s(seed, case)) for seed in range(ROUNDS)]
        both, read = zip(*rounds, strict=True)
        setting.say(f"{case.title}: {ROUNDS} clusters")
        floor = Beside.of("the same objects read from JSON", read)
        yield figure(f"fit.{name}", f"fit and why, {case.title}", "s", both, floor=floor, goal=LIMIT_S)
