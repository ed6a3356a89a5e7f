"""How long jobs took that have ended, and how long others have run, by their pods, else by their own status. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from gangplank.cluster.progress import phase
from gangplank.scheduling.when import Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gangplank.spec import Json


def seconds(text: str) -> float:
    """A time of the API server, in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def run_of(job: Json, pods: Sequence[Json]) -> Run | None:
    """When the pods of a job came, began and ended; None if none of them has begun."""
    states = [state for pod in pods for state in container_states(pod)]
    begins = [seconds(state["startedAt"]) for state in states if state.get("startedAt")]
    statuses = [pod.get("status") or {} for pod in pods]
    begins = begins or [seconds(status["startTime"]) for status in statuses if status.get("startTime")]
    if not begins:
        return None
    began = min(begins)
    places = [
        seconds(one["lastTransitionTime"])
        for status in statuses for one in status.get("conditions") or ()
        if one.get("type") == "PodScheduled" and one.get("status") == "True" and one.get("lastTransitionTime")
    ]  # fmt: skip
    created = job["metadata"].get("creationTimestamp")
    ends = [seconds(state["finishedAt"]) for state in states if state.get("finishedAt")]
    ended = max(ends) if len(ends) == len(states) and ends else None
    return Run(seconds(created) if created else began, max(places, default=began), began, ended)


def container_states(pod: Json) -> Iterator[dict[str, Any]]:
    """When each container of a pod began, and ended, if it has."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        state = status.get("state") or {}
        yield state.get("terminated") or state.get("running") or {}


def lasted(job: Json, pods: Sequence[Json] = ()) -> tuple[float, bool] | None:
    """Seconds that a job ran that ended well, and whether they are without its wait before; None if nothing says it.

    Its pods say it best. Without them, Volcano Jobs and PyTorchJobs have a time since when they run. Batch Jobs and
    TrainJobs only have one since when their controllers know them.
    """
    if not phase(job).succeeded:
        return None
    run = run_of(job, pods)
    if run and run.ended is not None:
        return run.ended - run.began, True
    status, times = job.get("status") or {}, dict[str, float]()
    for one in status.get("conditions") or ():
        if one.get("lastTransitionTime"):
            times.setdefault(str(one.get("type") or one.get("status")), seconds(one["lastTransitionTime"]))
    done = status.get("completionTime")
    end = seconds(done) if done else max(times.values(), default=None)
    since = status.get("startTime") or job["metadata"].get("creationTimestamp")
    if end is None or not (since or "Running" in times):
        return None
    return (end - times["Running"], True) if "Running" in times else (end - seconds(since), False)
