"""Gangs that start while Volcano, or the lab's control plane, runs with other values: what the parts of it share."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.flags import other_programs
from bench.gangs.jobs import volcano_job
from bench.gangs.place import LIMIT_S, cleared
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


def settle(volcano: Volcano) -> None:
    """Wait until Volcano works with the programs that have started again."""
    volcano.kube.accepts(volcano_job("probe", 1), LIMIT_S)
    gangs(volcano, volcano.own).start((1, 1))
    cleared(volcano.kube)


def started(
    setting: Setting, shapes: Mapping[str, tuple[int, int]], variants: Callable[[Json], Mapping[str, Variant]]
) -> dict[str, Runs]:
    """Each variant of the role's values in turns, by shape; the release, or programs of the lab, change with each."""
    runs: dict[str, Runs] = {shape: {} for shape in shapes}
    with prepared(setting) as volcano:
        every = [*variants(volcano.own).items()]
        ready = functools.partial(settle, volcano)
        for number in range(ROUNDS):
            for name, variant in every if number % 2 == 0 else reversed(every):
                with other_programs(variant.change, ready) if variant.change else contextlib.nullcontext():
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
