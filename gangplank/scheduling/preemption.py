"""Whether a scheduler would end other pods to make room for a job, and which.

Kubernetes' scheduler ends pods of a lower priority, as few as it can on one node for one pod; it may break a
PodDisruptionBudget (pkg/scheduler/framework/plugins/defaultpreemption of 1.35). Volcano does so only if its actions
say so, within one queue (pkg/scheduler/actions/preempt and gangpreempt of 1.15), and its outcome is not computed here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.scheduling import node_causes, pod_rules, volume_rules
from gangplank.scheduling.amounts import plus
from gangplank.scheduling.demand import DEFAULT_SCHEDULER
from gangplank.scheduling.placement import capacity, place
from gangplank.scheduling.snapshot import GROUPS, PODS, PRIORITIES, Pods, Snapshot, host_ports
from gangplank.text import others

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gangplank.scheduling.cause import Cause
    from gangplank.scheduling.demand import Demand, Part
    from gangplank.scheduling.rooms import Bar
    from gangplank.spec import Json

ACTIONS = {"preempt", "gangpreempt"}  # of Volcano's scheduler
TAKEN = {"short", "host-port", "attach-limit", "volume-in-use"}  # causes that end with pods of others
SOME = "pods of a lower priority; fit --exact says which"


@dataclass(frozen=True)
class Displaced:
    """What a scheduler does to make room: nothing, a placement at the cost of some pods, or what nobody can tell."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    ended: tuple[str, ...] = ()  # those of other namespaces as a sum
    unsure: str = ""


def priority(name: str, state: Snapshot) -> int | None:
    """The number of a PriorityClass, or of pods that name none; None if it cannot be known."""
    if PRIORITIES in state.unread:
        return None
    known = {item["metadata"]["name"]: int(item["value"]) for item in state.priorities}
    usual = min((int(item["value"]) for item in state.priorities if item.get("globalDefault")), default=0)
    return known.get(name) if name else usual


def rank(part: Part, state: Snapshot) -> int | None:
    """The priority with which pods of a part displace others."""
    own = part.spec.get("priority")
    return priority(str(part.spec.get("priorityClassName") or ""), state) if own is None else int(own)


def displaces(part: Part) -> bool:
    """Whether pods of a part may end others."""
    return part.spec.get("preemptionPolicy") != "Never"


def displaced(job: Demand, state: Snapshot, causes: Collection[Cause]) -> Displaced:
    """What the job's scheduler would do for it, if these causes are all that keeps it out."""
    early = state.settings is None or "enqueue" in state.settings.actions  # a queue's limit keeps jobs out of line
    if {cause.code for cause in causes} - TAKEN - (set() if early else {"queue-over"}):
        return Displaced()
    if job.scheduler == QUEUE_SYSTEM.scheduler:
        return Displaced(unsure=within_queue(job, state))
    if not any(displaces(part) for part in job.parts):
        return Displaced()
    ranks = [rank(part, state) for part in job.parts]
    known = [one for one in ranks if one is not None]
    if len(known) < len(ranks):
        reason = state.unread.get(PRIORITIES, "the job's is not among them")
        return Displaced(unsure=f"whether its priority ends other pods: {PRIORITIES} ({reason})")
    lower = [pod for pod, _ in state.pods.taken if int(pod["spec"].get("priority") or 0) < max(known)]
    if not lower:
        return Displaced()
    if job.scheduler != DEFAULT_SCHEDULER:
        return Displaced(unsure=f"whether its scheduler {job.scheduler} ends pods of a lower priority")
    return by_priority(job, state, lower)


def by_priority(job: Demand, state: Snapshot, lower: Sequence[Json]) -> Displaced:
    """What Kubernetes' scheduler does with these pods of a lower priority."""
    uids = {pod["metadata"]["uid"] for pod in lower}
    rest = replace(state, pods=Pods(tuple(pod for pod in state.pods.items if pod["metadata"]["uid"] not in uids)))
    barred: Sequence[Sequence[list[Bar]]] = node_causes.barred_from(job, rest)
    most = place(job, rest.rooms, barred)
    if any(volume_rules.volume_causes(job, rest)) or (most.short and most.certain):
        return Displaced()
    alike = len(job.parts) == 1 and displaces(job.parts[0])
    barred = pod_rules.repelled(job, rest, barred)
    if not alike or place(job, rest.rooms, barred).short or any(volume_rules.volume_causes(job, state)):
        return Displaced(unsure="whether its scheduler makes enough room when it ends pods of a lower priority")
    more = rest.pods.repelling or host_ports(job.parts[0].spec) or node_causes.attach_limits(job, state)
    ended = () if more else needed(job.parts[0], state, rest, barred[0])  # whose amounts are not all that counts
    return Displaced(place(job, rest.rooms, barred).nodes, named(ended, job.namespace) if ended else (SOME,))


def needed(part: Part, state: Snapshot, rest: Snapshot, barred: Sequence[list[Bar]]) -> tuple[Json, ...]:
    """The pods that must end so that a part fits into what the `rest` leaves free; none if the scheduler has a choice.

    It has none if each of them is needed, and without these no other one makes more room.
    """
    requests = part.requests
    before = {room.name: room.free for room in state.rooms}
    free = {room.name: room.free for room, bars in zip(rest.rooms, barred, strict=True) if not bars}
    most = {name: capacity(requests, own) for name, own in free.items()}
    spare = sum(most.values()) - part.minimum
    kept = {pod["metadata"]["uid"] for pod in rest.pods.items}
    ended, after = [], {name: before[name] for name in free}
    for pod, amounts_of_pod in state.pods.taken:
        name = pod["spec"]["nodeName"]
        if pod["metadata"]["uid"] in kept or name not in free:
            continue
        if most[name] - capacity(requests, plus(free[name], amounts_of_pod, -1)) > spare:
            ended.append(pod)
            after[name] = plus(after[name], amounts_of_pod)
    sure = all(capacity(requests, own) == most[name] for name, own in after.items())
    return tuple(ended) if sure else ()


def within_queue(job: Demand, state: Snapshot) -> str:
    """What nobody can tell of jobs of the queue that Volcano's scheduler may end for this one; "" if it ends none."""
    if state.settings is None:
        some = PODS in state.unread or bool(state.pods.by_group)
        return "whether its scheduler ends other jobs for it: its configuration cannot be read" if some else ""
    actions = sorted(ACTIONS & set(state.settings.actions))
    if not actions or not any(displaces(part) for part in job.parts):
        return ""
    text = f"whether its queue's jobs of a lower priority make room by {' or '.join(actions)}"
    own = priority(job.priority, state)
    if GROUPS in state.unread or PODS in state.unread or own is None:
        return text
    ranked = state.settings.ranked or actions == ["gangpreempt"]
    for group in state.groups:
        meta, spec = group["metadata"], group.get("spec") or {}
        held = state.pods.by_group.get((meta["namespace"], meta["name"]))
        theirs = priority(str(spec.get("priorityClassName") or ""), state)
        here = held and (spec.get("queue") or QUEUE_SYSTEM.default) == job.queue
        if here and (not ranked or theirs is None or theirs < own):
            return text
    return ""


def named(pods: Sequence[Json], namespace: str) -> tuple[str, ...]:
    """The pods of a namespace by name, and the others as a sum."""
    own = sorted(pod["metadata"]["name"] for pod in pods if pod["metadata"]["namespace"] == namespace)
    return (*(f"{namespace}/{name}" for name in own), *others(len(pods) - len(own), "pod"))
