"""What each tuned default of the role `volcano` brings, and what else was tried: the gangs of the part `gangs`.

A default stands beside Volcano with all values of the role but this one, which is upstream's again. What was tried
stands beside the role's values as they are. The CPU time is that of all of the lab's programs together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from bench.figures import Beside, figure
from bench.gangs.site import prepared
from bench.gangs.ways import gangs, once
from bench.part import Lab, Part
from bench.parts.gangs import SHAPES
from bench.tuned import TUNED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.gangs.start import Start
    from bench.part import Setting

Json = dict[str, Any]
PART = Part("What each tuned default of Volcano brings", minutes=54, lab=Lab.UP, usual=False, builds=("kwok",))
ROUNDS = 3
OURS = "ours"
DEFAULTS = {name: one for name, one in TUNED.items() if one.home == "roles/volcano"}


class Tried(NamedTuple):
    """Values that are no default."""

    title: str
    values: Mapping[str, Any]
    """By name: a value, or a function of the role's own, which is "" without one."""


def without_scores(configuration: Json) -> None:
    """No plugin compares the nodes that have room."""
    for tier in configuration["tiers"]:
        tier["plugins"] = [one for one in tier["plugins"] if one["name"] not in {"nodeorder", "binpack"}]


def least_actions(configuration: Json) -> None:
    """Nothing but what starts a gang."""
    configuration["actions"] = "enqueue, allocate"


def configured(change: Callable[[Json], None]) -> dict[str, Any]:
    """The scheduler's configuration with a change; a label of its pod shows that the role did not set it."""

    def of(own: str) -> str:
        configuration = yaml.safe_load(own)
        change(configuration)
        return yaml.safe_dump(configuration)

    return {"scheduler_config_override": of, "scheduler_podLabels": {"gangplank.dev/tried": change.__name__}}


TRIED = {
    "workers": Tried("10 workers", {
        "controller_worker_threads": 10, "controller_worker_threads_for_podgroup": 10}),
    "period": Tried("a period of 200 ms", {"scheduler_schedule_period": "200ms"}),
    "scores": Tried("no node scores", configured(without_scores)),
    "actions": Tried("two actions", configured(least_actions)),
    "nodes": Tried("10 of 100 nodes", {  # upstream compares at least 100; the chart has no value for that flag
        "scheduler_percentage_nodes_to_find": 10,
        "scheduler_log_level": "1\n            - --minimum-feasible-nodes=10"}),
    "rate": Tried("scheduler qps x 5", {
        "scheduler_kube_api_qps": 10_000, "scheduler_kube_api_burst": 10_000}),
}  # fmt: skip


def without(own: Json, names: Mapping[str, object]) -> Json:
    """The role's values, and upstream's of these names."""
    return own | {"custom": {name: value for name, value in own["custom"].items() if name not in names}}


def changed(own: Json, values: Mapping[str, Any]) -> Json:
    """The role's values with others."""
    custom = own["custom"]
    new = {name: value(str(custom.get(name, ""))) if callable(value) else value for name, value in values.items()}
    return own | {"custom": {**custom, **new}}


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
