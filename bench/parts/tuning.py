"""What each tuned default of Volcano and of the lab brings: the gangs of the part `gangs`.

A default stands beside all values of the roles but this one, which is upstream's again. CPU time and memory are those
of all of the lab's programs together; memory is what they have when the gangs run.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from bench.figures import Beside, figure
from bench.flags import with_values
from bench.gangs.variants import OURS, Variant, kinds, started
from bench.part import Lab, Part
from bench.parts.gangs import SHAPES
from bench.tuned import TUNED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.gangs.variants import Run
    from bench.part import Setting

Json = dict[str, Any]
PART = Part("What each tuned default brings while gangs start", minutes=50, lab=Lab.UP, usual=False, builds=("kwok",))
DEFAULTS = {name: one for name, one in TUNED.items() if any(key.startswith("tuning.") for key in one.figures)}
SAVES = {"heap"}  # memory, for time


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
    for shape, runs in started(setting, SHAPES, variants).items():
        yield from figures(shape, runs)


def figures(shape: str, runs: Mapping[str, Sequence[Run]]) -> Iterator[Figure]:
    """The before and after of each default."""
    count, size = SHAPES[shape]
    for kind in kinds(runs):
        for name in DEFAULTS:
            if kind.key == "memory" and name not in SAVES:
                continue
            before = Beside.of("before, as upstream", kind.values[name])
            goal = before.spread[0] if kind.key == ("memory" if name in SAVES else "running") else None
            yield figure(f"tuning.{name}.{shape}.{kind.key}", f"{count} gangs of {size} pods, {kind.words}, {name}",
                         kind.unit, kind.values[OURS], peer=before, goal=goal,
                         why="the least before" if goal is not None else "")  # fmt: skip
