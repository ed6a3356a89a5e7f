"""The attempts of a job's ranks: which the cluster still has a log of, and which it has no more.

A rank starts again in the container's place, by the kubelet, or in another pod, by the job's controller. The kubelet
keeps the log of the run before the present one, and a controller may keep a pod that failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of
from gangplank.cluster.logs import restarts
from gangplank.cluster.members import rank_of
from gangplank.scheduling import rest
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gangplank.spec import Json


@dataclass(frozen=True)
class Attempt:
    """One run of a rank's container; `number` is 1 for the first, `before` for the run before the pod's present one."""

    pod: Json
    number: int
    before: bool


def attempts(job: Json, pods: Iterable[Json]) -> list[Attempt]:
    """The runs of which the cluster has a log, rank by rank, oldest first."""
    runs: dict[int | str, list[Attempt]] = {}  # by rank, or by pod where nothing says it
    for pod in sorted(pods, key=lambda pod: (str(pod["metadata"].get("creationTimestamp", "")))):
        own, text = runs.setdefault(place(pod), []), replaced(job, pod)
        first = max(own[-1].number if own else 0, int(text) if text.isdecimal() else 0) + 1
        last = first + restarts(pod, "")
        own += [Attempt(pod, last - 1, before=True)] if last > first else []
        own.append(Attempt(pod, last, before=False))
    return [run for key in sorted(runs, key=lambda key: (isinstance(key, str), key)) for run in runs[key]]


def replaced(job: Json, pod: Json) -> str:
    """How often a job's controller had replaced all pods before it made this one, as it says; "" where it does not."""
    backend, meta = backend_of(job), pod["metadata"]
    counter = BACKENDS[backend].attempt if backend else ""
    return str({**(meta.get("labels") or {}), **(meta.get("annotations") or {})}.get(counter, ""))


def place(pod: Json) -> int | str:
    """Equal for a pod and for the one that takes its place: its rank, else its name without a random end."""
    number = rank_of(pod)
    return rest.rank(pod) if number is None else number


def gone(shown: Mapping[int | None, Iterable[int]]) -> str:
    """Which attempts the cluster keeps no log of, by those that it has of each rank; "" if it has all.

    >>> gone({0: [1, 2], 1: [3]})
    'rank 1: attempts 1, 2'
    """
    parts = []
    for rank, numbers in shown.items():
        has = set(numbers)
        missing = [number for number in range(1, max(has, default=0)) if number not in has]
        if missing and rank is not None:
            parts.append(f"rank {rank}: attempt{'s' if len(missing) > 1 else ''} {listed(missing)}")
    return listed(parts)
