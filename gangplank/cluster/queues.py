"""Whether the queue of a job accepts it, checked against the cluster's queues before anything is created.

Volcano's webhook checks its own Jobs in the same way. It does not check PyTorchJobs, whose pods then wait forever.
https://volcano.sh/en/docs/queue/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of
from gangplank.backends.queueing import NO_QUEUE, QUEUE_SYSTEM, Queue
from gangplank.errors import Problem, shown
from gangplank.reading.fields import near

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gangplank.spec import Json

KIND = QUEUE_SYSTEM.queue[:2]


def queue_of(manifest: Json) -> Queue:
    """Where a manifest names a queue, and which; ("", "") if it uses no queue.

    >>> kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    >>> queue_of({**kind, "spec": {"queue": "vision"}}), queue_of({**kind, "spec": {}})
    (Queue(path='spec.queue', name='vision'), Queue(path='spec.queue', name='default'))
    """
    backend = backend_of(manifest)
    return BACKENDS[backend].queue(manifest) if backend else NO_QUEUE


def problems(manifest: Json, live_queues: Iterable[Json]) -> list[Problem]:
    """What is wrong with the queue of a manifest; nothing if it accepts jobs.

    >>> job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"queue": "visoin"}}
    >>> queues = [{"metadata": {"name": "vision"}, "spec": {}, "status": {"state": "Open"}}]
    >>> print(problems(job, queues)[0])
    spec.queue: got "visoin", expected one of the cluster's queues vision. Did you mean vision?
    """
    path, name = queue_of(manifest)
    by_name = {item["metadata"]["name"]: item for item in live_queues}
    parent_of = {queue: (item.get("spec") or {}).get("parent") for queue, item in by_name.items()}
    if not name:
        return []
    children = sorted(queue for queue, parent in parent_of.items() if parent == name)
    leaves = sorted(set(by_name) - set(parent_of.values()) - {QUEUE_SYSTEM.root})
    if name == QUEUE_SYSTEM.root:
        expected = f"a leaf queue ({QUEUE_SYSTEM.title} takes no job in {name})"
        return [Problem(path, shown(name), expected, f"choose one of {', '.join(leaves)}" if leaves else "")]
    if name not in by_name:
        return [Problem(path, shown(name), f"one of the cluster's queues {', '.join(leaves)}", near(name, leaves))]
    if children:
        fix = f"name one of its own: {', '.join(children)}"
        return [Problem(path, shown(name), "a leaf queue, which has no queues below it", fix)]
    state = (by_name[name].get("status") or {}).get("state") or "Unknown"
    if state != "Open":
        fix = f"open it (vcctl queue operate -n {name} -a open), or name another"
        return [Problem(path, f"{shown(name)}, which is {state}", "a queue that is Open", fix)]
    return []
