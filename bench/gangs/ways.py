"""Who starts the pods: Volcano with our values or upstream's, Kubernetes' own scheduler, a bare client."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from bench.gangs.bare_client import replayed
from bench.gangs.jobs import plain_job, volcano_job
from bench.gangs.place import JOBS, VOLCANO_JOBS, cleared
from bench.gangs.start import Start, started
from bench.programs import spent, ticks

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.gangs.release import Volcano
    from gangplank.cluster.client import Kube

    Way = Callable[[tuple[int, int]], Start]  # starts so many gangs of so many pods

Json = dict[str, Any]


def ways(volcano: Volcano) -> dict[str, Way]:
    """Who starts the pods, in the order of a round."""
    kube = volcano.kube

    def gangs(values: Json, shape: tuple[int, int]) -> Start:
        volcano.use(values)
        return started(kube, VOLCANO_JOBS, shape, volcano_job)

    return {
        "ours": functools.partial(gangs, volcano.own),
        "kubernetes": lambda shape: started(kube, JOBS, shape, plain_job),
        "floor": functools.partial(replayed, kube),
        "upstream": functools.partial(gangs, volcano.upstream),
    }


def once(kube: Kube, way: Way, shape: tuple[int, int]) -> Start:
    """Start gangs in one way, count the CPU time of the lab's programs meanwhile, and leave nothing."""
    before = ticks()
    start = way(shape)
    start = dataclasses.replace(start, cpu_s=spent(before, ticks()))
    cleared(kube)
    return start
