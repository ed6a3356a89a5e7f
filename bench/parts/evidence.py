"""What evidence and observation cost: the trainer's own, and the observer's of a script that knows nothing of it.

Evidence is what `gangplank proof` reads. Observation is what `gangplank why` reads: where a rank stands still, and
where the time of its steps goes.

In threes: the same training with both, with evidence alone, and without, by the CPU time (user and system) of all ranks
without torch's import. All run at the same time on the same core, and another three on the other core: what slows a
core down for a while slows all of them. One after the other, or each on a core of its own, they differ by some percent,
as other guests of a host come and go. And by what the code counts of its evidence. Short trainings show what is spent
once, long ones what is spent at every step.

A run's CPU time is more: each rank's interpreter and its imports. The ranks here are forks that inherit both, so they
are measured apart, once in each round, and added: a rank of a pod pays for them.
"""

from __future__ import annotations

import functools
import os
import resource
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from bench.figures import Beside, figure
from bench.part import BenchError, Lab, Part
from bench.training import QUIET, in_rounds, ok, training
from gangplank.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.figures import Figure
    from bench.part import Setting
    from tests.trainer.harness import Root, Running

PART = Part("What evidence and observation cost", minutes=27, lab=Lab.DOWN, usual=False)
ROUNDS = 10
RANKS = 2
KINDS = ("with", "evidence", "without")
GOAL = 1  # percent of a run's CPU time, imports included; without them it is the same goal, and a stricter one
COSTS = {
    "observation": "observation",
    "evidence": "evidence",
    "counted": "evidence, as it counts itself",
    "added": "both",
}
"""What is shown of each training, in percent. Each of the two has the goal; both together have it for a whole run."""
SCRIPT = ["32", "0.05", "0.9"]  # batch of each rank, learning rate, momentum


class Training(NamedTuple):
    """A training of two ranks that is measured."""

    title: str
    arguments: Sequence[str]
    observed: bool = False
    goal: bool = True
    """Of a training that is too short for it, the costs without imports are shown without the goal."""


LARGE = ["--data", "synthetic", "--model", "large", "--learning-rate", "0.01", "--batch-size", "64"]
TRAININGS = {
    "digits": Training("digits, 12 epochs", ["--data", "digits", "--batch-size", "48", "--epochs", "12"], goal=False),
    "digits-long": Training("digits, 70 epochs", ["--data", "digits", "--batch-size", "48", "--epochs", "70"]),
    "large": Training("1.1 million parameters, 3 epochs", [*LARGE, "--epochs", "3"]),
    "script": Training("a plain script, 6 epochs", ["6", *SCRIPT], observed=True, goal=False),
    "script-long": Training("a plain script, 45 epochs", ["45", *SCRIPT], observed=True),
}


def start(root: Root, one: Training, kind: str, core: int, port: object) -> Running:
    """Start a training of one of KINDS, both ranks on one core."""
    env = {"BENCH_CORE": str(core)}
    if not one.observed:
        flags = [kind, *one.arguments, *QUIET, "--output", root.new()]
        return root.start([0, 1], 2, *flags, port=port, script="/out/evidence_cpu.py", env=env)
    env |= {"OUT": f"{root.new()}/model.pt", "TORCHELASTIC_USE_AGENT_STORE": "True", "GANGPLANK_OBSERVE": "0"}
    return root.start([0, 1], 2, kind, "/out/plain.py", *one.arguments, port=port, script="/out/observer_cpu.py",
                      env=env)  # fmt: skip


def percent(more: float, less: float, bare: float) -> float:
    """What one run takes more than another, of the run with neither evidence nor observation.

    >>> percent(2.02, 2.01, 2.0)
    0.5
    """
    return round(100 * (more - less) / bare, 6)


def threes(root: Root, name: str, cores: Sequence[int]) -> dict[str, float]:
    """A round of a training: on each core one of each kind, all at the same time."""
    spent, whole, counted, loading = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0), 0.0, 0.0
    stores = [root.store() for _ in cores for _ in KINDS]
    places = [(core, kind) for core in cores for kind in KINDS]
    began = [start(root, TRAININGS[name], kind, core, store["port"])
             for (core, kind), store in zip(places, stores, strict=True)]  # fmt: skip
    for (_, kind), running in zip(places, began, strict=True):
        rows = [rank.event("cpu") for rank in ok(running.wait())]
        spent[kind] += sum(row["run"] for row in rows)
        whole[kind] += sum(row["process"] for row in rows)
        if kind == "with":
            counted += sum(row["counted"] for row in rows)
            loading += sum(row.get("loading", 0.0) for row in rows)
    for store in stores:
        root.close_store(store)
    bare = spent["without"]
    return {
        f"{name}.cpu": spent["with"] / len(cores),
        f"{name}.without": bare / len(cores),
        f"{name}.added": percent(spent["with"], bare, bare),
        f"{name}.observation": percent(spent["with"], spent["evidence"], bare),
        f"{name}.evidence": percent(spent["evidence"], bare, bare),
        f"{name}.counted": 100 * counted / spent["with"],
        f"{name}.loading": 1000 * loading / (RANKS * len(cores)),
        f"{name}.process.with": whole["with"] / len(cores),
        f"{name}.process.without": whole["without"] / len(cores),
    }


def imports(root: Root) -> dict[str, float]:
    """A round: CPU seconds of an interpreter with the imports that the ranks inherit."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)  # of those that have ended: the ranks' parent has not
    subprocess.run(root.command(["python3", "/tests/warm.py"]), stdin=subprocess.DEVNULL, capture_output=True,
                   check=True)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"imports": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def whole_percent(spent: float, bare: float, imports_s: float) -> float:
    """What both add to the CPU time of a whole run of both ranks, imports included.

    >>> whole_percent(3.0, 2.0, 1.0)
    25.0
    """
    return 100 * (spent - bare) / (bare + RANKS * imports_s)


def figures(values: dict[str, list[float]]) -> Iterator[Figure]:
    """The rounds, summed up."""
    for name, one in TRAININGS.items():
        goal = GOAL if one.goal else None
        bare = Beside.of("without", values[f"{name}.without"])
        yield figure(f"evidence.{name}.cpu", f"CPU time of both ranks, {one.title}", "s", values[f"{name}.cpu"],
                     floor=bare)  # fmt: skip
        for key, title in COSTS.items():
            yield figure(f"evidence.{name}.{key}", f"{title}, {one.title}", "%", values[f"{name}.{key}"],
                         goal=None if key == "added" else goal)  # fmt: skip
        rounds = zip(values[f"{name}.process.with"], values[f"{name}.process.without"], values["imports"], strict=True)
        yield figure(f"evidence.{name}.whole", f"both, of the whole run with its imports, {one.title}", "%",
                     [whole_percent(*row) for row in rounds], goal=GOAL)  # fmt: skip
        if one.observed:
            yield figure(f"evidence.{name}.loading", f"to load the observer, {one.title}", "ms",
                         values[f"{name}.loading"])  # fmt: skip
    yield figure("evidence.imports", "CPU time of a rank's interpreter and imports", "s", values["imports"])


def measure(setting: Setting) -> Iterator[Figure]:
    """All rounds, one after the other."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        fix = "measure on a machine with two cores"
        raise BenchError(str(Problem("cores of this machine", str(len(cores)), "2, one for each three", fix)))
    with training(setting) as root:
        rows = (functools.partial(threes, root, name, cores) for name in TRAININGS)
        works = [functools.partial(imports, root), *rows]
        rounds = in_rounds(ROUNDS, works, setting.say)
    yield from figures(rounds)
