"""Who starts the pods: Volcano with our values or others, Kubernetes' own scheduler, a bare client."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.gangs.bare_client import replayed
from bench.gangs.jobs import plain_job, volcano_job
from bench.gangs.place import JOBS, VOLCANO_JOBS, cleared, forgotten, still
from bench.gangs.start import Start, started
from bench.programs import idle_share, machine, requests, spent, ticks

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.gangs.release import Volcano
Json = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """One way to start pods."""

    start: Callable[[tuple[int, int]], Start]
    """Starts so many gangs of so many pods."""
    values: Json | None = None
    """Volcano's values meanwhile; None where Volcano starts nothing, and whatever runs stays."""


def gangs(volcano: Volcano, values: Json) -> Way:
    """Volcano with these values."""
    return Way(lambda shape: started(volcano.kube, VOLCANO_JOBS, shape, volcano_job), values)


def ways(volcano: Volcano) -> dict[str, Way]:
    """Who starts the pods, in the order of a round."""
    return {
        "ours": gangs(volcano, volcano.own),
        "kubernetes": Way(lambda shape: started(volcano.kube, JOBS, shape, plain_job)),
        "floor": Way(functools.partial(replayed, volcano.kube)),
        "upstream": gangs(volcano, volcano.upstream),
    }


def once(volcano: Volcano, way: Way, shape: tuple[int, int]) -> Start:
    """Start gangs in one way, count the lab's CPU time and requests meanwhile, and leave nothing.

    A release that changes has started new programs before anything is counted or timed, and they have started a gang.
    Nothing of the start before is still written.
    """
    if way.values is not None and volcano.use(way.values):
        way.start((1, 1))
        cleared(volcano.kube)
    still(volcano.kube)
    forgotten(volcano.kube)
    asked, before, idle = requests(volcano.kube), ticks(), machine()
    start = way.start(shape)
    cpu_s, unused, now = spent(before, ticks()), idle_share(idle, machine()), requests(volcano.kube)
    more = {name: count - asked.get(name, 0.0) for name, count in now.items()}
    start = dataclasses.replace(start, cpu_s=cpu_s, requests=more, idle=unused)
    cleared(volcano.kube)
    return start
