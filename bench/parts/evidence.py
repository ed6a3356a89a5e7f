"""What evidence costs: the trainer's own, and the observer's of a script that knows nothing of it.

By pairs: the same training with and without it, by the CPU time (user and system) of all ranks without torch's import.
Both run at the same time on the same core, and another pair on the other core: what slows a core down for a while slows
both of a pair. One after the other, or each on a core of its own, they differ by some percent, as other guests of a
host come and go. And by what the code counts of itself. Short trainings show what is spent once, long ones what is
spent at every step.
"""

from __future__ import annotations

import functools
import os
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

PART = Part("What evidence costs", minutes=11, lab=Lab.DOWN)
ROUNDS = 10
GOAL = 1  # percent of a run's CPU time
SCRIPT = ["32", "0.05", "0.9"]  # batch of each rank, learning rate, momentum


class Training(NamedTuple):
    """A training of two ranks that is measured."""

    title: str
    arguments: Sequence[str]
    observed: bool = False
    goal: bool = True
    """Of a training that is too short for it, the cost is shown without the goal."""


LARGE = ["--data", "synthetic", "--model", "large", "--learning-rate", "0.01", "--batch-size", "64"]
TRAININGS = {
    "digits": Training("digits, 12 epochs", ["--data", "digits", "--batch-size", "48", "--epochs", "12"], goal=False),
    "digits-long": Training("digits, 100 epochs", ["--data", "digits", "--batch-size", "48", "--epochs", "100"]),
    "large": Training("1.1 million parameters, 4 epochs", [*LARGE, "--epochs", "4"]),
    "script": Training("a plain script, 6 epochs", ["6", *SCRIPT], observed=True, goal=False),
    "script-long": Training("a plain script, 60 epochs", ["60", *SCRIPT], observed=True),
}


def start(root: Root, one: Training, kind: str, core: int, port: object) -> Running:
    """Start a training with or without it, both ranks on one core."""
    env = {"BENCH_CORE": str(core)}
    if not one.observed:
        flags = [kind, *one.arguments, *QUIET, "--output", root.new()]
        return root.start([0, 1], 2, *flags, port=port, script="/out/evidence_cpu.py", env=env)
    env |= {"OUT": f"{root.new()}/model.pt", "TORCHELASTIC_USE_AGENT_STORE": "True", "GANGPLANK_OBSERVE": "0"}
    return root.start([0, 1], 2, kind, "/out/plain.py", *one.arguments, port=port, script="/out/observer_cpu.py",
                      env=env)  # fmt: skip


def pairs(root: Root, name: str, cores: Sequence[int]) -> dict[str, float]:
    """A round of a training: on each core one with and one without it, all at the same time."""
    spent, counted, loading = {"with": 0.0, "without": 0.0}, 0.0, 0.0
    stores = [root.store() for _ in cores for _ in spent]
    places = [(core, kind) for core in cores for kind in spent]
    began = [start(root, TRAININGS[name], kind, core, store["port"])
             for (core, kind), store in zip(places, stores, strict=True)]  # fmt: skip
    for (_, kind), running in zip(places, began, strict=True):
        rows = [rank.event("cpu") for rank in ok(running.wait())]
        spent[kind] += sum(row["run"] for row in rows)
        if kind == "with":
            counted += sum(row["counted"] for row in rows)
            loading += sum(row.get("loading", 0.0) for row in rows)
    for store in stores:
        root.close_store(store)
    return {
        f"{name}.cpu": spent["with"] / len(cores),
        f"{name}.without": spent["without"] / len(cores),
        f"{name}.added": 100 * (spent["with"] / spent["without"] - 1),
        f"{name}.counted": 100 * counted / spent["with"],
        f"{name}.loading": 1000 * loading / (2 * len(cores)),
    }


def figures(values: dict[str, list[float]]) -> Iterator[Figure]:
    """The rounds, summed up."""
    for name, one in TRAININGS.items():
        goal = GOAL if one.goal else None
        bare = Beside.of("without", values[f"{name}.without"])
        yield figure(f"evidence.{name}.cpu", f"CPU time of both ranks, {one.title}", "s", values[f"{name}.cpu"],
                     floor=bare)  # fmt: skip
        for key, title in {"added": "added, by pairs", "counted": "as it counts itself"}.items():
            yield figure(f"evidence.{name}.{key}", f"{title}, {one.title}", "%", values[f"{name}.{key}"], goal=goal)
        if one.observed:
            yield figure(f"evidence.{name}.loading", f"to load the observer, {one.title}", "ms",
                         values[f"{name}.loading"])  # fmt: skip


def measure(setting: Setting) -> Iterator[Figure]:
    """All rounds, one after the other."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        fix = "measure on a machine with two cores"
        raise BenchError(str(Problem("cores of this machine", str(len(cores)), "2, one for each pair", fix)))
    with training(setting) as root:
        works = [functools.partial(pairs, root, name, cores) for name in TRAININGS]
        rounds = in_rounds(ROUNDS, works, setting.say)
    yield from figures(rounds)
