"""Jobs that are created at once, and how long it takes until all of their pods run."""

from __future__ import annotations

import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.gangs.place import CLIENTS, warnings
from bench.gangs.watch import Watch
from bench.part import BenchError
from bench.programs import REFUSED
from gangplank.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
FAILED = re.compile(r"Fail.*(Create|Delete)|PluginError|PVCError|PodGroupError|JobStatusError")


@dataclass(frozen=True)
class Start:
    """One run: seconds from the first create, and what went wrong."""

    bound_s: float
    running_s: float
    reports: tuple[str, ...]
    """Failures that controllers reported; a refused create of ours ends the run."""
    partial: int
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    """CPU time of the lab's programs meanwhile."""
    requests: Mapping[str, float] = field(default_factory=dict)
    """Requests to the API server meanwhile, by what they did."""
    idle: float = 0.0
    """The share of the machine's processors that nothing used meanwhile, in percent."""

    @property
    def failed(self) -> int:
        """How many failures controllers reported."""
        return len(self.reports)

    @property
    def refused(self) -> float:
        """Creates of pods that the API server refused; Volcano reports none of a pod that exists already."""
        return self.requests.get(f"POST pods{REFUSED}", 0.0)


def started(kube: Kube, path: str, shape: tuple[int, int], make: Callable[[str, int], Json]) -> Start:
    """Create the jobs at once; wait until their pods run."""
    count, size = shape
    # Volcano's controller may keep a job that was removed as it began, and then never looks at another of its name
    own = uuid.uuid4().hex[:6]
    jobs = [make(f"gang-{own}-{number}", size) for number in range(count)]
    with Watch(kube, {job["metadata"]["name"]: size for job in jobs}) as watch:
        begin, refused = time.monotonic(), 0
        with ThreadPoolExecutor(CLIENTS) as pool:
            for done in [pool.submit(kube.call, "POST", path, job) for job in jobs]:
                refused += isinstance(done.exception(), KubeError)
        if refused:
            raise BenchError(f"{path}: got {refused} refused creates of {count}, expected none")
        watch.wait()
    pods, seen = watch.seen.pods.values(), watch.seen
    reports = tuple(f"{event['reason']}: {event['message']}" for event in warnings(kube)
                    if FAILED.search(event.get("reason") or ""))  # fmt: skip
    return Start(max(pod.bound for pod in pods) - begin, max(pod.running for pod in pods) - begin, reports,
                 len(seen.partial | seen.torn))  # fmt: skip
