"""Whether the queue of a job takes it, asked of the queues that a cluster has, before anything is made.

Volcano's webhook asks the same of its own Jobs; of a PyTorchJob nobody asks, and its pods then wait for ever.
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


def asked(manifest: Json) -> Queue:
    """Where a manifest names a queue, and which; ("", "") for one that goes to no queue.

    >>> kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    >>> asked({**kind, "spec": {"queue": "vision"}}), asked({**kind, "spec": {}})
    (Queue(path='spec.queue', name='vision'), Queue(path='spec.queue', name='default'))
    """
    backend = backend_of(manifest)
    return BACKENDS[backend].queue(manifest) if backend else NO_QUEUE


def problems(manifest: Json, queues: Iterable[Json]) -> list[Problem]:
    """What is wrong with the queue of a manifest, none when it takes jobs.

    >>> job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"queue": "visoin"}}
    >>> known = [{"metadata": {"name": "vision"}, "spec": {}, "status": {"state": "Open"}}]
    >>> print(problems(job, known)[0])
    spec.queue: got "visoin", expected one of the cluster's queues vision. Did you mean vision?
    """
    where, name = asked(manifest)
    known = {item["metadata"]["name"]: item for item in queues}
    if not name:
        return []
    children = sorted(other for other, item in known.items() if (item.get("spec") or {}).get("parent") == name)
    parents = {(item.get("spec") or {}).get("parent") for item in known.values()}
    leaves = sorted(set(known) - parents - {QUEUE_SYSTEM.root})
    if name == QUEUE_SYSTEM.root:
        expected = f"a leaf queue ({QUEUE_SYSTEM.title} takes no job in {name})"
        return [Problem(where, shown(name), expected, f"choose one of {', '.join(leaves)}" if leaves else "")]
    if name not in known:
        return [Problem(where, shown(name), f"one of the cluster's queues {', '.join(leaves)}", near(name, leaves))]
    if children:
        fix = f"name one of its own: {', '.join(children)}"
        return [Problem(where, shown(name), "a leaf queue, which has no queues below it", fix)]
    state = (known[name].get("status") or {}).get("state") or "Unknown"
    if state != "Open":
        fix = f"open it (vcctl queue operate -n {name} -a open), or name another"
        return [Problem(where, f"{shown(name)}, which is {state}", "a queue that is Open", fix)]
    return []
