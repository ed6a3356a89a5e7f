"""Reads what decides when a job starts and ends: what runs, how much of it is left, and what waits before the job."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster import overview
from gangplank.cluster.progress import phase
from gangplank.cluster.situation import foreseen, home, own_group, readable_site, snapshot, suspension
from gangplank.scheduling.when import Holder, Interval, Outlook, Waiting, left, outlook

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gangplank.backends.base import Site
    from gangplank.cluster.client import Kube
    from gangplank.scheduling.snapshot import Snapshot
    from gangplank.spec import Json

SPREAD = (0.8, 1.0, 1.3)  # of what a job like it took
LAST = "~"  # sorts after every time: a job that is not submitted yet
MOST_LOGS = 256  # of other jobs, one each
ALIKE = ("command", "args", "image", "resources")  # fields of a container


@dataclass(frozen=True)
class Answer:
    """What is said of a job."""

    name: str
    state: str  # "running", "waiting" or its end
    outlook: Outlook
    missing: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether only its end is ahead of it."""
        return self.state == "running"

    @property
    def known(self) -> bool:
        """Whether what was asked is answered."""
        return (self.outlook.end if self.running else self.outlook.start) is not None


def answer(kube: Kube, job: Json, *, live: bool, others: Sequence[Json] = ()) -> Answer:
    """When a job starts and ends."""
    meta, now = job["metadata"], phase(job)
    namespace = meta.get("namespace") or "default"
    missing: list[str] = []
    if live and now.ended:
        return Answer(meta["name"], now.name, Outlook(why=f"it is {now.name}"))
    if live and (reason := suspension(job, now.name)):
        return Answer(meta["name"], "suspended", Outlook(why=reason))
    state = snapshot(kube, namespace)
    jobs, pods = overview.submitted(kube, [], missing), overview.PodsOfJobs(state)
    if not any(one["metadata"].get("uid") == meta.get("uid") for one in jobs) and live:
        jobs += overview.submitted(kube, [namespace], missing)
    alive = [one for one in jobs if not phase(one).ended]
    lasting = [one for one in alive if runs(pods.of(one))]
    with ThreadPoolExecutor(overview.THREADS) as pool:
        known = dict(pool.map(lambda one: (key_of(one), left_of(kube, pods.of(one), missing)), lasting[:MOST_LOGS]))
    running = {key_of(one) for one in lasting}
    if live and key_of(job) in running:
        rest = known.get(key_of(job))
        why = "" if rest else "its ranks do not say how many steps they have left, or no longer report any"
        return Answer(meta["name"], "running", Outlook(Interval(0, 0, 0), rest, why=why), tuple(missing))
    holders = [held(state, one, pods.of(one), known.get(key_of(one))) for one in lasting]
    took = durations(jobs, lasting, pods, known)
    own = waiting(kube, state, job, pods.of(job) if live else [], took, readable_site(kube, tuple(others)), others)
    if own is None:
        return Answer(meta["name"], "waiting", Outlook(why="what it asks for cannot be foreseen"), tuple(missing))
    site, queue = readable_site(kube, ()), list[Waiting]()
    for item in alive:
        if key_of(item) in running or (live and key_of(item) == key_of(job)) or suspension(item, phase(item).name):
            continue
        if one := waiting(kube, state, item, pods.of(item), took, site):
            queue.append(doubtful(one, own, state))
        else:
            missing.append(f"what {item['metadata']['name']} asks for, which waits, too")
    queue.sort(key=lambda one: one.turn)
    ahead = [one for one in queue if one.turn < own.turn or one.unsure]
    homes = {name: home(kube, name) for name in {one.job.namespace for one in queue} - {namespace}}
    said = outlook(own, state, holders, ahead, homes, [one for one in queue if one not in ahead])
    return Answer(meta["name"], "waiting", said, tuple(dict.fromkeys([*missing, *said.unsure])))


def runs(pods: Sequence[Json]) -> bool:
    """Whether a job holds its place: all of its pods have a node."""
    return bool(pods) and all(pod["spec"].get("nodeName") for pod in pods)


def doubtful(one: Waiting, own: Waiting, state: Snapshot) -> Waiting:
    """A job of another priority class than ours, if nobody may read which of the two comes first."""
    if "priorityclasses" in state.unread and one.classes != own.classes:
        return replace(one, unsure=f"priorityclasses ({state.unread['priorityclasses']})")
    return one


