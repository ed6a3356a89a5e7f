"""When a fault showed in the API, and when `gangplank why` named its cause."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.client import path
from gangplank.scheduling.pod_causes import statuses
from gangplank.wait import polls
from tests.support.why_stories import LIMIT_S, asked
from tools.cause_figures import SINCE, Timed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gangplank.cluster.client import Kube
    from tests.support.why_stories import Story

Json = dict[str, Any]
LISTED = (("v1", "Pod"), (QUEUE_SYSTEM.pod_group.api_version, QUEUE_SYSTEM.pod_group.kind), ("v1", "Event"))
POLL_S = 0.1
NOTED_S = 10.0  # in which a scheduler or a kubelet says what it has met
RANKS = {"stuck", "slow"}  # codes of causes that only logs show
OBSERVED = "gangplank: rank "  # how a line of the observer begins


def attempted(pods: Iterable[Json], groups: Iterable[Json]) -> datetime | None:
    """The first time in the conditions of pods without a node, or of a gang that may not queue; it has whole seconds.

    Volcano says of a gang that has queued, and has no pods yet, that they have no place: nobody has tried them.
    """
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    if not waiting:
        waiting = [group for group in groups if (group.get("status") or {}).get("phase") == "Pending"]
    refusing = {("PodScheduled", "False"), ("Unschedulable", "True")}
    times = [
        [one["lastTransitionTime"] for one in (item.get("status") or {}).get("conditions") or ()
         if (one["type"], one["status"]) in refusing]
        for item in waiting
    ]  # fmt: skip
    return datetime.fromisoformat(min(map(min, times))) if times and all(times) else None


def turned(item: Json, *kinds: str) -> Iterator[str]:
    """When conditions of an object became true."""
    for one in (item.get("status") or {}).get("conditions") or ():
        if one.get("type") in kinds and one.get("status") == "True":
            yield one["lastTransitionTime"]


def first_said(event: Json) -> str:
    """When an event was seen first."""
    return str(event.get("firstTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def refusals(events: Iterable[Json]) -> Iterator[str]:
    """When a controller could not create a pod."""
    for event in events:
        if (event["involvedObject"]["kind"], event.get("reason")) == ("Job", "FailedCreate"):
            yield first_said(event)


def signs(job: Json, pods: Iterable[Json], events: Iterable[Json]) -> Iterator[str]:
    """When a fault of pods with a node showed: a kubelet warned, a container failed, or the job did."""
    yield from turned(job, "FailureTarget", "Failed")
    for pod in pods:
        for status in statuses(pod):
            ends = ((status.get(state) or {}).get("terminated") for state in ("state", "lastState"))
            yield from (end["finishedAt"] for end in ends if end and end["exitCode"])
    for event in events:
        source = (event.get("source") or {}).get("component") or event.get("reportingComponent")
        if event["involvedObject"]["kind"] == "Pod" and (event.get("type"), source) == ("Warning", "kubelet"):
            yield first_said(event)


class Moments:
    """What has happened to a job until now, as the API shows it; pods may be gone later."""

    def __init__(self, kube: Kube, job: Json, code: str) -> None:
        self.kube, self.job, self.code = kube, job, code
        self.at: dict[str, datetime] = {}

    def look(self) -> None:
        """Note the first time of each."""
        meta = self.job["metadata"]
        live = self.kube.find(meta["namespace"], meta["name"], [(self.job["apiVersion"], self.job["kind"])])
        assert live is not None
        pods, groups, events = (self.kube.items(*kind, meta["namespace"]) for kind in LISTED)
        pods = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{meta['name']}-")]
        events = [one for one in events if f"{one['involvedObject'].get('name')}-".startswith(f"{meta['name']}-")]
        self._note("submitted", [live["metadata"]["creationTimestamp"]])
        self._note("refused", refusals(events))
        self._note("bound", (time for pod in pods for time in turned(pod, "PodScheduled")))
        attempt = attempted(pods, () if "bound" in self.at else groups)
        if attempt is None:
            self.at.pop("attempt", None)  # it has a place by now
        else:
            self._note("attempt", [attempt.isoformat()])
        if "bound" in self.at:
            self._note("sign", signs(live, pods, events))
            if self.code in RANKS:
                self._note("sign", (time for pod in pods for time in self._reported(pod)))

    def _note(self, name: str, times: Iterable[str]) -> None:
        known = [*map(datetime.fromisoformat, times), *([self.at[name]] if name in self.at else [])]
        if known:
            self.at[name] = min(known)

    def _reported(self, pod: Json) -> Iterator[str]:
        """When a rank said where it is or how long its steps take."""
        meta = pod["metadata"]
        if not any((status.get("state") or {}).get("running") for status in statuses(pod)):
            return
        where = f"{path('v1', 'Pod', meta['namespace'], meta['name'])}/log"
        for line in self.kube.read("GET", where, query={"timestamps": "true"}).decode().splitlines():
            time, _, text = line.partition(" ")
            if text.startswith(OBSERVED):
                yield time


def timed(kube: Kube, name: str, one: Story, job: Json) -> Timed:
    """Ask until the cause of a story is named, and until it is known what came before."""
    moments, blank, other = Moments(kube, job, one.code), 0, ""
    named_at: datetime | None = None
    begun_at = datetime.now(UTC)
    for _ in polls(LIMIT_S, POLL_S):
        if one.submitted:
            moments.look()
        diagnosis = asked(kube, job, live=one.submitted)
        now, code = datetime.now(UTC), diagnosis.cause.code if diagnosis.cause else ""
        if code in one.code.split("|"):
            named_at = named_at or now
        elif code:
            other = other or code
        blank = blank + (not code) if "attempt" in moments.at else 0
        noted = not one.submitted or moments.at.keys() & {"attempt", "sign", "refused"}
        if named_at and (noted or (now - named_at).total_seconds() > NOTED_S):
            at = moments.at or {"asked": begun_at}
            after_s = {moment: round((named_at - time).total_seconds(), 1) for moment, time in sorted(at.items())}
            since = next(moment for moment in SINCE if moment in at)
            return Timed(name, one.code, one.backend, since, after_s, blank, other)
    raise AssertionError(diagnosis.text())
