"""Failed pods that Volcano's controller has overlooked, and their removal, after which it restarts the gang.

It learns of a failure from the change of a pod. A pod that fails while the controller is down is never restarted: the
others wait for it until their rendezvous is given up. Its removal is a change too.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gangplank.backends import backend_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.spec import Json

OVERLOOKED_S = 5.0  # the controller restarts a gang within a second
RESTARTED_BY = {"PodFailed", "PodEvicted"}  # events for which the job's policies have to be RestartJob


def pods(job: Json, every: Sequence[Json], now: datetime | None = None) -> list[Json]:
    """Those of a running job's pods that failed some time ago, although the job restarts for a failed pod."""
    phase = ((job.get("status") or {}).get("state") or {}).get("phase")
    if backend_of(job) != "volcano" or phase not in {"Pending", "Running"} or not restarts(job["spec"]):
        return []
    return [pod for pod in every if failed_s(pod, now) > OVERLOOKED_S and not pod["metadata"].get("deletionTimestamp")]


def restarts(spec: Json) -> bool:
    """Whether the gang restarts for each pod that fails or goes away, whatever its exit status."""
    policies = [*(spec.get("policies") or []), *(item for task in spec["tasks"] for item in task.get("policies") or [])]
    events = {event for policy in policies if policy.get("action") == "RestartJob"
              for event in policy.get("events") or [policy.get("event")]}  # fmt: skip
    return ("*" in events or events >= RESTARTED_BY) and not any("exitCode" in policy for policy in policies)


def failed_s(pod: Json, now: datetime | None = None) -> float:
    """Seconds since a pod failed, 0 if it did not."""
    status = pod.get("status") or {}
    states = [item.get("state") or {} for item in status.get("containerStatuses") or []]
    ends = [state["terminated"]["finishedAt"] for state in states if (state.get("terminated") or {}).get("finishedAt")]
    if status.get("phase") != "Failed" or not ends:
        return 0.0
    return ((now or datetime.now(UTC)) - datetime.fromisoformat(max(ends))).total_seconds()


def reason(pod: Json) -> str:
    """What a message says of an overlooked pod."""
    meta = pod["metadata"]
    fix = f"kubectl delete pod {meta['name']} -n {meta['namespace']}"
    return f"{meta['name']}: failed, and Volcano's controller did not restart the job. Fix: {fix}"
