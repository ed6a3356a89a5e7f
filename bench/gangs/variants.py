"""Gangs that start while Volcano, or the lab's control plane, runs with other values: what the parts of it share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bench.flags import own_programs, start
from bench.gangs.place import cleared
from bench.gangs.site import prepared
from bench.gangs.ways import gangs, once
from bench.programs import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.gangs.release import Volcano
    from bench.gangs.start import Start
    from bench.part import Setting

Json = dict[str, Any]
ROUNDS = 3
OURS = "ours"


class Variant(NamedTuple):
    """What runs meanwhile."""

    values: Json
    """Volcano's."""
    change: Callable[[str], str] | None = None
    """Of the control plane's programs."""


class Run(NamedTuple):
    """One start, and MiB of all programs after it."""

    start: Start
    memory: float


Runs = dict[str, list[Run]]  # by the name of a variant


class Kind(NamedTuple):
    """One kind of figure of all runs."""

    key: str
    words: str
    unit: str
    values: dict[str, list[float]]
    """By the name of a variant, a value of each round."""


def fresh(volcano: Volcano, variant: Variant, programs: str) -> None:
    """Run a variant; control plane and Volcano start anew, whatever it changes.

    What runs for a while has a larger memory, and a longer list of what it knows.
    """
    start(variant.change(programs) if variant.change else programs)
    volcano.ready()
    volcano.use(variant.values)
    volcano.start_again()
    gangs(volcano, variant.values).start((1, 1))
    cleared(volcano.kube)


def started(
    setting: Setting, shapes: Mapping[str, tuple[int, int]], variants: Callable[[Json], Mapping[str, Variant]]
) -> dict[str, Runs]:
    """Each variant of the roles' values in turns, by shape."""
    runs: dict[str, Runs] = {shape: {} for shape in shapes}
    with prepared(setting) as volcano, own_programs() as programs:
        every = [*variants(volcano.own).items()]
        for number in range(ROUNDS):
            for name, variant in every if number % 2 == 0 else reversed(every):
                fresh(volcano, variant, programs)
                for shape, counts in shapes.items():
                    one = Run(once(volcano, gangs(volcano, variant.values), counts), sum(memory().values()))
                    runs[shape].setdefault(name, []).append(one)
                    setting.say(f"round {number + 1}, {shape}, {name}: running {one.start.running_s:.1f} s")
    return runs


def kinds(runs: Mapping[str, Sequence[Run]]) -> Iterator[Kind]:
    """What the figures of one shape are: seconds until all pods run, and CPU time and memory of all programs."""
    seconds = {name: [one.start.running_s for one in rows] for name, rows in runs.items()}
    yield Kind("running", "all Running", "s", seconds)
    yield Kind("cpu", "CPU time", "s", {
        name: [sum(one.start.cpu_s.values()) for one in rows] for name, rows in runs.items()})  # fmt: skip
    yield Kind("memory", "memory", "MiB", {name: [one.memory for one in rows] for name, rows in runs.items()})
