"""A site on one screen: components, queues, jobs, GPUs and nodes. What may not be read is noted, never guessed.

Jobs of namespaces that a user may not list appear in the sums of queues and nodes alone.
"""

from __future__ import annotations

import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gangplank.backends import BACKENDS, backend_of, is_submitted_job, submitted_kinds
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster import pace
from gangplank.cluster.client import FORBIDDEN, MOST_BYTES, path
from gangplank.cluster.members import controller_of, may_own, pod_label, rank_of
from gangplank.cluster.progress import phase
from gangplank.cluster.snapshot import items, snapshot
from gangplank.cluster.standstill import size_of
from gangplank.errors import KubeError
from gangplank.k8s.pod_resources import is_extended
from gangplank.proof import log_lines
from gangplank.scheduling.amounts import Amounts, plus
from gangplank.scheduling.demand import least
from gangplank.scheduling.queue_rules import Share, shares
from gangplank.scheduling.rooms import ready
from gangplank.scheduling.snapshot import GROUPS, NODES, PODS, QUEUES, Snapshot, has_ended, living
from gangplank.site.components import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

LINES = 200  # of the log of a job's first rank, from its end
THREADS = 8
LOGS_S = 10.0  # after which no further log is asked for
JOB_COLUMNS = ("job", "namespace", "back-end", "state", "running", "pods", "progress", "left", "created")
NOT_COUNTED = re.compile(r"^(pods|ephemeral-storage|hugepages-.*|attachable-volumes-.*|count/.*)$")
STAMP = re.compile(r"^(\S+(?:Z|[+-]\d\d:\d\d)) (.*?)\r?$")  # in the node's time zone; a terminal adds \r
TAG = re.compile(r":([^:/@]+)(?:@.*)?$")  # of an image


