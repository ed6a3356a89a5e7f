"""A run with known events, and what every panel and every alert has to say of it.

The oldest job has ended, and the limit of the run's exporter leaves it out. A gang waits for more than the cluster
has. A training stops, since one of its ranks does. A job fails after two retries; a queue holds twice what it deserves,
and its team all of its quota. At the end, the API server is silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.recorded import NAME, alerts, filled, queries
from tests.support.why_stories import Story, queue

if TYPE_CHECKING:
    from tests.support.recorded import Alert, Answer, Labels, Recording

Json = dict[str, Any]
DIGITS = (
    "exec python3 -m torch.distributed.run --nnodes=2 --node-rank=$RANK --master-addr=$MASTER_ADDR"
    " --master-port=$MASTER_PORT /opt/gangplank/trainer/train.py --epochs 9999 --log-interval 5 --threads 1"
    " --collective-timeout 1800"
)
SHARE = queue("shared", deserved={"cpu": "10m"}, capability={"cpu": "1"})
QUOTA: Json = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "gangplank-team", "labels": {"gangplank.dev/team": "vision"}},
    "spec": {"hard": {"requests.cpu": "20m", "pods": "10"}},
}
STORIES = {
    "old": Story("", {"command": ["true"]}),
    "waits": Story("short", {"workers": 20, "resources": {"cpu": "900m", "memory": "32Mi"}}),
    "stops": Story("", {"command": ["sh", "-c", DIGITS]}),
    "fails": Story("failed", {"command": ["sh", "-c", "sleep 20; exit 3"], "max_retries": 2}),
    "over": Story("", {"queue": "shared"}, beside=(SHARE, QUOTA)),
}
MOST_JOBS = len(STORIES) - 1  # of a scrape
ADMIN, NOBODY = ({"instance": name, "job": "gangplank"} for name in ("admin", "nobody"))
VARIABLES = {"namespace": f"why-({'|'.join(STORIES)})", "resource": "cpu"}
OF_JOB = {"namespace": "why-stops", "job": "stops"}
HIDDEN = (
    "jobs in namespace default", "jobs of other namespaces than default", "nodes", "queues",
    "quotas in namespace default", "quotas of other namespaces than default", "what is held and free on nodes",
    "what waits in queues",
)  # fmt: skip
PERIOD_S = 300  # of the alerts; what is known has to last as long


def named(name: str) -> Labels:
    """The labels of a story's job."""
    return {"namespace": f"why-{name}", "job_name": name, "backend": "volcano"}


def value(recording: Recording, mark: str, name: str, **labels: str) -> float:
    """The one sample of a metric."""
    ((_, only),) = recording.at(mark, name, instance="admin", **labels)
    return only


def ranks(recording: Recording, name: str) -> dict[str, float]:
    """What the two ranks of the training say, by rank."""
    return {labels["rank"]: one for labels, one in recording.at("known", name, job_name="stops")}


def panels(recording: Recording) -> dict[str, Answer]:
    """The answer to every panel's query at the moment when all is known."""
    shared, default = ({**ADMIN, "queue": name} for name in ("shared", "default"))
    cpu = {"resource": "cpu"}
    team = {**ADMIN, "team": "vision", "namespace": "why-over"}
    waiting_s = value(recording, "known", "gangplank_job_waiting_seconds", job_name="waits")
    step, planned, loss, step_s, seen = (
        ranks(recording, f"gangplank_rank_{name}")
        for name in ("step", "steps_planned", "loss", "step_seconds", "last_seen_timestamp_seconds")
    )
    stops, now = named("stops") | ADMIN, recording.time("known")
    omitted = {NAME: "gangplank_omitted", "kind": "jobs", **ADMIN}

    def by_rank(name: str, some: dict[str, float]) -> Answer:
        more = {NAME: f"gangplank_rank_{name}"} if name else {}
        return [({**stops, **more, "rank": rank}, one) for rank, one in sorted(some.items())]

    def of_queue(name: str, **values: float) -> Answer:
        by_name = {"shared": shared, "default": default}
        return [({NAME: f"gangplank_queue_{name}", **by_name[one], **cpu}, some) for one, some in values.items()]

    def of_job(name: str, number: float) -> Answer:
        return [({NAME: f"gangplank_job_{name}", **stops}, number)]

    site, job = "gangplank-site.json", "gangplank-job.json"
    queues = f"{site}: Queues: held, deserved, the most, waiting"
    return {
        f"{site}: Jobs by phase: A": [({"phase": name}, one) for name, one in
                                      (("failed", 1), ("running", 2), ("waiting", 1))],
        f"{site}: Gangs that wait: A": [({"queue": "default"}, 1), ({"queue": "shared"}, 0)],
        f"{site}: Longest waits: A": [({NAME: "gangplank_job_waiting_seconds", **named("waits"), **ADMIN}, waiting_s)],
        f"{site}: Restarts in the last hour: A": [(named("fails") | ADMIN, 2)],
        f"{queues}: A": of_queue("held", default=0.02, shared=0.02),
        f"{queues}: B": of_queue("deserved", shared=0.01),
        f"{queues}: C": of_queue("capability", shared=1),
        f"{queues}: D": of_queue("waiting", default=18.9, shared=0),
        f"{site}: Queues: held of what is deserved: A": [(shared | cpu, 2)],
        f"{site}: Teams: quota used: A": [({**team, "resource": name}, one) for name, one in
                                          (("pods", 0.2), ("requests.cpu", 1))],
        f"{site}: What is missing: A": [({NAME: "gangplank_unreadable", **NOBODY, "what": what}, 1) for what in HIDDEN],
        f"{site}: What is missing: B": [(omitted, value(recording, "known", "gangplank_omitted", kind="jobs"))],
        f"{site}: What is missing: C": [],
        f"{job}: Steps done: A": by_rank("", {rank: step[rank] / planned[rank] for rank in step}),
        f"{job}: Loss: A": by_rank("loss", loss),
        f"{job}: Seconds a step: A": by_rank("step_seconds", step_s),
        f"{job}: Time left: A": [({"job_name": "stops"},
                                  max((planned[rank] - step[rank]) * step_s[rank] for rank in step))],
        f"{job}: Silence of ranks: A": by_rank("", {rank: now - one for rank, one in seen.items()}),
        f"{job}: Pods: A": of_job("replicas_ready", 2),
        f"{job}: Pods: B": of_job("replicas", 2),
        f"{job}: Waiting: A": of_job("waiting_seconds", 0),
        f"{job}: Restarts: A": of_job("retries_total", 0),
    }  # fmt: skip


