"""What each tuned default of Volcano and of the lab brings, and what else was tried: the gangs of the part `gangs`.

A default stands beside all values of the roles but this one, which is upstream's again. What was tried stands beside
the roles' values as they are. CPU time and memory are those of all of the lab's programs together; memory is what they
have when the gangs run.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from bench.figures import Beside, figure
from bench.flags import other_programs, with_flag, with_values
from bench.gangs.jobs import volcano_job
from bench.gangs.place import LIMIT_S, cleared
from bench.gangs.site import prepared
from bench.gangs.ways import gangs, once
from bench.part import Lab, Part
from bench.parts.gangs import SHAPES
from bench.programs import memory
from bench.tuned import TUNED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.gangs.release import Volcano
    from bench.gangs.start import Start
    from bench.part import Setting

Json = dict[str, Any]
PART = Part("What each tuned default brings while gangs start", minutes=60, lab=Lab.UP, usual=False, builds=("kwok",))
ROUNDS = 3
OURS = "ours"
DEFAULTS = {name: one for name, one in TUNED.items() if any(key.startswith("tuning.") for key in one.figures)}
SAVES = {"heap"}  # memory, for time


class Tried(NamedTuple):
    """Values that are no default."""

    title: str
    values: Mapping[str, Any]
    """Of Volcano, by name: a value, or a function of the role's own, which is "" without one."""
    change: Callable[[str], str] | None = None
    """Of the control plane's programs."""


class Variant(NamedTuple):
    """What runs meanwhile."""

    values: Json
    """Volcano's."""
    change: Callable[[str], str] | None = None
    """Of the control plane's programs."""


def least(configuration: Json) -> None:
    """Nothing but what starts a gang, and no plugin compares the nodes that have room."""
    configuration["actions"] = "enqueue, allocate"
    for tier in configuration["tiers"]:
        tier["plugins"] = [one for one in tier["plugins"] if one["name"] not in {"nodeorder", "binpack"}]


def configured(change: Callable[[Json], None]) -> dict[str, Any]:
    """The scheduler's configuration with a change; a label of its pod shows that the role did not set it."""

    def of(own: str) -> str:
        configuration = yaml.safe_load(own)
        change(configuration)
        return yaml.safe_dump(configuration)

    return {"scheduler_config_override": of, "scheduler_podLabels": {"gangplank.dev/tried": change.__name__}}


TRIED = {
    "clients": Tried("2,000 requests a second and 10 workers", {
        "controller_kube_api_qps": 2000, "controller_kube_api_burst": 2000,
        "controller_worker_threads": 10, "controller_worker_threads_for_podgroup": 10}),
    "period": Tried("a period of 200 ms", {"scheduler_schedule_period": "200ms"}),
    "least": Tried("two actions, no node scores", configured(least)),
    "nodes": Tried("10 of 100 nodes", {  # upstream compares at least 100; the chart has no value for that flag
        "scheduler_percentage_nodes_to_find": 10,
        "scheduler_log_level": "1\n            - --minimum-feasible-nodes=10"}),
    "rate": Tried("scheduler qps x 5", {
        "scheduler_kube_api_qps": 10_000, "scheduler_kube_api_burst": 10_000}),
    "webhooks": Tried("webhooks of jobs alone", {"enabled_admissions": "/jobs/mutate,/jobs/validate"}),
    "fairness": Tried("no API priority and fairness", {}, functools.partial(
        with_flag, program="kube-apiserver", flag="--enable-priority-and-fairness=false")),
    "sync": Tried("etcd without fsync", {}, functools.partial(
        with_flag, program="etcd", flag="--unsafe-no-fsync")),
}  # fmt: skip


def without(own: Json, names: Mapping[str, object]) -> Json:
    """The role's values, and upstream's of these names."""
    return own | {"custom": {name: value for name, value in own["custom"].items() if name not in names}}


def changed(own: Json, values: Mapping[str, Any]) -> Json:
    """The role's values with others."""
    custom = own["custom"]
    new = {name: value(str(custom.get(name, ""))) if callable(value) else value for name, value in values.items()}
    return own | {"custom": {**custom, **new}}


def variants(own: Json) -> dict[str, Variant]:
    """What each way runs with, in the order of a round."""
    before = {
        name: Variant(own, functools.partial(with_values, values=one.upstream))
        if one.home == "roles/lab_cluster" else Variant(without(own, one.upstream))
        for name, one in DEFAULTS.items()
    }  # fmt: skip
    tried = {name: Variant(changed(own, one.values), one.change) for name, one in TRIED.items()}
    return {OURS: Variant(own), **before, **tried}


def settle(volcano: Volcano) -> None:
    """Wait until Volcano works with the programs that have started again."""
    volcano.kube.accepts(volcano_job("probe", 1), LIMIT_S)
    gangs(volcano, volcano.own).start((1, 1))
    cleared(volcano.kube)


class Run(NamedTuple):
    """One start, and MiB of all programs after it."""

    start: Start
    memory: float


def measure(setting: Setting) -> Iterator[Figure]:
    """Each way in turns; the release, or programs of the control plane, change with each."""
    runs: dict[tuple[str, str], list[Run]] = {}
    with prepared(setting) as volcano:
        every = [*variants(volcano.own).items()]
        ready = functools.partial(settle, volcano)
        for number in range(ROUNDS):
            for name, variant in every if number % 2 == 0 else reversed(every):
                with other_programs(variant.change, ready) if variant.change else contextlib.nullcontext():
                    for shape, counts in SHAPES.items():
                        one = Run(once(volcano, gangs(volcano, variant.values), counts), sum(memory().values()))
                        runs.setdefault((shape, name), []).append(one)
                        setting.say(f"round {number + 1}, {shape}, {name}: running {one.start.running_s:.1f} s")
    for shape in SHAPES:
        yield from figures(shape, {name: rows for (other, name), rows in runs.items() if other == shape})


def figures(shape: str, runs: Mapping[str, Sequence[Run]]) -> Iterator[Figure]:
    """For each default its before and after, for what was tried the roles' values and it."""
    count, size = SHAPES[shape]
    title = f"{count} gangs of {size} pods"
    kinds = {
        "running": ("all Running", "s", {name: [one.start.running_s for one in rows] for name, rows in runs.items()}),
        "cpu": ("CPU time", "s", {
            name: [sum(one.start.cpu_s.values()) for one in rows] for name, rows in runs.items()}),
        "memory": ("memory", "MiB", {name: [one.memory for one in rows] for name, rows in runs.items()}),
    }  # fmt: skip
    for key, (words, unit, values) in kinds.items():
        for name in DEFAULTS:
            if key == "memory" and name not in SAVES:
                continue
            before = Beside.of("before, as upstream", values[name])
            goal = before.spread[0] if key == ("memory" if name in SAVES else "running") else None
            why = "the least before" if goal is not None else ""
            yield figure(f"tuning.{name}.{shape}.{key}", f"{title}, {words}, {name}", unit, values[OURS],
                         peer=before, goal=goal, why=why)  # fmt: skip
        for name, tried in TRIED.items():
            if key != "memory":
                yield figure(f"tuning.{name}.{shape}.{key}", f"{title}, {words}, {tried.title} (tried)", unit,
                             values[name], peer=Beside.of("the roles' values", values[OURS]))  # fmt: skip
