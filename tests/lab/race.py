"""What a race of teams must keep at every moment, judged over all that a watch has seen.

A moment is every change of a pod or a job. Amounts are whole GPUs; times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Json = dict[str, Any]
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
    jobs: dict[tuple[str, str], Json] = field(default_factory=dict)  # by team and name

    def see(self, event: Event) -> None:
        """Let a change happen."""
        meta = event.item["metadata"]
        if event.kind == "Pod":
            if event.gone:
                self.pods.pop(meta["uid"], None)
            else:
                self.pods[meta["uid"]] = event.item
        elif event.gone:
            self.jobs.pop((meta["namespace"], meta["name"]), None)
        else:
            self.jobs[meta["namespace"], meta["name"]] = event.item

    def allocated(self, team: str) -> int:
        """The GPUs that a team's pods hold, those that are being removed included."""
        return sum(
            pod["metadata"]["namespace"] == team
            and bool(pod["spec"].get("nodeName"))
            and pod["status"].get("phase") not in ENDED
            for pod in self.pods.values()
        )

    def bound(self) -> dict[tuple[str, str], int]:
        """How many pods of each gang have a node, and keep it."""
        found: dict[tuple[str, str], int] = {}
        for pod in self.pods.values():
            meta = pod["metadata"]
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in meta:
                key = meta["namespace"], meta["labels"][JOB_LABEL]
                found[key] = found.get(key, 0) + 1
        return found

    def waits(self, gang: Gang, bound: Mapping[tuple[str, str], int]) -> bool:
        """Whether a gang wants to start and has nothing yet."""
        job = self.jobs.get((gang.team, gang.name))
        return job is not None and alive(job) and not bound.get((gang.team, gang.name))


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
    told: set[object] = field(default_factory=set)

    def now(self, at: float, holding: Mapping[object, str]) -> Iterator[str]:
        """What has held for too long, told once."""
        self.began = {key: self.began.get(key, at) for key in holding}
        self.told &= {*holding}
        for key, what in holding.items():
            if at - self.began[key] > self.limit_s and key not in self.told:
                self.told.add(key)
                yield what if self.limit_s < 0 else f"{what} for more than {self.limit_s:.0f} s"


def judge(events: Sequence[Event], gangs: Sequence[Gang], shares: Mapping[str, Share]) -> list[str]:
    """Everything that was not kept, in the order of its time."""
    now = Moment()
    sizes = {(gang.team, gang.name): gang.size for gang in gangs}
    over, partly, starved = Since(-1), Since(PARTLY_S), Since(STARVED_S)
    found: list[str] = []
    for event in events:
        now.see(event)
        bound = now.bound()
        held = {team: now.allocated(team) for team in shares}
        found += over.now(
            event.at,
            {
                team: f"{team} has {held[team]} of {share.cap}"
                for team, share in shares.items()
                if held[team] > share.cap
            },
        )
        torn = {
            key: f"{'/'.join(key)} has {count} of {sizes[key]} pods bound"
            for key, count in bound.items()
            if count < sizes[key] and key in now.jobs and alive(now.jobs[key])
        }
        found += partly.now(event.at, torn)
        found += starved.now(event.at, dict(starving(now, gangs, bound, held, shares)))
    return found


def starving(
    now: Moment,
    gangs: Sequence[Gang],
    bound: Mapping[tuple[str, str], int],
    held: Mapping[str, int],
    shares: Mapping[str, Share],
) -> Iterator[tuple[object, str]]:
    """Teams that wait for what they deserve while another has more than it deserves."""
    if not any(held[team] > share.deserved for team, share in shares.items()):
        return
    for team, share in shares.items():
        room = share.deserved - held[team]
        waiting = [gang.size for gang in gangs if gang.team == team and now.waits(gang, bound)]
        if waiting and min(waiting) <= room:
            yield team, f"{team} has {held[team]} of the {share.deserved} it deserves, and gangs that would fit wait,"


def lost(now: Moment, gangs: Sequence[Gang], deleted: set[tuple[str, str]]) -> list[str]:
    """Jobs that have not ended as they should, and pods that nobody ends."""
    found = []
    for gang in gangs:
        key = gang.team, gang.name
        job = now.jobs.get(key)
        if key in deleted and job is not None:
            found.append(f"{'/'.join(key)} was deleted and is there")
        if key not in deleted and (job is None or phase(job) != "Completed"):
            found.append(f"{'/'.join(key)} is {phase(job) if job else 'gone'}, not Completed")
    left = {
        (pod["metadata"]["namespace"], pod["metadata"]["labels"][JOB_LABEL])
        for pod in now.pods.values()
        if pod["status"].get("phase") not in ENDED
    }
    return found + [f"{'/'.join(key)} has pods that go on" for key in sorted(left)]
