"""A site as numbers for Prometheus: queues, teams, jobs and ranks, read as `gangplank status` reads them.

What may not be read is a metric too, never a guess. What is too much is left out, and counted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from gangplank.backends import backend_of
from gangplank.backends.pod_template import TEAM_LABEL
from gangplank.cluster import overview
from gangplank.cluster.attempts import attempts
from gangplank.cluster.progress import phase
from gangplank.cluster.queues import queue_of
from gangplank.cluster.situation import suspension
from gangplank.cluster.snapshot import snapshot
from gangplank.cluster.standstill import size_of
from gangplank.k8s.age import age_s
from gangplank.k8s.conditions import has_condition
from gangplank.scheduling.amounts import MILLI, amounts
from gangplank.scheduling.snapshot import GROUPS, QUEUES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from gangplank.cluster.client import Kube
    from gangplank.cluster.overview import Reading
    from gangplank.scheduling.snapshot import Snapshot
    from gangplank.spec import Json

MOST_JOBS = 1000  # those that have not ended first, then the newest
MOST_LOGS = 256  # one for each pod of a training: a scrape reads no more
MOST_RANKS = 64  # of a job; the lowest ones
# Fields of a status that count failures; the field of the spec that limits them, and 1 if it counts the last failure,
# after which nothing begins again
COUNTERS = {"retryCount": ("maxRetry", 1), "failed": ("backoffLimit", 0)}
PHASES = ("waiting", "running", "suspended", "succeeded", "failed")


@dataclass(frozen=True)
class Family:
    """One metric: its name without the `_total` of a counter, what it says, and its labels."""

    name: str
    says: str
    labels: tuple[str, ...] = ()
    counter: bool = False

    @property
    def full_name(self) -> str:
        """The name in queries."""
        return f"{self.name}_total" if self.counter else self.name


QUEUE, TEAM = ("queue", "resource"), ("team", "namespace", "resource")
JOB = ("namespace", "job_name", "backend")  # `job` is Prometheus' own label
RANK = (*JOB, "rank")
FAMILIES = {
    family.name.removeprefix("gangplank_"): family
    for family in (
        Family("gangplank_up", "1 if the cluster was read, 0 if it does not answer"),
        Family("gangplank_unreadable", "1 for what is missing because this user may not read it", ("what",)),
        Family("gangplank_omitted", "how many are left out, because a scrape has a limit", ("kind",)),
        Family("gangplank_queue_deserved", "what a queue deserves, in cores, bytes or devices", QUEUE),
        Family("gangplank_queue_capability", "the most that a queue may hold, in cores, bytes or devices", QUEUE),
        Family("gangplank_queue_held", "what jobs of a queue hold, in cores, bytes or devices", QUEUE),
        Family("gangplank_queue_waiting", "what gangs that wait in a queue need, in cores, bytes or devices", QUEUE),
        Family("gangplank_queue_waiting_gangs", "gangs that wait in a queue", ("queue",)),
        Family("gangplank_team_quota_hard", "the most that a team's namespace may use", TEAM),
        Family("gangplank_team_quota_used", "what a team's namespace uses", TEAM),
        Family("gangplank_job_info", "1; the queue of a job, and its state in its controller's own word",
               (*JOB, "queue", "state")),
        Family("gangplank_job_phase", f"1; the phase of a job: {', '.join(PHASES)}", (*JOB, "phase")),
        Family("gangplank_job_replicas", "pods that a job has once all exist", JOB),
        Family("gangplank_job_replicas_ready", "pods of a job that are ready", JOB),
        Family("gangplank_job_waiting_seconds", "how long a job has been waiting; 0 while all its pods run", JOB),
        Family("gangplank_job_retries", "how often a job began again, as far as the cluster says", JOB, counter=True),
        Family("gangplank_rank_step", "optimizer steps that a rank has taken", RANK),
        Family("gangplank_rank_steps_planned", "optimizer steps of the whole training", RANK),
        Family("gangplank_rank_loss", "the loss of a rank's last reported step", RANK),
        Family("gangplank_rank_step_seconds", "how long one of a rank's last steps took", RANK),
        Family("gangplank_rank_last_seen_timestamp_seconds",
               "when a rank last said something of its training, since 1970", RANK),
    )
}  # fmt: skip


@dataclass
class Samples:
    """Values by family and labels."""

    values: dict[str, dict[tuple[str, ...], float]] = field(default_factory=lambda: {name: {} for name in FAMILIES})

    def put(self, name: str, value: float | None, *labels: object) -> None:
        """One value; None is none."""
        if value is not None:
            self.values[name][tuple(map(str, labels))] = float(value)

    def put_amounts(self, name: str, some: Mapping[str, int], *labels: str) -> None:
        """Amounts of several resources."""
        for resource, value in some.items():
            self.put(name, value / MILLI, *labels, resource)


def unanswered() -> Samples:
    """What is known of a cluster that does not answer."""
    samples = Samples()
    samples.put("up", 0)
    return samples


def site_metrics(kube: Kube, namespaces: Sequence[str] = ()) -> Samples:
    """The site as this user may see it; with namespaces, only the jobs and quotas in those."""
    state = snapshot(kube, kube.namespace_of(*namespaces[:1]))
    samples = Samples()
    missing: list[str] = []
    put_queues(samples, state)
    put_teams(samples, kube, namespaces, missing)
    put_jobs(samples, kube, namespaces, state, missing)
    for line in dict.fromkeys([*missing, *overview.unread(state)]):
        samples.put("unreadable", 1, line.partition(":")[0])
    samples.put("up", 1)
    return samples


def put_queues(samples: Samples, state: Snapshot) -> None:
    """What queues deserve, may hold and hold, and what waits in them."""
    waiting = overview.waiting_by_queue(state)
    for share in overview.queues(state) if QUEUES not in state.unread else ():
        capability = amounts((share.queue.get("spec") or {}).get("capability"))
        count, wanted = waiting.get(share.name, (0, {}))
        sides = {"deserved": share.deserved, "capability": capability}
        resources = overview.counted({**share.held, **wanted}) | share.deserved | capability
        sides["held"] = {name: share.held.get(name, 0) for name in resources}
        if GROUPS not in state.unread:
            sides["waiting"] = {name: wanted.get(name, 0) for name in resources}
            samples.put("queue_waiting_gangs", count, share.name)
        for side, some in sides.items():
            samples.put_amounts(f"queue_{side}", some, share.name)


def put_teams(samples: Samples, kube: Kube, namespaces: Sequence[str], missing: list[str]) -> None:
    """What quotas allow the namespaces of teams, and what these use."""
    for quota in overview.items_in(kube, namespaces, "quotas", "/api/v1/resourcequotas", missing):
        meta, status = quota["metadata"], quota.get("status") or {}
        team = str((meta.get("labels") or {}).get(TEAM_LABEL) or "")
        for side in ("hard", "used") if team else ():
            samples.put_amounts(f"team_quota_{side}", amounts(status.get(side)), team, meta["namespace"])


def put_jobs(samples: Samples, kube: Kube, namespaces: Sequence[str], state: Snapshot, missing: list[str]) -> None:
    """Every job, and the ranks of those that run."""
    jobs = overview.submitted(kube, namespaces, missing)
    state, unread = overview.with_pods(kube, state, jobs[:MOST_JOBS])
    pods = overview.PodsOfJobs(state)
    logs: list[tuple[tuple[str, ...], Json]] = []
    for job in jobs[:MOST_JOBS]:
        own, namespace = pods.of(job), job["metadata"].get("namespace", "")
        logs += [(key_of(job), pod) for pod in own if overview.runs(pod)]
        put_job(samples, job, own, kube.now(), known=namespace not in unread)
    missing += overview.unread_pods(unread)
    until = monotonic() + overview.LOGS_S
    with ThreadPoolExecutor(overview.THREADS) as pool:
        said = pool.map(lambda one: overview.reading(kube, one[1], missing, state.away, until), logs[:MOST_LOGS])
        by_job: dict[tuple[str, ...], dict[int, Reading]] = {}
        for (key, _), ranks in zip(logs, said, strict=False):
            by_job.setdefault(key, {}).update(ranks)
    more = 0
    for key, ranks in by_job.items():
        more += max(0, len(ranks) - MOST_RANKS)
        for rank in sorted(ranks)[:MOST_RANKS]:
            put_rank(samples, (*key, str(rank)), ranks[rank])
    for kind, count in (("jobs", len(jobs) - MOST_JOBS), ("logs", len(logs) - MOST_LOGS), ("ranks", more)):
        samples.put("omitted", max(0, count), kind)


def key_of(job: Json) -> tuple[str, str, str]:
    """The labels of a job."""
    return str(job["metadata"].get("namespace", "")), str(job["metadata"]["name"]), str(backend_of(job))


def put_job(samples: Samples, job: Json, pods: Sequence[Json], time: datetime, *, known: bool = True) -> None:
    """One job with its pods that have not ended, if these are known."""
    key, now = key_of(job), phase(job)
    alive = () if now.ended else pods
    retries = retries_of(job, pods)
    idle_s = 0.0 if now.ended or suspension(job, now.name) else waiting_s(job, alive, retries, time)
    word = "succeeded" if now.succeeded else "failed" if now.failed else ""
    word = word or ("suspended" if suspension(job, now.name) else "waiting" if idle_s else "running")
    samples.put("job_info", 1, *key, queue_of(job).name, now.name)
    samples.put("job_replicas", size_of(job), *key)
    samples.put("job_retries", retries, *key)
    if not known and word in {"waiting", "running"}:
        return
    samples.put("job_phase", 1, *key, word)
    samples.put("job_replicas_ready", sum(has_condition(pod, "Ready") for pod in alive), *key)
    if not now.ended:
        samples.put("job_waiting_seconds", idle_s, *key)


def retries_of(job: Json, pods: Sequence[Json]) -> int:
    """How often a job began again: by its status, where its controller counts, else by its pods and containers."""
    status, spec = job.get("status") or {}, job.get("spec") or {}
    begun = max((run.number - 1 for pod in pods for run in attempts(job, [pod])), default=0)
    counted = [min(int(status.get(name) or 0), int(spec.get(most) or 0) - last)
               for name, (most, last) in COUNTERS.items()]  # fmt: skip
    return max(begun, *counted)


def waiting_s(job: Json, pods: Sequence[Json], retries: int, now: datetime) -> float:
    """Seconds since which a job waits for pods: since it began again, if it did; 0 if every pod that exists runs.

    One without pods that began before has waited since its state changed.

    `now` is by the API server's clock, as the times of objects are.
    """
    late = [pod for pod in pods if not overview.runs(pod)]
    if pods and not late:
        return 0.0
    again = late and (retries or len(late) < len(pods))
    since = min((str(pod["metadata"].get("creationTimestamp", "")) for pod in late), default="") if again else ""
    if retries and not pods:
        status = job.get("status") or {}
        states = [status.get("state") or {}, *(status.get("conditions") or ())]
        since = max((str(state.get("lastTransitionTime") or "") for state in states), default="")
    return max(age_s(since or job["metadata"].get("creationTimestamp"), now), 0.001)


def put_rank(samples: Samples, key: Sequence[str], said: Reading) -> None:
    """One rank, as far as it says."""
    samples.put("rank_last_seen_timestamp_seconds", said.seen, *key)
    samples.put("rank_step_seconds", said.step_s, *key)
    if said.steps_total:
        samples.put("rank_step", said.step, *key)
        samples.put("rank_steps_planned", said.steps_total, *key)
        samples.put("rank_loss", said.loss, *key)