def classes_of(objects: Sequence[Json]) -> frozenset[str]:
    """The priority classes that decide a job's turn: its gang's, else those of its pods."""
    gang = [item["spec"] for item in objects if item["kind"] == QUEUE_SYSTEM.pod_group.kind]
    specs = gang or [item["spec"] for item in objects if item["kind"] == "Pod"]
    return frozenset(str(spec.get("priorityClassName") or "") for spec in specs)


def priority(classes: Iterable[str], priorities: Sequence[Json]) -> int:
    """The highest value of some priority classes; without one, the cluster's default."""
    values = {item["metadata"]["name"]: int(item.get("value", 0)) for item in priorities}
    usual = next((int(item.get("value", 0)) for item in priorities if item.get("globalDefault")), 0)
    return max((values.get(name, usual) for name in classes), default=usual)


def key_of(job: Json) -> str:
    """A live job."""
    return str(job["metadata"]["uid"])


def left_of(kube: Kube, pods: Sequence[Json], missing: list[str]) -> Interval | None:
    """What the first rank of a job says that it has left."""
    running = [pod for pod in pods if overview.runs(pod)]
    said = overview.reading(kube, overview.first(running), missing).get(0) if running else None
    return left(said.points, said.steps_total, time.time()) if said else None


def held(state: Snapshot, job: Json, pods: Sequence[Json], rest: Interval | None) -> Holder:
    """A job that runs."""
    group = own_group(state, job, pods)
    uids = frozenset(pod["metadata"]["uid"] for pod in pods)
    return Holder(job["metadata"]["name"], uids, group["metadata"]["uid"] if group else "", rest)


def waiting(
    kube: Kube,
    state: Snapshot,
    job: Json,
    pods: Sequence[Json],
    took: dict[str, Interval],
    site: Site,
    others: Sequence[Json] = (),
) -> Waiting | None:
    """A job that waits; None if the library cannot foresee its pods."""
    demand, objects = foreseen(kube, job, state, others, site)
    if demand is None or not demand.parts:
        return None
    group = own_group(state, job, pods) if "uid" in job["metadata"] else None
    return Waiting(
        demand,
        frozenset(pod["metadata"]["uid"] for pod in pods),
        group["metadata"]["uid"] if group else "",
        took.get(likeness(job)),
        classes_of(objects),
        priority(classes_of(objects), state.priorities),
        str(job["metadata"].get("creationTimestamp", LAST)),
    )


def likeness(job: Json) -> str:
    """Equal for jobs that run the same: their programs and what they ask for."""
    spec = job.get("spec") or {}
    parts = spec.get("tasks") or [spec]
    containers = [
        (part.get("replicas"), [[one.get(name) for name in ALIKE] for one in inner.get("containers") or ()])
        for part in parts
        if (inner := ((part.get("template") or {}).get("spec") or {}))
    ]
    return repr((job.get("apiVersion"), job.get("kind"), containers)) if containers else ""


def durations(
    jobs: Sequence[Json], lasting: Sequence[Json], pods: overview.PodsOfJobs, known: dict[str, Interval | None]
) -> dict[str, Interval]:
    """How long a job of each kind takes, by the newest that ended well, else by one that runs."""
    result: dict[str, Interval] = {}
    for job in lasting:
        rest = known.get(key_of(job))
        begun = min(str((pod.get("status") or {}).get("startTime") or "") for pod in pods.of(job))
        if rest and begun:
            so_far = time.time() - datetime.fromisoformat(begun).timestamp()
            result.setdefault(likeness(job), spread(so_far + rest.likely))
    ended: set[str] = set()
    for job in jobs:  # the newest first
        seconds = lasted(job)
        if seconds is not None and likeness(job) not in ended:
            ended.add(likeness(job))
            result[likeness(job)] = spread(seconds)
    result.pop("", None)
    return result


def spread(seconds: float) -> Interval:
    """What another job may take of which one took so long."""
    return Interval(*(seconds * factor for factor in SPREAD))


def lasted(job: Json) -> float | None:
    """How long a job ran that ended well, by its conditions; None if these do not say it."""
    if not phase(job).succeeded:
        return None
    times: dict[str, float] = {}
    for one in (job.get("status") or {}).get("conditions") or ():
        if one.get("lastTransitionTime"):
            name = str(one.get("type") or one.get("status"))
            times.setdefault(name, datetime.fromisoformat(one["lastTransitionTime"]).timestamp())
    return max(times.values()) - times["Running"] if "Running" in times else None
