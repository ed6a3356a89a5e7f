"""Queue systems: who lets the pods of many jobs start in turn.

A queue system is beside the back-ends, not part of one: several back-ends go through the same one, and a back-end's
job may go through none. What a back-end says of it is only where its manifest names a queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class QueueSystem:
    """One scheduler with queues, and how work names its queue."""

    api_version: str  # of its queues
    kind: str
    scheduler: str  # schedulerName of the pods that it places
    default: str  # the queue of work that names none
    annotations: tuple[str, ...]  # by which a pod names its queue; the first one counts
    group: str  # annotation: the group that a pod belongs to, which has the queue


VOLCANO = QueueSystem(
    api_version="scheduling.volcano.sh/v1beta1",
    kind="Queue",
    scheduler="volcano",
    default="default",
    annotations=("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name"),
    group="scheduling.k8s.io/group-name",
)


class Queue(NamedTuple):
    """Where a manifest names a queue, and which."""

    path: str
    name: str


NO_QUEUE = Queue("", "")  # of a manifest that goes to no queue
