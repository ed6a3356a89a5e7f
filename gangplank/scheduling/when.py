"""When a job would start, and end, by what ranks of running jobs say they have left. Intervals, not promises. Pure.

The future is played three times: as early, as likely and as late as each job may end. Whenever one ends, the jobs that
wait are tried in their order, as a scheduler does, by `fit`. Jobs of other namespaces have no name here.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, pairwise
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING

from gangplank.backends.device_claims import RESOURCE
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.scheduling.demand import changed, shape
from gangplank.scheduling.fit import Verdict, fit
from gangplank.scheduling.namespace_rules import charged, defaulted
from gangplank.scheduling.snapshot import PRIORITIES, Pods
from gangplank.text import listed, others

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.fit import Answer
    from gangplank.scheduling.snapshot import Snapshot
    from gangplank.spec import Json

EARLY = 0  # of the three futures: what only may happen, and delays the job, does not
BLOCKS = 5  # parts of the reported time, each with a pace of its own
LEAST = 5  # blocks without which the paces say nothing of how much they vary
CALM, UNSURE = 1.25, 2.0  # how many times less or more the next takes than what was seen: at least, and at most
ENOUGH = 3  # values without which nothing is known of how much they vary
LOOK_S = 5.0  # until a scheduler looks again
SILENT = 10  # times its usual pause between reports: then a training has stopped
PATIENCE_S = 60.0  # but not before
DISPLACES = "it would end pods of a lower priority (not computed here)"


@dataclass(frozen=True)
class Interval:
    """Seconds from now: no earlier than, most likely, no later than."""

    low: float
    likely: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        """One after the other."""
        return Interval(self.low + other.low, self.likely + other.likely, self.high + other.high)

    @property
    def cases(self) -> tuple[float, float, float]:
        """Early, likely, late."""
        return self.low, self.likely, self.high


# Both where no job that has ended says it
CLOSING = Interval(0.0, 5.0, 20.0)  # from a training's last step to the end of its pods: last checkpoint, evaluation
OPENING = Interval(0.0, 5.0, 20.0)  # from room for a job to its pods' start: the scheduler's next look, the kubelet


def left(
    points: Sequence[tuple[float, int]], steps_total: int, now: float, closing: Interval = CLOSING
) -> Interval | None:
    """How long a training still takes, by when it reported which step; None if it says too little, or no more.

    >>> left([(0.0, 0), (10.0, 10), (20.0, 20), (30.0, 30)], 130, 30.0)
    Interval(low=50.0, likely=105.0, high=220.0)
    """
    if starting(points, steps_total):
        return None
    (began, first), (seen, last) = points[0], points[-1]
    pause = (seen - began) / (len(points) - 1)
    if now - seen > max(SILENT * pause, PATIENCE_S):
        return None
    pace = (seen - began) / (last - first)
    paces = list(block_paces(points)) if len(points) > LEAST else []
    fast, slow = reach(paces) if paces else reach([pace])
    # Steps that it has not reported yet are fewer than those between two reports, however long ago the last one was
    steps, since = steps_total - last, min(max(0.0, now - seen), pause)
    return Interval(*(max(0.0, steps * one - since) for one in (fast, pace, slow))) + closing


def starting(points: Sequence[tuple[float, int]], steps_total: int) -> bool:
    """Whether a job has reported too few steps to have a pace: it has just begun, or never reports any."""
    return len(points) < 2 or not steps_total


def spread(seconds: Sequence[float]) -> Interval | None:
    """What the next may take where others took so long; None without any.

    >>> spread([20.0, 20.0, 25.0])
    Interval(low=16.0, likely=20.0, high=31.25)
    """
    if not seconds:
        return None
    low, high = reach(seconds)
    return Interval(low, median(seconds), high)


def reach(seen: Sequence[float]) -> tuple[float, float]:
    """The least and the most to expect after what was seen: the more that varies, the further beyond it.

    Of values in any order, the next one is outside of five every third time.

    >>> reach([20.0]), reach([20.0, 20.0, 20.0]), reach([10.0, 20.0, 30.0])
    ((10.0, 40.0), (16.0, 25.0), (5.0, 60.0))
    """
    least, most = min(seen), max(seen)
    times = UNSURE if len(seen) < ENOUGH or most >= UNSURE * least else max(CALM, most / least)
    return least / times, most * times


def by_running(running: Sequence[tuple[float, Interval]]) -> Interval | None:
    """What the next may take by those that run: how long each has run, and what it has left; None without any."""
    if not running:
        return None
    low, likely, high = zip(*((so_far + cases for cases in rest.cases) for so_far, rest in running), strict=True)
    return Interval(min(low) / CALM, median(likely), max(high) * CALM)


def rest_of(lasts: Interval | None, so_far: float) -> Interval | None:
    """What a job has left that takes as long as those like it; None if nobody knows, or if it takes longer.

    >>> rest_of(Interval(8.0, 20.0, 40.0), 10.0), rest_of(Interval(8.0, 20.0, 40.0), 40.0)
    (Interval(low=0.0, likely=10.0, high=30.0), None)
    """
    if lasts is None or so_far >= lasts.high:
        return None
    return Interval(*(max(0.0, seconds - so_far) for seconds in lasts.cases))


@dataclass(frozen=True)
class Run:
    """When the pods of a job came and went, in seconds since 1970."""

    created: float
    placed: float
    began: float
    ended: float | None = None


def opening(runs: Sequence[Run]) -> Interval:
    """From room for a job to its pods' start: by jobs that waited while another ended, just before they had a node."""
    ends = sorted(run.ended for run in runs if run.ended is not None)
    gaps = []
    for run in runs:
        number = bisect_right(ends, run.placed)
        if number and ends[number - 1] > run.created:
            gaps.append(run.began - ends[number - 1])
    measured = spread(gaps) if len(gaps) >= ENOUGH else None
    return Interval(0.0, measured.likely, measured.high + LOOK_S) if measured else OPENING


