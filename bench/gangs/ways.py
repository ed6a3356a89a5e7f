"""Who starts the pods: Volcano with our values or upstream's, Kubernetes' own scheduler, a bare client."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from bench.gangs.bare_client import replayed
from bench.gangs.jobs import plain_job, volcano_job
from bench.gangs.place import JOBS, VOLCANO_JOBS
from bench.gangs.start import Start, started

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.gangs.release import Volcano

Json = dict[str, Any]


def ways(volcano: Volcano) -> dict[str, Callable[[tuple[int, int]], Start]]:
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
