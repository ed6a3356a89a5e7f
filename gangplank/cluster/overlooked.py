"""What a gang's controller has overlooked: pods that failed, and the end of the PodGroup.

Volcano's controller learns of a failure from the change of a pod. A pod that fails while the controller is down is
never restarted: the others wait for it until their rendezvous is given up. Its removal is a change too.

To restart a job, that controller deletes its PodGroup. If its watch of PodGroups lags behind that of pods, as it may
after an outage of the API server, it takes the old one for the new one, and makes none. The scheduler places no pod
without a PodGroup, so nothing changes any more, and the controller does not look at the job again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.k8s.age import age_s

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gangplank.spec import Json

OVERLOOKED_S = 5.0  # the controller restarts a gang within a second


def pods(job: Json, every: Sequence[Json], now: datetime) -> list[Json]:
    """Those of a running job's pods that failed some time ago, although the job restarts for a failed pod."""
    name = backend_of(job)
    if name is None or not BACKENDS[name].overlooks(job):
        return []
    return [pod for pod in every if failed_s(pod, now) > OVERLOOKED_S and not pod["metadata"].get("deletionTimestamp")]


def failed_s(pod: Json, now: datetime) -> float:
    """Seconds since a pod failed, 0 if it did not."""
    status = pod.get("status") or {}
    states = [item.get("state") or {} for item in status.get("containerStatuses") or []]
    ends = [state["terminated"]["finishedAt"] for state in states if (state.get("terminated") or {}).get("finishedAt")]
    if status.get("phase") != "Failed" or not ends:
        return 0.0
    return age_s(max(ends), now)


def group(every: Sequence[Json], now: datetime) -> str:
    """The PodGroup that some of a job's pods have waited for a node with for some time, "" if there is none."""
    for pod in every:
        meta = pod["metadata"]
        name: str = (meta.get("annotations") or {}).get(QUEUE_SYSTEM.group, "")
        waits = not pod["spec"].get("nodeName") and not meta.get("deletionTimestamp")
        if name and waits and age_s(meta.get("creationTimestamp"), now) > OVERLOOKED_S:
            return name
    return ""


def reason(pod: Json) -> str:
    """What a message says of an overlooked pod."""
    meta = pod["metadata"]
    fix = f"kubectl delete pod {meta['name']} -n {meta['namespace']}"
    return f"{meta['name']}: failed, and its job's controller did not restart the job. Fix: {fix}"