def closing(points: Sequence[tuple[float, int]], steps_total: int, ended: float) -> Interval:
    """From a training's last step to the end of its pods, by one that has ended."""
    if starting(points, steps_total):
        return CLOSING
    (began, first), (seen, last) = points[0], points[-1]
    seconds = max(0.0, ended - seen - (steps_total - last) * (seen - began) / (last - first))
    return Interval(0.5 * seconds, seconds, max(2.0 * seconds, CLOSING.high))


def block_paces(points: Sequence[tuple[float, int]]) -> Iterator[float]:
    """Seconds of a step, in each of a few parts of the reported time."""
    blocks = min(BLOCKS, len(points) - 1)
    edges = [points[round(number * (len(points) - 1) / blocks)] for number in range(blocks + 1)]
    for (then, before), (now, after) in pairwise(edges):
        yield (now - then) / (after - before)


@dataclass(frozen=True)
class Holder:
    """A job that holds something, and when it frees it."""

    name: str  # "" for one of another namespace
    uids: frozenset[str]  # of its pods
    group: str = ""  # uid of its gang
    left: Interval | None = None  # None: nobody knows


@dataclass(frozen=True)
class Waiting:
    """A job that waits, and how long it will run."""

    job: Demand
    uids: frozenset[str] = frozenset()  # of its pods
    group: str = ""  # uid of its gang
    lasts: Interval | None = None  # None: nobody knows
    classes: frozenset[str] = frozenset()  # of priority
    priority: int = 0
    created: str = ""
    unsure: str = ""  # why nobody knows whether it is tried before the job that is asked about

    @property
    def turn(self) -> tuple[int, str, str]:
        """The order in which schedulers try jobs: by priority, then the oldest first."""
        return -self.priority, self.created, self.job.name


@dataclass(frozen=True)
class Outlook:
    """When a job starts and ends. Without a start, `why` has the reason."""

    start: Interval | None = None
    end: Interval | None = None
    after: tuple[str, ...] = ()  # jobs that end before it starts, in their order; those of other namespaces as a sum
    why: str = ""
    unsure: tuple[str, ...] = ()  # what would have to be known for a narrower interval, one line each


