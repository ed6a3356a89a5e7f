"""Reads what decides when a job starts and ends: what runs, how much of it is left, and what waits before the job."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster import overview
from gangplank.cluster.progress import phase
from gangplank.cluster.runs import lasted, run_of
from gangplank.cluster.situation import foreseen, own_group, readable_site, suspension
from gangplank.cluster.snapshot import home, snapshot, with_drivers, with_runtimes
from gangplank.scheduling.pod_causes import cut
from gangplank.scheduling.when import (
    CLOSING,
    Holder,
    Interval,
    Outlook,
    Run,
    Waiting,
    by_running,
    closing,
    left,
    named,
    opening,
    outlook,
    rest_of,
    spread,
    starting,
)  # fmt: skip
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gangplank.backends.base import Site
    from gangplank.cluster.client import Kube
    from gangplank.scheduling.snapshot import Snapshot
    from gangplank.spec import Json

NEWEST = 5  # jobs of a kind, by which the next are judged
LAST = "~"  # sorts after every time: a job that is not submitted yet
MOST_LOGS = 256  # of other jobs, one each
SIZES = ("completions", "parallelism")  # of a Job
ALIKE = ("command", "args", "image", "resources")  # fields of a container
TRAINER = (*ALIKE[:-1], "numNodes", "numProcPerNode", "resourcesPerNode")  # of a TrainJob


@dataclass(frozen=True)
class Answer:
    """What is said of a job."""

    name: str
    state: str  # "running", "waiting" or its end
    outlook: Outlook
    missing: tuple[str, ...] = ()
    ended: bool = False

    @property
    def running(self) -> bool:
        """Whether only its end is ahead of it."""
        return self.state == "running"

    @property
    def known(self) -> bool:
        """Whether what was asked is answered."""
        return self.ended or (self.outlook.end if self.running else self.outlook.start) is not None


def answer(kube: Kube, job: Json, *, live: bool, others: Sequence[Json] = ()) -> Answer:
    """When a job starts and ends."""
    meta, now = job["metadata"], phase(job)
    namespace = meta.get("namespace") or "default"
    missing: list[str] = []
    if live and now.ended:
        how = f"{now.name}: {cut(now.reason)}" if now.failed and now.reason else now.name
        return Answer(meta["name"], now.name, Outlook(why=f"it has ended: {how}"), ended=True)
    if live and (reason := suspension(job, now.name)):
        return Answer(meta["name"], "suspended", Outlook(why=reason))
    state = snapshot(kube, namespace)
    jobs = overview.submitted(kube, [], missing, namespace)
    state, unread = overview.with_pods(kube, state, [job, *jobs])
    if live and namespace in unread:
        return Answer(meta["name"], now.name, Outlook(why=overview.unread_pods([namespace])[0]), tuple(missing))
    pods = overview.PodsOfJobs(state)
    alive = [one for one in jobs if not phase(one).ended]
    lasting = [one for one in alive if runs(pods.of(one))]
    past = Past(jobs, overview.PodsOfJobs(state, ended=True))
    known = rests(kube, lasting, pods, past, missing, state.away)
    running = {key_of(one) for one in lasting}
    if live and key_of(job) in running:
        rest = known.left.get(key_of(job))
        why = "" if rest else "its ranks do not say how many steps they have left, or no longer report any"
        return Answer(meta["name"], "running", Outlook(Interval(0, 0, 0), rest, why=why), tuple(missing))
    holders = [held(state, one, pods.of(one), known.left.get(key_of(one)), namespace) for one in lasting]
    took = known.lasts
    own = waiting(kube, state, job, pods.of(job) if live else [], took, readable_site(kube, tuple(others)), others)
    if own is None:
        return Answer(meta["name"], "waiting", Outlook(why="what it asks for cannot be foreseen"), tuple(missing))
    site, queue, unforeseen = readable_site(kube, ()), list[Waiting](), list[str]()
    for item in alive:
        if key_of(item) in running or (live and key_of(item) == key_of(job)) or suspension(item, phase(item).name):
            continue
        if one := waiting(kube, state, item, pods.of(item), took, site):
            named_job = replace(one.job, name=name_in(namespace, item))
            queue.append(doubtful(replace(one, job=named_job), own, state))
        else:
            unforeseen.append(name_in(namespace, item))
    missing += [f"what {listed(named(unforeseen))} asks for, which waits, too"] if unforeseen else []
    queue.sort(key=lambda one: one.turn)
    state = with_runtimes(kube, state, [own.job, *(one.job for one in queue)])
    ahead = [one for one in queue if one.turn < own.turn or one.unsure]
    homes = {name: home(kube, name) for name in {one.job.namespace for one in queue} - {namespace}}
    every = [(one, state.within(homes[one.namespace]) if one.namespace in homes else state)
             for one in (own.job, *(one.job for one in queue))]  # fmt: skip
    state = with_drivers(kube, state, every)
    behind = [one for one in queue if one not in ahead]
    runs_so_far = (run_of(one, pods.of(one)) for one in lasting)
    opens = opening([*past.runs, *(run for run in runs_so_far if run)])
    said = outlook(own, state, holders, ahead, homes, behind, opens)
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


@dataclass(frozen=True)
class Rests:
    """What jobs that run have left, by job; and how long jobs last, by what they are like."""

    left: Mapping[str, Interval | None]
    lasts: Mapping[str, Interval]


class Past:
    """The jobs that have ended, the newest first, and their pods."""

    def __init__(self, jobs: Sequence[Json], pods: overview.PodsOfJobs) -> None:
        self.runs: list[Run] = []
        self.by_kind: dict[str, list[tuple[Json, list[Json]]]] = {}  # of those that ended well
        for job in jobs:
            if not phase(job).ended:
                continue
            own = pods.of(job)
            if (run := run_of(job, own)) and run.ended is not None:
                self.runs.append(run)
            if phase(job).succeeded:
                self.by_kind.setdefault(likeness(job), []).append((job, own))

    def lasts(self, kind: str) -> Interval | None:
        """How long a job of a kind takes, by the newest that ended well."""
        took = [one for one in (lasted(job, pods) for job, pods in self.by_kind.get(kind, ())) if one]
        sure = [seconds for seconds, without_wait in took if without_wait][:NEWEST]
        if sure or not took:
            return spread(sure)
        return replace(spread([seconds for seconds, _ in took[:NEWEST]]) or Interval(0, 0, 0), low=0.0)

    def closing(self, kube: Kube, kind: str, missing: list[str], until: float) -> Interval:
        """What comes after the last step of a training of a kind, by the newest that ended well."""
        for job, pods in self.by_kind.get(kind, ()):
            if (run := run_of(job, pods)) and run.ended is not None:
                said = overview.reading(kube, overview.first(pods), missing, until=until).get(0)
                return closing(said.points, said.steps_total, run.ended) if said else CLOSING
        return CLOSING


def rests(
    kube: Kube,
    lasting: Sequence[Json],
    pods: overview.PodsOfJobs,
    past: Past,
    missing: list[str],
    away: Collection[str] = (),
) -> Rests:
    """What jobs that run have left: by their steps, else by what those like them took."""
    some, until = lasting[:MOST_LOGS], time.monotonic() + overview.LOGS_S
    with ThreadPoolExecutor(overview.THREADS) as pool:
        kinds = sorted({likeness(one) for one in some} - {""})
        ends = dict(pool.map(lambda kind: (kind, past.closing(kube, kind, missing, until)), kinds))
        lines = pool.map(lambda one: said_by(kube, pods.of(one), missing, away, until), some)
        said = dict(zip(map(key_of, some), lines, strict=True))
    now = kube.now().timestamp()
    runs = {key_of(one): run_of(one, pods.of(one)) for one in lasting}
    so_far = {key: max(0.0, now - run.began) if run else 0.0 for key, run in runs.items()}
    by_steps: dict[str, Interval | None] = {}
    by_kind: dict[str, list[tuple[float, Interval]]] = {}
    for job in lasting:
        key, kind = key_of(job), likeness(job)
        if (one := said.get(key)) and not starting(one.points, one.steps_total):
            rest = left(one.points, one.steps_total, now, ends.get(kind, CLOSING))
            by_steps[key] = rest
            if rest:
                by_kind.setdefault(kind, []).append((so_far[key], rest))
    lasts = {kind: interval for kind in {*by_kind, *past.by_kind} - {""}
             if (interval := past.lasts(kind) or by_running(by_kind.get(kind, [])))}  # fmt: skip
    known = {key_of(job): rest_of(lasts.get(likeness(job)), so_far[key_of(job)]) for job in lasting}
    return Rests(known | by_steps, lasts)


def said_by(
    kube: Kube, pods: Sequence[Json], missing: list[str], away: Collection[str], until: float
) -> overview.Reading | None:
    """What the first rank of a job says of its steps."""
    running = [pod for pod in pods if overview.runs(pod)]
    return overview.reading(kube, overview.first(running), missing, away, until).get(0) if running else None


def name_in(namespace: str, job: Json) -> str:
    """The name of a job in an answer about one of a namespace; "" of those of other namespaces, which are sums."""
    meta = job["metadata"]
    return str(meta["name"]) if meta["namespace"] == namespace else ""


def held(state: Snapshot, job: Json, pods: Sequence[Json], rest: Interval | None, namespace: str) -> Holder:
    """A job that runs, in an answer about one of a namespace."""
    group = own_group(state, job, pods)
    uids = frozenset(pod["metadata"]["uid"] for pod in pods)
    return Holder(name_in(namespace, job), uids, group["metadata"]["uid"] if group else "", rest)


def waiting(
    kube: Kube,
    state: Snapshot,
    job: Json,
    pods: Sequence[Json],
    took: Mapping[str, Interval],
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
    parts = spec.get("tasks") or [*(spec.get("pytorchReplicaSpecs") or {}).values()] or [spec]
    containers = [
        (part.get("replicas"), [[one.get(name) for name in ALIKE] for one in inner.get("containers") or ()])
        for part in parts
        if (inner := ((part.get("template") or {}).get("spec") or {}))
    ]
    sizes = [spec.get(name) for name in SIZES]
    trainer = spec.get("trainer") or {}
    own = [spec.get("runtimeRef"), *(trainer.get(name) for name in TRAINER)] if trainer else containers
    return json.dumps([job.get("apiVersion"), job.get("kind"), sizes, own], sort_keys=True) if own else ""
