"""What else was tried and is no default, beside the roles' values as they are.

Of the gangs of the part `gangs` those that are further from their floor start: 100 of 10 pods. CPU time is that of
all of the lab's programs together.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from bench.figures import Beside, figure
from bench.flags import with_flag
from bench.gangs.variants import OURS, Variant, cpu_s, running_s, started
from bench.part import Lab, Part
from bench.parts.gangs import SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.gangs.start import Start
    from bench.part import Setting

Json = dict[str, Any]
PART = Part("What else was tried while gangs start", minutes=45, lab=Lab.UP, usual=False, builds=("kwok",))
SHAPE = "100x10"
ROUNDS = 2  # of eleven starts each


class Tried(NamedTuple):
    """Values that are no default."""

    title: str
    values: Mapping[str, Any]
    """Of Volcano, by name: a value, or a function of the role's own, which is "" without one."""
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
    "fewer": Tried("200 requests a second", {"controller_kube_api_qps": 200, "controller_kube_api_burst": 200}),
    "clients": Tried("2,000 requests a second and 10 workers", {
        "controller_kube_api_qps": 2000, "controller_kube_api_burst": 2000,
        "controller_worker_threads": 10, "controller_worker_threads_for_podgroup": 10}),
    "period": Tried("a period of 200 ms", {"scheduler_schedule_period": "200ms"}),
    "least": Tried("two actions, no node scores", configured(least)),
    "nodes": Tried("10 of 100 nodes", {  # upstream compares at least 100; the chart has no value for that flag
        "scheduler_percentage_nodes_to_find": 10,
        "scheduler_log_level": "3\n            - --minimum-feasible-nodes=10"}),
    "logs": Tried("short logs", {
        "admission_log_level": 1, "scheduler_log_level": 1,
        "controller_log_level": "1\n            - --max-requeue-num=-1"}),
    "rate": Tried("scheduler qps x 5", {
        "scheduler_kube_api_qps": 10_000, "scheduler_kube_api_burst": 10_000}),
    "webhooks": Tried("webhooks of jobs alone", {"enabled_admissions": "/jobs/mutate,/jobs/validate"}),
    "fairness": Tried("no API priority and fairness", {}, functools.partial(
        with_flag, program="kube-apiserver", flag="--enable-priority-and-fairness=false")),
    "sync": Tried("etcd without fsync", {}, functools.partial(
        with_flag, program="etcd", flag="--unsafe-no-fsync")),
}  # fmt: skip


def changed(own: Json, values: Mapping[str, Any]) -> Json:
    """The role's values with others."""
    custom = own["custom"]
    new = {name: value(str(custom.get(name, ""))) if callable(value) else value for name, value in values.items()}
    return own | {"custom": {**custom, **new}}


def variants(own: Json) -> dict[str, Variant]:
    """What each way runs with, in the order of a round."""
    return {OURS: Variant(own)} | {
        name: Variant(changed(own, one.values), one.change) for name, one in TRIED.items()
    }  # fmt: skip


def measure(setting: Setting) -> Iterator[Figure]:
    """With the roles' values, and with each that was tried."""
    yield from figures(started(setting, {SHAPE: SHAPES[SHAPE]}, variants, ROUNDS).starts[SHAPE])


def figures(starts: Mapping[str, Sequence[Start]]) -> Iterator[Figure]:
    """What was tried, beside the roles' values."""
    count, size = SHAPES[SHAPE]
    for key, words, values in (("running", "all Running", running_s(starts)), ("cpu", "CPU time", cpu_s(starts))):
        for name, one in TRIED.items():
            yield figure(f"tried.{name}.{SHAPE}.{key}", f"{count} gangs of {size} pods, {words}, {one.title} (tried)",
                         "s", values[name], peer=Beside.of("the roles' values", values[OURS]))  # fmt: skip
