"""Gangs that start while Volcano, or the lab's control plane, runs with other values: what the parts of it share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bench.flags import own_programs, start
from bench.gangs.place import cleared, still
from bench.gangs.site import prepared
from bench.gangs.ways import gangs, once
from bench.programs import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


class Runs(NamedTuple):
    """By the name of a variant, a value of each round."""

    starts: dict[str, dict[str, list[Start]]]
    """By shape."""
    rest: dict[str, list[float]]
    """MiB of all programs before them, but of etcd, whose file grows with what it has stored."""


def fresh(volcano: Volcano, variant: Variant, programs: str) -> None:
    """Run a variant; control plane and Volcano start again, whatever it changes.

    What runs for a while has a larger memory, and a longer list of what it knows.
    """
    start(variant.change(programs) if variant.change else programs)
    volcano.ready()
    volcano.use(variant.values)
    volcano.start_again()
    gangs(volcano, variant.values).start((1, 1))
    cleared(volcano.kube)


def started(
    setting: Setting, shapes: Mapping[str, tuple[int, int]], variants: Callable[[Json], Mapping[str, Variant]],
    rounds: int = ROUNDS,
) -> Runs:
    """Each variant of the roles' values in turns: memory at rest, and the gangs of each shape."""
    runs = Runs({shape: {} for shape in shapes}, {})
    with prepared(setting) as volcano, own_programs() as programs:
        every = [*variants(volcano.own).items()]
        for number in range(rounds):
            for name, variant in every if number % 2 == 0 else reversed(every):
                fresh(volcano, variant, programs)
                still(volcano.kube)
                rest = sum(size for program, size in memory().items() if program != "etcd")
                runs.rest.setdefault(name, []).append(rest)
                for shape, counts in shapes.items():
                    one = once(volcano, gangs(volcano, variant.values), counts)
                    runs.starts[shape].setdefault(name, []).append(one)
                    setting.say(f"round {number + 1}, {name}, {rest:.0f} MiB, {shape}: running {one.running_s:.1f} s")
    return runs


def running_s(starts: Mapping[str, Sequence[Start]]) -> dict[str, list[float]]:
    """Seconds until all pods run."""
    return {name: [one.running_s for one in rows] for name, rows in starts.items()}


def cpu_s(starts: Mapping[str, Sequence[Start]], program: str = "") -> dict[str, list[float]]:
    """Seconds of CPU of a program, or of all together."""
    return {
        name: [one.cpu_s.get(program, 0.0) if program else sum(one.cpu_s.values()) for one in rows]
        for name, rows in starts.items()
    }
