"""What each tuned default of the role `volcano` brings, and what else was tried: the gangs of the part `gangs`.

A default stands beside Volcano with all values of the role but this one, which is upstream's again. What was tried
stands beside the role's values as they are. The CPU time is that of all of the lab's programs together.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figures import Beside, figure
from bench.gangs.site import prepared
from bench.gangs.ways import gangs, once
from bench.part import Lab, Part
from bench.parts.gangs import SHAPES
from bench.tuned import TUNED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.gangs.start import Start
    from bench.part import Setting

Json = dict[str, Any]
PART = Part("What each tuned default of Volcano brings", minutes=30, lab=Lab.UP, usual=False, builds=("kwok",))
ROUNDS = 3
OURS = "ours"
DEFAULTS = {name: one for name, one in TUNED.items() if one.home == "roles/volcano"}


class Tried(NamedTuple):
    """Values that are no default."""

    title: str
    values: Mapping[str, Any]


QUIET = "1"  # in place of the first number: more may follow it, see roles/volcano/vars/main.yml
TRIED = {
    "workers": Tried("10 workers", {
        "controller_worker_threads": 10, "controller_worker_threads_for_podgroup": 10}),
    "period": Tried("a period of 200 ms", {"scheduler_schedule_period": "200ms"}),
    "logs": Tried("short logs", {f"{name}_log_level": QUIET for name in ("admission", "controller", "scheduler")}),
}  # fmt: skip


def without(own: Json, names: Mapping[str, object]) -> Json:
    """The role's values, and upstream's of these names."""
    return own | {"custom": {name: value for name, value in own["custom"].items() if name not in names}}


def changed(own: Json, values: Mapping[str, Any]) -> Json:
    """The role's values with others; of a log level, what follows the number stays."""
    custom = own["custom"]
    kept = {name: re.sub(r"^\d+", value, str(custom.get(name, value))) for name, value in values.items()
            if name.endswith("_log_level")}  # fmt: skip
    return own | {"custom": {**custom, **values, **kept}}


def variants(own: Json) -> dict[str, Json]:
    """Volcano's values of each way, in the order of a round."""
    return {
        OURS: own,
        **{name: without(own, one.upstream) for name, one in DEFAULTS.items()},
        **{name: changed(own, one.values) for name, one in TRIED.items()},
    }


def measure(setting: Setting) -> Iterator[Figure]:
    """Each way in turns; the release changes with each."""
    starts: dict[tuple[str, str], list[Start]] = {}
    with prepared(setting) as volcano:
        every = [(name, gangs(volcano, values)) for name, values in variants(volcano.own).items()]
        for number in range(ROUNDS):
            for name, way in every if number % 2 == 0 else reversed(every):
                for shape, counts in SHAPES.items():
                    one = once(volcano, way, counts)
                    starts.setdefault((shape, name), []).append(one)
                    setting.say(f"round {number + 1}, {shape}, {name}: running {one.running_s:.1f} s")
    for shape in SHAPES:
        yield from figures(shape, {name: rows for (other, name), rows in starts.items() if other == shape})


def figures(shape: str, starts: Mapping[str, Sequence[Start]]) -> Iterator[Figure]:
    """For each default its before and after, for what was tried the role's values and it."""
    count, size = SHAPES[shape]
    title = f"{count} gangs of {size} pods"
    running = {name: [one.running_s for one in rows] for name, rows in starts.items()}
    cpu = {name: [sum(one.cpu_s.values()) for one in rows] for name, rows in starts.items()}
    for name in DEFAULTS:
        before = Beside.of("before, as upstream", running[name])
        yield figure(f"tuning.{name}.{shape}.running", f"{title}, all Running, {name}", "s", running[OURS],
                     peer=before, goal=before.spread[0], why="the fastest before")  # fmt: skip
        yield figure(f"tuning.{name}.{shape}.cpu", f"{title}, CPU time, {name}", "s", cpu[OURS],
                     peer=Beside.of("before, as upstream", cpu[name]))  # fmt: skip
    for name, tried in TRIED.items():
        for key, values, kind in (("running", running, "all Running"), ("cpu", cpu, "CPU time")):
            yield figure(f"tuning.{name}.{shape}.{key}", f"{title}, {kind}, {tried.title} (tried)", "s", values[name],
                         peer=Beside.of("the role's values", values[OURS]))  # fmt: skip