@dataclass
class Course:
    """One of the three futures."""

    state: Snapshot
    case: int  # early, likely, late
    homes: dict[str, Snapshot]  # by namespace: what it allows its jobs
    unsure: dict[str, list[Waiting]] = field(default_factory=dict)  # by why nobody knows whether they start first
    seconds: float = 0.0
    ended: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)
    opening: Interval = OPENING

    def try_to_start(self, one: Waiting) -> Answer:
        """What a scheduler would say of a job now: by what its own namespace allows, and without its own pods."""
        home = self.homes[one.job.namespace]
        pods = self.pods_of(one.uids)
        if pods:
            home = replace(home, quotas=charged(home.quotas, pods, -1))
        state = self.state.without(one.uids, one.group).within(home)
        job = replace(one.job, in_line=self.in_line(one))
        return fit(job, state, explain=False, displacing=PRIORITIES not in state.unread)

    def alike(self, one: Waiting) -> str:
        """Equal for jobs of which a scheduler says the same now; "" for one that has something of its own."""
        pods = self.pods_of(one.uids)
        if one.unsure or self.in_line(one) or any(own_place(pod) for pod in pods):
            return ""
        parts = [(shape(part.spec), part.minimum, len(part.pods)) for part in one.job.parts]
        own = sorted(shape(pod["spec"]) for pod in pods)  # what quotas count of it already
        return repr((one.job.namespace, one.job.queue, one.job.gang, one.job.least, parts, own))

    def in_line(self, one: Waiting) -> bool:
        """Whether a job's gang has a place in line."""
        return any(item["metadata"].get("uid") == one.group for item in self.reserving)

    @cached_property
    def reserving(self) -> list[Json]:
        """The gangs that have a place in line in their queues."""
        return [group for group in self.state.groups if (group.get("status") or {}).get("phase") == "Inqueue"]

    def try_ahead(self, one: Waiting, own: Waiting) -> Answer:
        """What a scheduler would say of a job ahead: early, it takes nothing if nobody can tell; else what it asks."""
        answer = self.try_to_start(one)
        reason = one.unsure or ("; ".join(answer.missing) if answer.verdict is Verdict.CANNOT_TELL else "")
        reason = reason or (DISPLACES if answer.ended else "")
        if not reason:
            return answer
        self.note(one, reason)
        if self.case == EARLY:
            return replace(answer, verdict=Verdict.NO)
        if answer.verdict is Verdict.CANNOT_TELL:
            home = self.homes[one.job.namespace]
            self.homes[one.job.namespace] = replace(home, unread={})
            answer = self.try_to_start(replace(one, job=computable(one.job, devices=not claims(own.job))))
            self.homes[one.job.namespace] = home
        return replace(answer, verdict=Verdict.NO) if answer.causes else answer

    def note(self, one: Waiting, reason: str) -> None:
        """Keep why nobody knows whether a job starts first."""
        jobs = self.unsure.setdefault(reason, [])
        jobs += [] if any(other is one for other in jobs) else [one]

    def pods_of(self, uids: frozenset[str]) -> list[Json]:
        """The pods of a job."""
        return [pod for pod in self.state.pods.items if pod["metadata"]["uid"] in uids]

    def remove(self, uids: frozenset[str], group: str, *, ended: bool) -> None:
        """Take a job's pods away, from the quotas of its namespace, too."""
        for pod in self.pods_of(uids):
            self.charge(pod["metadata"]["namespace"], [pod], -1, ended=ended)
        self.state = self.state.without(uids, group)

    def charge(self, namespace: str, pods: list[Json], times: int, *, ended: bool = False) -> None:
        """Note in the quotas of a namespace that pods come or go."""
        if home := self.homes.get(namespace):
            self.homes[namespace] = replace(home, quotas=charged(home.quotas, pods, times, ended=ended))

    def admit(self, one: Waiting, nodes: Mapping[str, str]) -> tuple[frozenset[str], str]:
        """Put a job on its nodes; what it is called by then."""
        self.remove(one.uids, one.group, ended=False)
        job = defaulted(one.job, self.homes[one.job.namespace])
        number = next(self.numbers)
        name = f"when-{number}"
        annotations = {QUEUE_SYSTEM.group: name}
        named = {"namespace": job.namespace, "annotations": annotations}
        pods: list[Json] = [
            {
                "metadata": {**named, "name": pod, "uid": f"{name}-{pod}"},
                "spec": {**part.spec, "nodeName": nodes[pod]},
                "status": {"phase": "Running"},
            }
            for part in job.parts for pod in part.pods if pod in nodes
        ]  # fmt: skip
        spec = {"queue": job.queue, "minMember": job.minimum}
        meta = {"name": name, "namespace": job.namespace, "uid": name}
        group: Json = {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}
        more = (group,) if job.queue else ()
        self.charge(job.namespace, pods, 1)
        items = (*self.state.pods.items, *pods)
        self.state = replace(self.state, pods=Pods(items), groups=(*self.state.groups, *more))
        return frozenset(pod["metadata"]["uid"] for pod in pods), name


def own_place(pod: Json) -> bool:
    """Whether a pod of a job that waits holds, or is promised, what another could use: a node, or devices."""
    promised = (pod.get("status") or {}).get("nominatedNodeName")
    return bool(promised or pod["spec"].get("nodeName") or pod["spec"].get("resourceClaims"))


def claims(job: Demand) -> bool:
    """Whether a job needs devices by claim."""
    return any(name.startswith(RESOURCE) for name in job.asked)


