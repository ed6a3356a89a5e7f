"""Random mixes of nodes, queues and jobs for `gangplank fit`: jobs that run, and then one more. Fixed by their seed.

Each mix has one subject, which decides about the last job. In every second mix of a subject, that job asks for more
than there can be: so about half of all last jobs must wait.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from lab.simulated import TOLERATION

Json = dict[str, Any]
HOME = "fit-mixes"
SPECIAL = {"key": "mix.example.com/special", "value": "yes", "effect": "NoSchedule"}
PRIORITIES = {"mix-low": -10, "mix-high": 10}
GPU, GPUS = "nvidia.com/gpu", 4  # of every third node, where GPUs are the subject
SUBJECTS = ("nodes", "taints", "gpus", "priority", "quota", "cap", "guarantee", "tree", "reclaim", "nodes")
OF_QUEUES = {"cap", "guarantee", "tree", "reclaim"}
LENT = {"tree", "reclaim"}  # where a queue beside the last job's has the jobs that run
HELD = {"priority": 0.9, "reclaim": 1.0}  # the share that jobs hold which run, where it is not drawn


@dataclass(frozen=True)
class Mix:
    """A site, and the jobs on it in their order; the last one is the one that is asked about."""

    seed: int
    subject: str
    waits: bool  # whether the last job asks for more than there can be
    plain: tuple[Json, ...]  # what nodes have
    special: tuple[Json, ...]  # what nodes have that carry SPECIAL
    queues: tuple[Json, ...]  # parents first
    quota_cores: int  # of the namespace; 0: no quota
    jobs: tuple[Json, ...]

    @property
    def label(self) -> str:
        """What its objects are called, and what its nodes are labelled."""
        return label_of(self.seed)


def label_of(seed: int) -> str:
    """What the objects of a mix are called."""
    return f"mix-{seed}"


def queue(name: str, parent: str = "", **spec: Any) -> Json:
    """A queue."""
    above = {"parent": parent} if parent else {}
    return {"metadata": {"name": name}, "spec": {"weight": 1, "reclaimable": False, **above, **spec}}


def mix(seed: int) -> Mix:
    """The mix of a seed."""
    dice = random.Random(seed)
    subject, waits = SUBJECTS[seed % len(SUBJECTS)], (seed + seed // len(SUBJECTS)) % 2 == 0
    cores = [dice.choice([2, 4, 8]) for _ in range(dice.randint(20, 100))]
    cut = len(cores) // 2 if subject == "taints" else len(cores)
    sizes = [size(number, one, gpus=subject == "gpus") for number, one in enumerate(cores)]
    total = sum(cores[:cut])  # of the nodes that the jobs may use
    limit = {"gpus": sum(int(one.get(GPU, "0")) for one in sizes), "quota": total // 2}.get(subject, total)
    if subject in OF_QUEUES - {"reclaim"}:
        limit = dice.randint(total // 4, total // 2)
    queues = queues_of(subject, label_of(seed), limit, again=not waits)
    own, other = (str(queues[number]["metadata"]["name"]) for number in (-1, -2 if subject in LENT else -1))
    low, high = ("mix-low", "mix-high") if subject == "priority" else ("", "")
    jobs, left = list[Json](), int(limit * (HELD.get(subject) or dice.uniform(0.2, 0.6)))
    count = dice.randint(1, 3)
    for number in range(count):
        each = 2 if subject in HELD else 1
        part = left // 2 if number < count - 1 else left
        jobs += [described(dice, seed, str(number), part // each, each, subject, other, low)] if part >= each else []
        left -= part // each * each
    each = 1 if subject == "gpus" else dice.choice([1, 2])
    room = limit if subject in HELD else limit - sum((one["workers"] + 1) * int(cores_of(one)) for one in jobs)
    most = (room // 2 if subject == "reclaim" else room) // each
    more = waits and subject != "reclaim"  # there, it waits since nobody has to give anything back
    pods = most + dice.randint(1, 5) if more else max(1, int(most * dice.uniform(0.2, 0.8)))
    last = described(dice, seed, "last", pods, each, subject, own, high)
    quota = limit if subject == "quota" else 0
    return Mix(seed, subject, waits, tuple(sizes[:cut]), tuple(sizes[cut:]), queues, quota, (*jobs, last))


def size(number: int, cores: int, *, gpus: bool) -> Json:
    """What one node has."""
    devices = {GPU: str(GPUS)} if gpus and number % 3 == 0 else {}
    cores = max(cores, 2 * GPUS) if devices else cores
    return {"cpu": str(cores), "memory": f"{4 * cores}Gi", **devices}


def queues_of(subject: str, label: str, cores: int, *, again: bool) -> tuple[Json, ...]:
    """Queues that leave so many cores to the last one; `again`: what it has lent, it gets back."""
    if subject == "cap":
        return (queue(label, capability={"cpu": str(cores)}),)
    if subject == "guarantee":
        half = {"cpu": str(cores // 2)}
        kept: Json = {"guarantee": {"resource": half}, "deserved": half}  # the webhook wants both
        top = queue(label, capability={"cpu": str(cores + cores // 2)}, **kept)
        return top, queue(f"{label}-b", label, **kept), queue(f"{label}-a", label)
    if subject == "tree":
        top = queue(label, capability={"cpu": str(cores)})
        return top, queue(f"{label}-b", label), queue(f"{label}-a", label)
    if subject == "reclaim":
        half = {"cpu": str(cores // 2)}
        lent = queue(f"{label}-b", label, deserved=half, reclaimable=again)
        return queue(label, deserved={"cpu": str(cores)}), lent, queue(f"{label}-a", label, deserved=half)
    return (queue(label),)


def cores_of(job: Json) -> str:
    """The cores of each pod of a job."""
    return str(job["resources"]["cpu"])


def described(
    dice: random.Random, seed: int, name: str, pods: int, cores: int, subject: str, home: str, priority: str
) -> Json:
    """A job on the nodes of a mix."""
    backend = "volcano" if subject in OF_QUEUES else dice.choice(["volcano", "volcano", "indexed"])
    if subject == "priority" and name == "last":
        backend = "indexed"  # Kubernetes' scheduler ends pods of a lower priority, whoever placed them
    devices = {"gpus": 1} if subject == "gpus" else {}
    job = {
        "name": f"{label_of(seed)}-{name}", "namespace": HOME, "backend": backend, "image": "a.example/b:1",
        "command": ["true"], "workers": pods - 1, "tolerations": [TOLERATION], "node_selector": {"mix": label_of(seed)},
        "resources": {"cpu": str(cores), "memory": f"{cores}Gi", **devices},
    }  # fmt: skip
    return job | ({"queue": home} if backend == "volcano" else {}) | ({"priority": priority} if priority else {})