@dataclass(frozen=True)
class Section:
    """One table: its rows are from column to value. A value is text, a number, seconds (float) or amounts."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Overview:
    """All of it."""

    cluster: str
    version: str
    sections: tuple[Section, ...]
    missing: tuple[str, ...] = ()


@dataclass
class Reading:
    """What a rank says of its training."""

    step: int = 0
    steps_total: int = 0
    epoch: int = 0
    loss: float | None = None
    seen: float | None = None  # when it last said something of its training, in seconds since 1970
    points: list[tuple[float, int]] = field(default_factory=list)  # seconds since 1970, step
    window: pace.Window | None = None  # the last steps of a script that reports no step

    def take(self, when: float, fields: Mapping[str, Any]) -> None:
        """One event or record of the rank."""
        self.seen = when
        if fields.get("event") != "step":
            return
        self.epoch, self.step, self.steps_total = fields["epoch"], fields["step"], fields["steps_total"]
        self.loss = fields["loss"]
        if self.points and self.points[-1][1] >= self.step:
            self.points.clear()  # it began again
        self.points.append((when, self.step))

    @property
    def text(self) -> str:
        """Where it stands; "" if nothing says so."""
        return f"epoch {self.epoch}, step {self.step} of {self.steps_total}" if self.steps_total else ""

    @property
    def step_s(self) -> float | None:
        """Seconds that one of its last steps took; None if there are too few.

        >>> Reading(points=[(0.0, 10), (40.0, 30)]).step_s
        2.0
        """
        if len(self.points) >= 2:
            (then, first), (now, last) = self.points[0], self.points[-1]
            return (now - then) / (last - first)
        return self.window.total / self.window.steps if self.window else None

    @property
    def left_s(self) -> float | None:
        """Seconds to its last step at the pace of its last ones; None if nothing says so.

        >>> Reading(30, 100, 1, points=[(0.0, 10), (40.0, 30)]).left_s
        140.0
        """
        return (self.steps_total - self.step) * self.step_s if self.steps_total and self.step_s is not None else None


def readings(lines: Iterable[str]) -> dict[int, Reading]:
    """What the ranks of a pod say of their training, by the lines of its log, each of which begins with the time."""
    ranks: dict[int, Reading] = {}
    for match in filter(None, map(STAMP.match, lines)):
        try:
            when, line = datetime.fromisoformat(match[1]).timestamp(), match[2]
        except ValueError:  # a script's own time, where the log begins in the middle of a line
            continue
        if pace.is_pace(line) and (window := pace.window(line)):
            rank = ranks.setdefault(window.rank, Reading())
            rank.seen, rank.window = when, window
        elif fields := log_lines.read(line):
            ranks.setdefault(fields["rank"], Reading()).take(when, fields)
    return ranks


def overview(kube: Kube, namespace: str = "") -> Overview:
    """The site as this user may see it; with a namespace, only the jobs in that one."""
    state = snapshot(kube, kube.namespace_of(namespace))
    missing: list[str] = []
    jobs = tuple(job_rows(kube, namespace, state, missing))
    sections = (
        Section("components", ("component", "version", "ready", "pods"), tuple(component_rows(kube, missing))),
        Section("queues", ("queue", "state", "held", "gangs waiting", "wanted", "free"), tuple(queue_rows(state))),
        Section("jobs", JOB_COLUMNS, jobs),
        Section("gpus", ("device", "nodes", "total", "held", "free"), tuple(device_rows(state))),
        Section("nodes", ("node", "state", "held", "free"), tuple(node_rows(state))),
    )
    missing += unread(state)
    return Overview(str(kube), str(kube.call("GET", "/version")["gitVersion"]), sections, tuple(dict.fromkeys(missing)))


def unread(state: Snapshot) -> Iterator[str]:
    """What is not in the tables because this user may not read it."""
    if PODS in state.unread:
        yield "what is held and free on nodes: you may not list pods of all namespaces"
    if GROUPS in state.unread:
        yield "what waits in queues: you may not list pod groups of all namespaces"
    for name in (NODES, QUEUES):
        if name in state.unread:
            yield f"{name}: you may not list them"


def counted(some: Mapping[str, int]) -> Amounts:
    """Amounts that matter to jobs."""
    return {name: value for name, value in some.items() if value and not NOT_COUNTED.match(name)}


def component_rows(kube: Kube, missing: list[str]) -> Iterator[Json]:
    """Each component of a site that the cluster has: its version, and whether its pods are ready."""
    workloads: list[Json] = []
    for plural in ("deployments", "daemonsets"):
        answer = items(kube, f"/apis/apps/v1/{plural}")
        if answer is None:
            missing.append("components: you may not list deployments and daemonsets of all namespaces")
            return
        workloads += answer
    for component in COMPONENTS.values():
        own = [item for item in workloads if item["metadata"]["namespace"] == component.namespace]
        if own:
            counts = [pods_of(item) for item in own]
            none = any(program in image for item in own if (item.get("spec") or {}).get("replicas") == 0
                       for image in images_of(item) for program in component.programs)  # scaled to zero
            whole = not none and all(there >= wanted for there, wanted in counts)
            ready, size = sum(one[0] for one in counts), sum(one[1] for one in counts)
            images = {image for item in own for image in images_of(item)}
            tags = sorted({match[1] for image in images if (match := TAG.search(image))})
            state = "yes" if whole else "no"
            name = component.title.removeprefix("a ").removeprefix("the ")
            yield {"component": name, "version": ", ".join(tags), "ready": state, "pods": f"{ready} of {size}"}


def pods_of(workload: Json) -> tuple[int, int]:
    """How many pods of a Deployment or DaemonSet are ready, and how many there should be."""
    status = workload.get("status") or {}
    if "desiredNumberScheduled" in status:
        return status.get("numberReady") or 0, status["desiredNumberScheduled"]
    return status.get("readyReplicas") or 0, (workload.get("spec") or {}).get("replicas", 1)


def images_of(workload: Json) -> Iterator[str]:
    """The images of its containers."""
    for container in ((workload["spec"].get("template") or {}).get("spec") or {}).get("containers") or ():
        yield str(container.get("image") or "")


def waiting_by_queue(state: Snapshot) -> dict[str, tuple[int, Amounts]]:
    """By queue: how many gangs wait in it, and what they need to begin."""
    waiting: dict[str, tuple[int, Amounts]] = {}
    for group in state.groups:
        spec = group.get("spec") or {}
        if (group.get("status") or {}).get("phase") in {None, "Pending", "Inqueue"}:
            name = str(spec.get("queue") or QUEUE_SYSTEM.default)
            count, amounts = waiting.get(name, (0, {}))
            waiting[name] = count + 1, plus(amounts, least(spec) or {})
    return waiting


def queues(state: Snapshot) -> Iterator[Share]:
    """The queues that take jobs, by name."""
    by_name = shares(state)
    inner = {share.parent for share in by_name.values()} | {QUEUE_SYSTEM.root}
    yield from (share for name, share in sorted(by_name.items()) if name not in inner)


def queue_rows(state: Snapshot) -> Iterator[Json]:
    """Each queue that takes jobs: what its jobs hold, what waits, and what its limits leave."""
    known, waiting = GROUPS not in state.unread, waiting_by_queue(state)
    for share in queues(state):
        limit = counted(share.limit)
        count, wanted = waiting.get(share.name, (0, {}))
        yield {
            "queue": share.name,
            "state": (share.queue.get("status") or {}).get("state") or "Unknown",
            "held": counted(share.held),
            "gangs waiting": count if known else None,
            "wanted": counted(wanted) if known else None,
            "free": {key: max(0, value - share.held.get(key, 0)) for key, value in limit.items()} or "no limit",
        }


def device_rows(state: Snapshot) -> Iterator[Json]:
    """Each kind of device that nodes have."""
    known = PODS not in state.unread
    for device in sorted({name for room in state.rooms for name in room.total if is_extended(name)}):
        rooms = [room for room in state.rooms if room.total.get(device)]
        total = sum(room.total[device] for room in rooms) // 1000
        held = sum(room.total.get(device, 0) - room.free.get(device, 0) for room in state.rooms) // 1000
        usable = [room for room in rooms if ready(room.node)]
        free = sum(max(0, room.free.get(device, 0)) for room in usable) // 1000
        row = {"device": device, "nodes": len(rooms), "total": total}
        yield row | {"held": held if known else None, "free": free if known else None}


def node_rows(state: Snapshot) -> Iterator[Json]:
    """Each node, those that take nobody first."""
    known = PODS not in state.unread
    rows = []
    for room in state.rooms:
        spec = room.node.get("spec") or {}
        taints = [one["key"] for one in spec.get("taints") or () if one["effect"] != "PreferNoSchedule"]
        words = [] if ready(room.node) else ["not ready"]
        words += ["cordoned"] if spec.get("unschedulable") else []
        words += [f"taint {key}" for key in taints if not key.startswith("node.kubernetes.io/")]
        held = {name: value - room.free.get(name, 0) for name, value in room.total.items()}
        row = {"node": room.name, "state": ", ".join(words) or "ready"}
        free = {name: max(0, value) for name, value in room.free.items() if not NOT_COUNTED.match(name)}
        rows.append(row | {"held": counted(held) if known else None, "free": free if known else None})
    yield from sorted(rows, key=lambda row: (row["state"] == "ready", row["node"]))


def submitted(kube: Kube, namespaces: Sequence[str], missing: list[str], home: str = "") -> list[Json]:
    """The jobs that users submitted, as `listed`: those that have not ended first, then the newest."""
    jobs = [job for job in listed(kube, namespaces, missing, home) if is_submitted_job(job)]
    jobs.sort(key=lambda job: str(job["metadata"].get("creationTimestamp", "")), reverse=True)
    jobs.sort(key=lambda job: phase(job).ended)
    return jobs


def with_pods(kube: Kube, state: Snapshot, jobs: Iterable[Json]) -> tuple[Snapshot, set[str]]:
    """The state with the pods of these jobs' namespaces, if those of all may not be read; and where these may not."""
    if PODS not in state.unread:
        return state, set()
    names = sorted({job["metadata"].get("namespace", "") for job in jobs})
    answers = {name: items(kube, path("v1", "Pod", name)) for name in names}
    every = [pod for answer in answers.values() for pod in answer or ()]
    ended = tuple(pod for pod in every if has_ended(pod))
    return replace(state, pods=living(every), ended=ended), {name for name, own in answers.items() if own is None}


