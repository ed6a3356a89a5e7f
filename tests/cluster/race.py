"""What a race of teams must keep at every moment, judged over all that a watch has seen.

A moment is every change of a pod or a job. Amounts are whole GPUs; times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Json = dict[str, Any]
Key = tuple[str, str]  # of a gang: team and name
PARTLY_S = 10  # a gang is bound as a whole, or not at all, but for this long
STARVED_S = 60  # a team gets what it deserves from one that has more than it deserves
ENDED = ("Succeeded", "Failed")
JOB_LABEL = "volcano.sh/job-name"


@dataclass(frozen=True)
class Share:
    """What a team deserves and may have at most."""

    deserved: int
    cap: int


@dataclass(frozen=True)
class Gang:
    """A job that was submitted: its pods ask for one GPU each, and start together."""

    team: str
    name: str
    size: int


@dataclass(frozen=True)
class Event:
    """A change of one object, when it was seen."""

    at: float
    kind: str  # Pod or Job
    gone: bool
    item: Json


@dataclass
class Moment:
    """The teams as they are at one time."""

    pods: dict[str, Json] = field(default_factory=dict)  # by uid
    jobs: dict[Key, Json] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)  # GPUs of each team's pods, those being removed included
    bound: dict[Key, int] = field(default_factory=dict)  # pods of each gang that have a node, and keep it

    def see(self, event: Event) -> None:
        """Let a change happen."""
        meta = event.item["metadata"]
        if event.kind == "Job":
            self.jobs.pop((meta["namespace"], meta["name"]), None)
            if not event.gone:
                self.jobs[meta["namespace"], meta["name"]] = event.item
            return
        if old := self.pods.pop(meta["uid"], None):
            self.count(old, -1)
        if not event.gone:
            self.pods[meta["uid"]] = event.item
            self.count(event.item, 1)

    def count(self, pod: Json, by: int) -> None:
        """Add a pod to what is held and bound, or take it away."""
        meta = pod["metadata"]
        if not pod["spec"].get("nodeName"):
            return
        if pod["status"].get("phase") not in ENDED:
            self.held[meta["namespace"]] = self.held.get(meta["namespace"], 0) + by
        if "deletionTimestamp" not in meta:
            key = meta["namespace"], meta["labels"][JOB_LABEL]
            self.bound[key] = self.bound.get(key, 0) + by

    def waits(self, gang: Gang) -> bool:
        """Whether a gang wants to start and has nothing yet."""
        job = self.jobs.get((gang.team, gang.name))
        return job is not None and alive(job) and not self.bound.get((gang.team, gang.name))


def phase(job: Json) -> str:
    """What Volcano says of a job."""
    return str(((job.get("status") or {}).get("state") or {}).get("phase", ""))


def alive(job: Json) -> bool:
    """Whether a job has neither ended nor is ending."""
    return "deletionTimestamp" not in job["metadata"] and phase(job) in {"", "Pending", "Running", "Restarting"}


@dataclass
class Since:
    """Since when something holds without a break."""

    limit_s: float  # below 0: not for a moment
    began: dict[object, float] = field(default_factory=dict)
    reported: set[object] = field(default_factory=set)

    def now(self, at: float, holding: Mapping[object, str]) -> Iterator[str]:
        """What has held for too long, reported once."""
        self.began = {key: self.began.get(key, at) for key in holding}
        self.reported &= {*holding}
        for key, what in holding.items():
            if at - self.began[key] > self.limit_s and key not in self.reported:
                self.reported.add(key)
                yield what if self.limit_s < 0 else f"{what} for more than {self.limit_s:.0f} s"


def judge(events: Sequence[Event], gangs: Sequence[Gang], shares: Mapping[str, Share]) -> list[str]:
    """Everything that was not kept, in the order of its time."""
    now = Moment()
    sizes = {(gang.team, gang.name): gang.size for gang in gangs}
    over, partly, starved = Since(-1), Since(PARTLY_S), Since(STARVED_S)
    problems: list[str] = []
    for event in events:
        now.see(event)
        held = {team: now.held.get(team, 0) for team in shares}
        problems += over.now(
            event.at,
            {
                team: f"{team} has {held[team]} of {share.cap}"
                for team, share in shares.items()
                if held[team] > share.cap
            },
        )
        torn: dict[object, str] = {
            key: f"{'/'.join(key)} has {count} of {sizes[key]} pods bound"
            for key, count in now.bound.items()
            if 0 < count < sizes[key] and key in now.jobs and alive(now.jobs[key])
        }
        problems += partly.now(event.at, torn)
        problems += starved.now(event.at, dict(starving(now, gangs, held, shares)))
    return problems


def starving(
    now: Moment, gangs: Sequence[Gang], held: Mapping[str, int], shares: Mapping[str, Share]
) -> Iterator[tuple[object, str]]:
    """Teams that wait for what they deserve while another has more than it deserves."""
    if not any(held[team] > share.deserved for team, share in shares.items()):
        return
    for team, share in shares.items():
        room = share.deserved - held[team]
        waiting = [gang.size for gang in gangs if gang.team == team and now.waits(gang)]
        if waiting and min(waiting) <= room:
            yield team, f"{team} has {held[team]} of the {share.deserved} it deserves, and gangs that would fit wait,"


def lost(now: Moment, gangs: Sequence[Gang], deleted: set[tuple[str, str]]) -> list[str]:
    """Jobs that have not ended as they should, and pods of their teams that nobody ends."""
    problems, teams = [], {gang.team for gang in gangs}
    for gang in gangs:
        key = gang.team, gang.name
        job = now.jobs.get(key)
        if key in deleted and job is not None:
            problems.append(f"{'/'.join(key)} was deleted and is there")
        if key not in deleted and (job is None or phase(job) != "Completed"):
            problems.append(f"{'/'.join(key)} is {phase(job) if job else 'gone'}, not Completed")
    left = {
        (pod["metadata"]["namespace"], pod["metadata"]["labels"][JOB_LABEL])
        for pod in now.pods.values()
        if pod["status"].get("phase") not in ENDED and pod["metadata"]["namespace"] in teams
    }
    return problems + [f"{'/'.join(key)} has pods that still run" for key in sorted(left)]


def timeline(events: Sequence[Event], gangs: Sequence[Gang], shares: Mapping[str, Share], every_s: float = 5) -> str:
    """What each team held and how many of its gangs waited, a line every few seconds: for the message of a failure."""
    now, lines, last = Moment(), [], 0.0
    for event in events:
        now.see(event)
        if event.at - last >= every_s:
            last = event.at
            waiting = {team: sum(gang.team == team and now.waits(gang) for gang in gangs) for team in shares}
            texts = (f"{team} has {now.held.get(team, 0)}, {waiting[team]} gangs wait" for team in shares)
            lines.append(f"{event.at - events[0].at:6.1f} s: {'; '.join(texts)}")
    return "\n".join(lines)
