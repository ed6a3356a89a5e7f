"""How the containers of a job's pods ended, as the pods' statuses say: which of them failed first. Pure.

A rank is started again in its container's place, or in another pod, and the pods of earlier attempts may stay. Ranks
train only together, so the runs of one attempt overlap: what had ended before the last one began is of another. A run
that was ended with its pod right after its start says nothing of that: a job that has failed removes what it has just
started again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from gangplank.cluster.attempts import place
from gangplank.k8s.age import age_s
from gangplank.k8s.conditions import failed_init

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gangplank.spec import Json


KILLED = (137, 143)  # exit codes of SIGKILL and SIGTERM
STARTED_S = 30  # to load the libraries, and to meet the other ranks


@dataclass(frozen=True, order=True)
class End:
    """A run of a container that ended with an exit code of its own; times are RFC 3339, "" if unknown."""

    at: str
    pod: str
    how: str
    began: str
    run: str
    """As `run_of` calls it."""
    rank: str
    """Equal for the runs of which each takes the other's place: the rank and the container."""
    removed: bool
    """Whether it was ended with its pod, right after its start."""


def run_of(pod: Json, container: str, number: int) -> str:
    """What a run of a container is called: the pod's uid, its name, and how often it had been restarted."""
    return f"{pod['metadata'].get('uid')}/{container}/{number}"


def is_removed(meta: Json, end: Mapping[str, Any]) -> bool:
    """Whether a container ended since its pod was deleted, which was asked for right after its start."""
    if "deletionTimestamp" not in meta or not end.get("finishedAt"):
        return False
    gone = datetime.fromisoformat(meta["deletionTimestamp"])  # when its grace period is over
    asked = gone - timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0)
    later_s = -age_s(end["finishedAt"], asked)
    ended = later_s > 0 or (later_s == 0 and end.get("exitCode") in KILLED)  # times are whole seconds
    return ended and age_s(end.get("startedAt"), asked) < STARTED_S


def ends(pods: Iterable[Json]) -> Iterator[End]:
    """The runs that failed, of all containers: the present one of each, and the one before."""
    for pod in pods:
        meta, init = pod["metadata"], failed_init(pod)
        for container in [*init, *((pod.get("status") or {}).get("containerStatuses") or ())]:
            name, count = container["name"], int(container.get("restartCount") or 0)
            waits = "waiting" in (container.get("state") or {})  # then no run has begun after the last one
            for state, number in ((container.get("lastState"), count - (not waits)), (container.get("state"), count)):
                end: Mapping[str, Any] = (state or {}).get("terminated") or {}
                if end.get("exitCode"):
                    where = f"init container {name}: " if container in init else ""
                    yield End(
                        at=str(end.get("finishedAt") or ""),
                        pod=meta["name"],
                        how=f"{where}{end.get('reason', 'Error')}, exit code {end['exitCode']}",
                        began=str(end.get("startedAt") or meta.get("creationTimestamp") or ""),
                        run=run_of(pod, name, number),
                        rank=f"{place(pod)}/{name}",
                        removed=is_removed(meta, end),
                    )


def latest(runs: Iterable[End]) -> list[End]:
    """Those of the last attempt in which something failed: the newest of each rank, unless it is of an earlier one."""
    every, newest = sorted(runs), dict[str, End]()
    for end in [end for end in every if not end.removed] or every:
        newest[end.rank] = end
    began = max(newest.values()).began if newest else ""
    return [end for end in newest.values() if not end.at or end.at >= began]


def first_failure(pods: Iterable[Json]) -> End | None:
    """The container that failed first in the last attempt, and how it ended; None if none failed."""
    return min(latest(ends(pods)), default=None)