def check(recording: Recording) -> None:
    """What is recorded is of the run that is described, whatever promtool says of it."""
    assert value(recording, "known", "gangplank_job_waiting_seconds", job_name="waits") > PERIOD_S
    assert value(recording, "known", "gangplank_omitted", kind="jobs") >= 1  # ended before, and so may others have
    assert not recording.at("known", "gangplank_job_info", job_name="old")
    now, since = recording.time("known"), recording.time("stopped")
    seen = ranks(recording, "gangplank_rank_last_seen_timestamp_seconds")
    assert seen.keys() == {"0", "1"}
    assert all(now - one > PERIOD_S and one < since + 30 for one in seen.values()), seen
    step, planned = (ranks(recording, f"gangplank_rank_{name}") for name in ("step", "steps_planned"))
    assert all(0 < step[rank] < planned[rank] for rank in seen)
    assert max(step.values()) - min(step.values()) <= 5  # --log-interval


def answers(recording: Recording) -> dict[str, dict[str, Answer]]:
    """The same as promtool asks: by moment and query."""
    known = panels(recording)
    expressions = dict(queries())
    assert known.keys() == expressions.keys()
    by_query = {
        filled(expression, OF_JOB if where.startswith("gangplank-job") else VARIABLES): known[where]
        for where, expression in expressions.items()
    }
    silent: Answer = [({NAME: "gangplank_up", **own}, 0) for own in (ADMIN, NOBODY)]
    return {"known": by_query, "silent": {expressions["gangplank-site.json: What is missing: C"]: silent}}


def lasting(seconds: float) -> str:
    """A time as Prometheus' humanizeDuration writes it.

    >>> lasting(437.6)
    '7m 17s'
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m {rest}s"


def firing(recording: Recording) -> dict[str, dict[str, list[Alert]]]:
    """The alerts that fire, by moment; all others do not."""
    quiet: dict[str, list[Alert]] = {name: [] for name in alerts()}
    warning, info = {"severity": "warning"}, {"severity": "info"}

    def of_job(name: str, summary: str, command: str = "why", end: str = "", **more: str) -> list[Alert]:
        notes = {"summary": f"why-{name}/{name} {summary}",
                 "description": f"gangplank {command} {name} -n why-{name}{end}"}  # fmt: skip
        return [(named(name) | warning | more, notes)]

    waiting_s = value(recording, "known", "gangplank_job_waiting_seconds", job_name="waits")
    silent_s = recording.time("known") - min(ranks(recording, "gangplank_rank_last_seen_timestamp_seconds").values())
    over = {"summary": "queue shared holds more cpu than it deserves while gangs wait",
            "description": "gangplank status shows who holds what. The queue may have to give it back."}  # fmt: skip
    full = {"summary": "team vision uses 100% of its quota of requests.cpu",
            "description": "Further pods in namespace why-over may be refused."}  # fmt: skip
    known: dict[str, list[Alert]] = quiet | {
        "GangplankJobWaits": of_job("waits", f"has been waiting for {lasting(waiting_s)}", **ADMIN),
        "GangplankTrainingStopped": of_job("stops", f"has not reported a step for {lasting(silent_s)}"),
        "GangplankJobFailed": of_job("fails", "has failed", phase="failed", **ADMIN),
        "GangplankJobRestarts": of_job(
            "fails", "began again 2 times in half an hour", "logs", " --previous", **ADMIN
        ),
        "GangplankQueueOverShare": [({**ADMIN, "queue": "shared", "resource": "cpu", **info}, over)],
        "GangplankTeamQuotaFull": [
            ({**ADMIN, "team": "vision", "namespace": "why-over", "resource": "requests.cpu", **info}, full)
        ],
    }
    silent = {"summary": "The cluster does not answer",
              "description": "gangplank metrics prints the reason on its standard error."}  # fmt: skip
    ended: list[Alert] = [({**own, "severity": "critical"}, silent) for own in (ADMIN, NOBODY)]
    still = {name: known[name] for name in ("GangplankJobRestarts",)}  # it looks back for half an hour
    return {"begun": quiet, "known": known, "silent": quiet | still | {"GangplankClusterSilent": ended}}
