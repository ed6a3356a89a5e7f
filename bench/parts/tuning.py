"""What each tuned default of Volcano and of the lab brings: while gangs start, and in memory at rest.

A default stands beside all values of the roles but this one, which is upstream's again. CPU time and memory are those
of all of the lab's programs together.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from bench.figures import Beside, figure, number
from bench.flags import with_values
from bench.gangs.variants import OURS, Variant, cpu_s, running_s, started
from bench.part import Lab, Part
from bench.parts import gangs
from bench.tuned import TUNED
from gangplank.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.gangs.variants import Runs
    from bench.part import Setting

Json = dict[str, Any]
PART = Part("What each tuned default brings", minutes=42, lab=Lab.UP, usual=False, builds=("kwok",))
DEFAULTS = {name: one for name, one in TUNED.items() if any(key.startswith("tuning.") for key in one.figures)}
MANAGER = "kube-controller-manager"
AIMS = {key for one in DEFAULTS.values() for key in one.figures}
SHAPES = {"100x10": gangs.SHAPES["100x10"], "1x1000": (1, 1000)}


def without(own: Json, names: Mapping[str, object]) -> Json:
    """The role's values, and upstream's of these names."""
    return own | {"custom": {name: value for name, value in own["custom"].items() if name not in names}}


def variants(own: Json) -> dict[str, Variant]:
    """What each way runs with, in the order of a round."""
    before = {
        name: Variant(own, functools.partial(with_values, values=one.upstream))
        if one.home == "roles/lab_cluster" else Variant(without(own, one.upstream))
        for name, one in DEFAULTS.items()
    }  # fmt: skip
    return {OURS: Variant(own), **before}


def measure(setting: Setting) -> Iterator[Figure]:
    """With all defaults, and with upstream's of each."""
    yield from figures(started(setting, SHAPES, variants))


def figures(runs: Runs) -> Iterator[Figure]:
    """The before and after of each default."""
    for shape, starts in runs.starts.items():
        count, size = SHAPES[shape]
        title = f"{counted(count, 'gang')} of {number(size)} pods"
        for name in DEFAULTS:
            yield row(f"{name}.{shape}.running", f"{title}, all Running, {name}", "s", running_s(starts))
            yield row(f"{name}.{shape}.cpu", f"{title}, CPU time, {name}", "s", cpu_s(starts))
            own = cpu_s(starts, MANAGER)
            yield row(f"{name}.{shape}.manager", f"{title}, CPU time of {MANAGER}, {name}", "s", own)
    for name in DEFAULTS:
        yield row(f"{name}.rest.memory", f"memory at rest, without etcd, {name}", "MiB", runs.rest)


def row(key: str, title: str, unit: str, values: Mapping[str, Sequence[float]]) -> Figure:
    """What the defaults give, beside what it was before this one; its goal if this is what it was tuned for."""
    before = Beside.of("before, as upstream", values[key.partition(".")[0]])
    aim = f"tuning.{key}" in AIMS
    return figure(f"tuning.{key}", title, unit, values[OURS], peer=before, goal=before.spread[0] if aim else None,
                  why="the least before" if aim else "")  # fmt: skip