def unread_pods(namespaces: Iterable[str]) -> list[str]:
    """That the pods of jobs may not be read there."""
    return [f"pods in namespace {name}: you may not list them" for name in sorted(namespaces)]


class PodsOfJobs:
    """The pods that have not ended, or those that have, by their jobs, as label and owner say: nothing more is read."""

    def __init__(self, state: Snapshot, *, ended: bool = False) -> None:
        self.every = state.ended if ended else state.pods.items
        self.pods: dict[tuple[str, str, str], list[Json]] = {}
        keys = [backend.wiring.job_name for backend in BACKENDS.values()]
        for pod in self.every:
            meta = pod["metadata"]
            labels = meta.get("labels") or {}
            for key in filter(labels.__contains__, keys):
                self.pods.setdefault((meta.get("namespace", ""), key, labels[key]), []).append(pod)

    def of(self, job: Json) -> list[Json]:
        """Those of one job."""
        meta, label = job["metadata"], pod_label(job)
        if not label:  # a Job that selects its pods itself has no other object between them and itself
            return [pod for pod in self.every if controller_of(pod).get("uid") == meta["uid"]]
        pods = self.pods.get((meta.get("namespace", ""), label, meta["name"]), [])
        return [pod for pod in pods if may_own(job, controller_of(pod))]