def computable(job: Demand, *, devices: bool) -> Demand:
    """A job without the rules that `fit` cannot compute; with `devices`, also without its claims to devices."""
    left_out = {"affinity", "topologySpreadConstraints", *(["resourceClaims"] if devices else [])}
    specs = []
    for part in job.parts:
        spec = {name: value for name, value in part.spec.items() if name not in left_out}
        of_nodes = (part.spec.get("affinity") or {}).get("nodeAffinity")
        specs.append(spec | ({"affinity": {"nodeAffinity": of_nodes}} if of_nodes else {}))
    return changed(job, specs)


def outlook(
    own: Waiting,
    state: Snapshot,
    holders: Sequence[Holder],
    ahead: Sequence[Waiting] = (),
    homes: Mapping[str, Snapshot] = MappingProxyType({}),
    behind: Sequence[Waiting] = (),
    opening: Interval = OPENING,
) -> Outlook:
    """When a job that waits starts, and ends; `ahead` are the jobs that are tried before it, first ones first.

    `homes` has the objects of their namespaces, `state` those of the job's own. Those `behind` start before it where
    they find room and it does not, except early.
    """
    courses, starts = [], []
    for case in range(3):
        course = Course(state, case, {**homes, own.job.namespace: state.home}, opening=opening)
        seconds, reason = begins(own, course, holders, ahead, () if case == EARLY else behind)
        if seconds is None:
            return Outlook(after=named(course.ended), why=reason)
        starts.append(seconds)
        courses.append(course)
    start = Interval(*sorted(starts))
    doubts = {reason: named(one.job.name for one in jobs) for reason, jobs in courses[-1].unsure.items()}
    unsure = [f"whether {listed(names)} starts first: {reason}" for reason, names in doubts.items()]
    silent = sum(holder.left is None for holder in holders)
    if silent and start.high > opening.high:
        unsure.append(f"when {silent} that hold something end: it may start earlier")
    return Outlook(start, start + own.lasts if own.lasts else None, named(courses[1].ended), unsure=tuple(unsure))


def begins(
    own: Waiting, course: Course, holders: Sequence[Holder], ahead: Sequence[Waiting], behind: Sequence[Waiting]
) -> tuple[float | None, str]:
    """Seconds until a job starts in one course of the future; without them, why."""
    ends: list[tuple[float, int, Holder]] = []
    order = count()
    for holder in holders:
        if holder.left is not None:
            heapq.heappush(ends, (holder.left.cases[course.case], next(order), holder))
    queue, first, last = [*ahead, own, *behind], {id(one) for one in ahead}, {id(one) for one in behind}
    kinds = {id(one): course.alike(one) for one in queue}  # what a job holds while it waits stays the same
    while True:
        refused: set[str] = set()  # those alike need not be tried again before another job ends
        for one in list(queue):
            kind = kinds[id(one)]
            if kind and kind in refused and one is not own:
                continue
            answer = course.try_ahead(one, own) if id(one) in first else course.try_to_start(one)
            if answer.verdict is Verdict.CANNOT_TELL and id(one) not in last:
                whose = "" if one is own else f"whether {named([one.job.name])[0]}, which is ahead of it, starts: "
                return None, whose + ("; ".join(answer.missing) or "whether it would start")
            if answer.verdict is not Verdict.YES:
                refused.add(kind)
                continue
            if one is own:
                return course.seconds + course.opening.cases[course.case], ""
            queue = [other for other in queue if other is not one]
            uids, group = course.admit(one, answer.nodes)
            if one.lasts is not None:
                end = course.seconds + course.opening.cases[course.case] + one.lasts.cases[course.case]
                heapq.heappush(ends, (end, next(order), Holder(one.job.name, uids, group)))
        if not ends:
            return None, unknown(holders, ahead)
        course.seconds, _, holder = heapq.heappop(ends)
        course.ended.append(holder.name)
        course.remove(holder.uids, holder.group, ended=True)


def named(names: Iterable[str]) -> tuple[str, ...]:
    """The names of jobs, with those that have none as a sum.

    >>> named(["", "digits", ""])
    ('digits', '2 jobs of other namespaces')
    """
    every = list(names)
    own = [name for name in every if name]
    return (*own, *others(len(every) - len(own), "job"))


def unknown(holders: Sequence[Holder], ahead: Sequence[Waiting]) -> str:
    """Why nobody knows when there is room."""
    silent = sum(holder.left is None for holder in holders)
    new = sum(one.lasts is None for one in ahead)
    parts = [f"{silent} that hold something do not say how long they still take"] if silent else []
    parts += [f"{new} are ahead of it, and nobody knows how long they take"] if new else []
    rest = f": of the others, {' and '.join(parts)}" if parts else ""
    return f"the jobs that say when they end free too little{rest}"
