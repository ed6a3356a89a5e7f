"""How long `fit` and `why` take to answer, once the state has been read: `make bench-why`.

1,000 nodes, 10,000 pods and 100 queues, for a job of 100 pods that fits, that must wait, and that a taint keeps out.
Seconds are of processor time, so that other work on the machine does not count.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gangplank.scheduling import amounts
from gangplank.scheduling.fit import fit
from gangplank.scheduling.snapshot import Pods, Snapshot
from gangplank.scheduling.why import Situation, diagnose
from tests.unit.scheduling.states import CAPACITY, Json, group, job, node, pod, queue

NODES, PODS, QUEUES, WORKERS, ROUNDS = 1000, 10_000, 100, 99, 5
LIMIT_S = 1.0
TAINT = {"key": "dedicated", "value": "other", "effect": "NoSchedule"}


def objects(seed: int, *, tainted: bool) -> dict[str, tuple[Json, ...]]:
    """The objects of one cluster."""
    chance = random.Random(seed)  # noqa: S311  a measurement's own cluster
    nodes = [node(f"n{number}", cpu="32", taints=(TAINT,) if tainted else ()) for number in range(NODES)]
    places = [f"n{chance.randrange(NODES)}" for _ in range(PODS)]
    pods = [
        pod(f"p{number}", where, cpu=f"{chance.choice((250, 500, 1000, 2000))}m", group=f"g{number % QUEUES}")
        for number, where in enumerate(places)
    ]
    queues = [queue("root"), queue("default"), *(queue(f"q{number}") for number in range(QUEUES))]
    groups = [group(f"g{number}", f"q{number}") for number in range(QUEUES)]
    return {"nodes": tuple(nodes), "pods": tuple(pods), "queues": tuple(queues), "groups": tuple(groups)}


def measured(case: str, cpu: str, *, tainted: bool) -> float:
    """The median of a case, with the first answer's shape."""
    seconds, fits = [], []
    for seed in range(ROUNDS):
        parts = objects(seed, tainted=tainted)
        wanted = job(workers=WORKERS, resources={"cpu": cpu, "memory": "1Gi"})
        amounts._REQUESTS.clear()  # as in a command of its own
        started = time.process_time()
        state = Snapshot(pods=Pods(parts["pods"]), settings=CAPACITY, **{k: v for k, v in parts.items() if k != "pods"})
        answer = fit(wanted, state)
        fits.append(time.process_time() - started)
        diagnosis = diagnose(Situation("digits", wanted, state))
        seconds.append(time.process_time() - started)
    said = diagnosis.cause.code if diagnosis.cause else "-"
    both = statistics.median(seconds)
    fitted = statistics.median(fits)
    print(f"{case:24} fit {fitted:6.3f} s   fit and why {both:6.3f} s   {answer.verdict.value}, {said}")
    return both


def main() -> int:
    """Print the table; 1 if a case takes longer than promised."""
    print(f"{NODES} nodes, {PODS} pods, a job of {WORKERS + 1} pods; median of {ROUNDS} clusters")
    slowest = max(
        measured("it fits", "1", tainted=False),
        measured("others hold the nodes", "31", tainted=False),
        measured("a taint keeps it out", "1", tainted=True),
    )
    return int(slowest > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
