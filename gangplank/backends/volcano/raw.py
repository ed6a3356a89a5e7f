"""Facts about any Volcano Job, ours or third-party: pitfalls, templates, its queue, and how to scale it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends.base import RESUBMIT, Site, Template, unscalable
from gangplank.backends.gang import unrequested
from gangplank.backends.queueing import VOLCANO, Queue
from gangplank.backends.volcano import go_flags
from gangplank.backends.volcano.objects import admitted
from gangplank.backends.volcano.plugins import FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.spec import Json


def pitfalls(manifest: Json) -> Iterator[str]:
    """What Volcano accepts although its author hardly intends it.

    >>> spec = {"plugins": {"pytorch": ["--port=abc"]}, "tasks": [{"name": "worker", "replicas": 1}]}
    >>> for text in pitfalls({"spec": spec}): print(text)
    plugin pytorch: "abc" is not a value for --port, so it becomes 0
    plugin pytorch: there is no task master, so nothing is wired: no rank, no address
    """
    spec: Json = manifest["spec"]
    plugins, tasks = spec.get("plugins") or {}, spec.get("tasks") or []
    named = [(task.get("name") or f"default{at}", task) for at, task in enumerate(tasks)]
    for name, arguments in plugins.items():
        trouble = go_flags.parse(arguments or [], FLAGS[name]).trouble
        if trouble:
            zero = ", so it becomes 0" if trouble.endswith("--port") and "not a value for" in trouble else ""
            yield f"plugin {name}: {trouble}{zero}"
    if "pytorch" in plugins:
        flags = go_flags.parse(plugins["pytorch"] or [], FLAGS["pytorch"]).values
        counts = {name: task.get("replicas") or 0 for name, task in named}
        if flags["master"] not in counts:
            yield f"plugin pytorch: there is no task {flags['master']}, so nothing is wired: no rank, no address"
        elif counts[str(flags["master"])] > 1:
            yield f"plugin pytorch: every replica of {flags['master']} gets rank 0"
    for name, task in named:
        if "replicas" not in task:
            yield f"task {name}: replicas is not set, so it has no pods"
        if task.get("dependsOn") and not spec.get("minAvailable"):
            yield f"task {name} waits for others, but the gang counts its pods: the job never starts"
    if any(policy.get("event") == "TaskCompleted" for policy in spec.get("policies") or []):
        yield "the policy on TaskCompleted is set on the job, so it fires when the first task ends"
    yield from unrequested(named, limits_count=False)


def templates(manifest: Json, site: Site) -> tuple[Json, list[Template]]:
    """The job as the webhook leaves it, and its tasks."""
    job = admitted(manifest, site)
    return job, [Template(task, "volcano.sh/task-spec", task["name"]) for task in job["spec"]["tasks"]]


def queue(manifest: Json) -> Queue:
    """The job's own queue."""
    return Queue("spec.queue", str((manifest.get("spec") or {}).get("queue") or VOLCANO.default))


def evidence_id(live: Json) -> str | None:
    """The name of its PodGroup, which the API server's uid completes."""
    meta = live["metadata"]
    return f"{meta['name']}-{meta['uid']}" if "uid" in meta else None


def scale(job: Json, workers: int) -> Json:
    """Volcano adds and removes pods of a task, but running pods keep the WORLD_SIZE that they were made with."""
    spec = job["spec"]
    if "pytorch" in (spec.get("plugins") or {}):
        expected = "a job without the plugin pytorch (running pods keep the WORLD_SIZE they were made with)"
        raise unscalable(job, workers, expected, f"{RESUBMIT}, or use pytorchjob with elastic")
    tasks: list[Json] = [dict(task) for task in spec["tasks"]]
    task = next((item for item in tasks if item["name"] == "worker"), None)
    if task is None:
        raise unscalable(job, workers, f"a task worker among {', '.join(item['name'] for item in tasks)}", "")
    task["minAvailable"] = min(task["minAvailable"], workers)  # the webhook has filled it in
    task["replicas"] = workers
    return {"spec": {"tasks": tasks, "minAvailable": min(spec["minAvailable"], sum(t["replicas"] for t in tasks))}}


RESTARTED_BY = {"PodFailed", "PodEvicted"}  # the second one is also for pods that were removed


def failures(live: Json, _: int) -> int:
    """Its controller counts them, the last one too, after which nothing begins again.

    https://github.com/volcano-sh/volcano/blob/v1.15.0/pkg/controllers/job/state/restarting.go
    """
    most, times = live["spec"].get("maxRetry") or 0, (live.get("status") or {}).get("retryCount") or 0
    return int(times) if times >= most > 1 else 0


def overlooks(job: Json) -> bool:
    """Whether a live job's controller restarts the gang for each failed pod whatever its exit status, if it sees it."""
    if ((job.get("status") or {}).get("state") or {}).get("phase") not in {"Pending", "Running"}:
        return False
    tasks = job["spec"]["tasks"]
    policies = [*(job["spec"].get("policies") or []), *(item for task in tasks for item in task.get("policies") or [])]
    events = {event for policy in policies if policy.get("action") == "RestartJob"
              for event in policy.get("events") or [policy.get("event")]}  # fmt: skip
    return ("*" in events or events >= RESTARTED_BY) and not any("exitCode" in policy for policy in policies)