def runs(pod: Json) -> bool:
    """Whether a pod is Running."""
    return bool((pod.get("status") or {}).get("phase") == "Running")


def job_rows(kube: Kube, namespace: str, state: Snapshot, missing: list[str]) -> Iterator[Json]:
    """Each job that a user submitted."""
    jobs = submitted(kube, [namespace] if namespace else [], missing)
    state, unread = with_pods(kube, state, [job for job in jobs if not phase(job).ended])
    missing += unread_pods(unread)
    pods, until = PodsOfJobs(state), time.monotonic() + LOGS_S

    def row(job: Json) -> Json:
        meta, live = job["metadata"], not phase(job).ended
        readable = live and meta.get("namespace", "") not in unread
        running = [pod for pod in pods.of(job) if runs(pod)]
        ranks = reading(kube, first(running), missing, state.away, until) if live and running else {}
        said = ranks.get(0, Reading())
        return {
            "job": meta["name"],
            "namespace": meta.get("namespace", ""),
            "back-end": str(backend_of(job)),
            "state": phase(job).name,
            "running": len(running) if readable else None,
            "pods": size_of(job) if live else None,
            "progress": said.text if readable or not live else None,
            "left": said.left_s,
            "created": meta.get("creationTimestamp", ""),
        }

    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(row, jobs)


def listed(kube: Kube, namespaces: Sequence[str], missing: list[str], home: str) -> Iterator[Json]:
    """All jobs of some namespaces; without any, of all, else of `home`, or the user's own."""
    for version, kind in submitted_kinds():
        for answer in items_in(kube, namespaces, "jobs", path(version, kind, ""), missing, home):
            yield {"apiVersion": version, "kind": kind, **answer}


def items_in(
    kube: Kube, namespaces: Sequence[str], what: str, whole: str, missing: list[str], home: str = ""
) -> Iterator[Json]:
    """The objects of some namespaces by the path of all; without any, of all, else of `home`, or the user's own."""
    home = kube.namespace_of(home)

    def note(text: str) -> None:
        missing.extend([] if text in missing else [text])

    answer = None if namespaces else items(kube, whole)
    if answer is None:
        if not namespaces:
            note(f"{what} of other namespaces than {home}: you may not list them; name yours with -n")
        version, _, plural = whole.rpartition("/")
        answer = []
        for name in namespaces or [home]:
            own = items(kube, f"{version}/namespaces/{name}/{plural}")
            if own is None:
                note(f"{what} in namespace {name}: you may not list them")
            answer += own or []
    yield from answer


def reading(
    kube: Kube, pod: Json, missing: list[str], away: Collection[str] = (), until: float = math.inf
) -> dict[int, Reading]:
    """What the ranks of a pod say of their progress; nothing where its node does not answer, as the `away` do not.

    Nothing is begun after `until`, by the monotonic clock: each node that does not answer may take half a minute.
    """
    meta, node = pod["metadata"], pod["spec"].get("nodeName")
    what = f"progress of jobs in {meta['namespace']}"
    if node in away:
        missing.append(f"{what}: node {node} does not answer")
        return {}
    if time.monotonic() > until:
        missing.append(f"{what}: nodes took longer than {LOGS_S:.0f} s to answer")
        return {}
    try:
        lines = kube.patient(limit_s=0).log(pod, last=LINES, most=MOST_BYTES, timestamps=True)
    except KubeError as error:
        if error.status == FORBIDDEN:
            missing.append(f"{what}: you may not read their logs")
        elif error.outage:  # the API server asks the node
            missing.append(f"{what}: node {node} does not answer")
        return {}  # it has just begun, or ended
    return readings(lines)


def first(pods: Iterable[Json]) -> Json:
    """The pod with rank 0, as far as labels and names say."""
    return min(pods, key=lambda pod: (rank_of(pod) or 0, pod["metadata"]["name"]))
