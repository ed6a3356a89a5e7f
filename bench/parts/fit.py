"""How long `fit` and `why` take to answer once the state has been read: 1,000 nodes, 10,000 pods, 100 queues.

For a job of 100 pods that fits, one that must wait, and one that a taint keeps out. Seconds are of CPU time.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from bench.figures import figure
from bench.part import Part
from gangplank.scheduling import amounts
from gangplank.scheduling.fit import fit
from gangplank.scheduling.snapshot import Pods, Snapshot
from gangplank.scheduling.why import Situation, diagnose
from tests.unit.scheduling.states import CAPACITY, Json, group, job, node, pod, queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("fit and why on 1,000 nodes with 10,000 pods", minutes=1)
NODES, PODS, QUEUES, WORKERS, ROUNDS = 1000, 10_000, 100, 99, 5
LIMIT_S = 1.0
TAINT = {"key": "dedicated", "value": "other", "effect": "NoSchedule"}
CASES = {  # cores that each pod of the job wants, and whether the nodes are tainted
    "fits": ("a job that fits", "1", False),
    "waits": ("a job that must wait", "31", False),
    "tainted": ("a job that a taint keeps out", "1", True),
}


def objects(seed: int, pods: int = PODS, *, tainted: bool) -> dict[str, tuple[Json, ...]]:
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


def answer_s(seed: int, cpu: str, pods: int = PODS, *, tainted: bool) -> tuple[float, float]:
    """Seconds of `fit` alone, and of `fit` and `why`, on a cluster of its own."""
    state_of = objects(seed, pods, tainted=tainted)
    wanted = job(workers=WORKERS, resources={"cpu": cpu, "memory": "1Gi"})
    amounts._REQUESTS.clear()  # as in a command of its own
    started = time.process_time()
    rest: dict[str, Any] = {kind: items for kind, items in state_of.items() if kind != "pods"}
    state = Snapshot(pods=Pods(state_of["pods"]), settings=CAPACITY, **rest)
    fit(wanted, state)
    fitted = time.process_time() - started
    diagnose(Situation("digits", wanted, state))
    return fitted, time.process_time() - started


def measure(setting: Setting) -> Iterator[Figure]:
    """A figure per case."""
    for name, (title, cpu, tainted) in CASES.items():
        rounds = [answer_s(seed, cpu, tainted=tainted) for seed in range(ROUNDS)]
        setting.say(f"{title}: {ROUNDS} clusters")
        yield figure(f"fit.{name}", f"fit and why, {title}", "s", [both for _, both in rounds], goal=LIMIT_S)
