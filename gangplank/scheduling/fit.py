"""Whether a job would start now: yes with a placement, no with its causes, cannot tell with what is missing.

A cause comes with its removal: the change to a copy of the state that takes it away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from gangplank.scheduling import drivers, namespace_rules, node_causes, pod_rules, queue_rules, volume_rules
from gangplank.scheduling.amounts import listed
from gangplank.scheduling.placement import place
from gangplank.scheduling.preemption import Displaced, displaced
from gangplank.scheduling.snapshot import GROUPS, NODES, PODS, QUEUES, RUNTIMES
from gangplank.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gangplank.scheduling.amounts import Amounts
    from gangplank.scheduling.cause import Cause
    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.rooms import Bar
    from gangplank.scheduling.snapshot import Snapshot

NAMESPACED = ("resourcequotas", "limitranges", "persistentvolumeclaims")
CLUSTER = (NODES, PODS)


class Verdict(Enum):
    """The three answers."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Answer:
    """The verdict: a placement with a yes, causes with a no, what is missing without either."""

    verdict: Verdict
    nodes: Mapping[str, str] = field(default_factory=dict)  # of each pod
    causes: tuple[Cause, ...] = ()
    missing: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()  # what the scheduler would end for it


def fit(
    job: Demand, state: Snapshot, held: Amounts | None = None, *, explain: bool = True, displacing: bool = True
) -> Answer:
    """Whether a job would start now; `held` is what its own pods already count as in quotas.

    Without `explain`, a "no" has only the causes that need no search; without `displacing`, it ends no other pods.
    """
    job = namespace_rules.defaulted(job, state)
    causes = [
        *namespace_rules.class_causes(job, state),
        *namespace_rules.limit_causes(job, state),
        *namespace_rules.quota_causes(job, state, held),
        *queue_rules.queue_causes(job, state),
    ]
    shortage: list[Cause] = []
    missing = unread(job, state)
    if unasked := _unasked(job):
        return Answer(Verdict.CANNOT_TELL, missing=unasked)
    job, state = drivers.counted(job, state)
    nodes: Mapping[str, str] = {}
    if NODES not in state.unread:
        barred = node_causes.barred_from(job, state)
        placement = place(job, state.rooms, barred)
        nodes = placement.nodes
        missing = (*missing, *(() if placement.short else _undecided(job, state, barred)))
        if placement.short and (placement.certain or _never_fits(job, state)):
            question = node_causes.Question(job, state.rooms, barred, placement)
            shortage = node_causes.node_causes(state, question, explain=explain)
        elif placement.short:
            missing = (*missing, f"whether another order of placing finds room for {placement.short} more pods")
        elif state.pods.repelling:
            apart = place(job, state.rooms, pod_rules.repelled(job, state, barred))
            nodes = apart.nodes
            if apart.short:
                missing = (*missing, pod_rules.OTHERS)
    # from the outside in, but what keeps the job out for good comes before what it only waits for
    waits = any(cause.passing for cause in shortage)
    volumes = [*volume_rules.volume_causes(job, state)]
    causes += [*volumes, *shortage] if waits else [*shortage, *volumes]
    if causes:
        room = displaced(job, state, causes) if displacing else Displaced()
        surplus = queue_rules.reclaimable(job, state)
        if surplus and all(cause.code == "short" for cause in causes):
            text = f"whether its queue reclaims {listed(surplus)}, which others hold beyond what they deserve"
            missing = (*missing, text)
            return Answer(Verdict.CANNOT_TELL, causes=tuple(causes), missing=missing)
        if room.unsure or (room.ended and missing):
            missing = (*missing, *([room.unsure] if room.unsure else []))
            return Answer(Verdict.CANNOT_TELL, causes=tuple(causes), missing=missing)
        if not room.ended:
            return Answer(Verdict.NO, causes=tuple(causes), missing=missing)
        return Answer(Verdict.YES, nodes=room.nodes, ended=room.ended)
    if missing:
        return Answer(Verdict.CANNOT_TELL, missing=missing)
    return Answer(Verdict.YES, nodes=nodes)


def _unasked(job: Demand) -> tuple[str, ...]:
    """Why no scheduler is asked about a job."""
    if not job.parts:
        return ("the job has no pods, as far as its manifest says",)
    named = ", ".join(sorted({str(part.spec["nodeName"]) for part in job.parts if part.spec.get("nodeName")}))
    return (f"whether {named} takes its pods, which name it (nodeName): no scheduler looks at them",) if named else ()


def _undecided(job: Demand, state: Snapshot, barred: Sequence[Sequence[list[Bar]]]) -> Iterator[str]:
    """What may keep a job out that has a place, and is not computed here."""
    yield from drivers.choices(job, state, barred)
    yield from queue_rules.weighed(job, state)


def _never_fits(job: Demand, state: Snapshot) -> bool:
    """Whether the job would not fit if nothing else ran, in whatever order it is placed."""
    empty = node_causes.idle(state)
    placement = place(job, empty.rooms, node_causes.barred_from(job, empty))
    return placement.short > 0 and placement.certain


def unread(job: Demand, state: Snapshot) -> tuple[str, ...]:
    """What would have to be known, one line each."""
    needed = [*NAMESPACED, *CLUSTER]
    if job.queue:
        needed += [QUEUES]
    if any(part.spec.get("runtimeClassName") for part in job.parts):
        needed += [RUNTIMES]
    lines = [f"{name} ({state.unread[name]})" for name in needed if name in state.unread]
    if job.queue and GROUPS in state.unread and PODS not in state.unread:
        lines.append(f"{GROUPS} ({state.unread[GROUPS]})")
    lines += [f"{name} ({state.unread[name]})" for name in volume_rules.unread(job, state)]
    lines += [f"{name} ({state.unread[name]})" for name in drivers.unread(job, state)]
    lines += volume_rules.unplaced(job, state)
    for name in pod_rules.strangers(job, state):
        lines.append(f"whether a scheduler named {name} runs, and what it does: it has looked at no pod")
    if number := state.pods.promised:
        lines.append(f"what {counted(number, 'pod')} will leave for which a scheduler makes room now")
    if job.near:
        lines.append("what its network topology of mode hard leaves (not computed here)")
    for part in job.parts:
        if part.spec.get("schedulingGates"):
            names = ", ".join(sorted(str(gate["name"]) for gate in part.spec["schedulingGates"]))
            lines.append(f"when its scheduling gates are removed: {names}")
        affinity = part.spec.get("affinity") or {}
        hard = "requiredDuringSchedulingIgnoredDuringExecution"
        if any((affinity.get(kind) or {}).get(hard) for kind in ("podAffinity", "podAntiAffinity")):
            lines.append(pod_rules.NEAR)
        if any(
            one.get("whenUnsatisfiable") == "DoNotSchedule" for one in part.spec.get("topologySpreadConstraints") or ()
        ):
            lines.append(pod_rules.SPREAD)
        if part.spec.get("resourceClaims"):
            lines.append("devices behind resource claims (not computed here)")
    return tuple(dict.fromkeys(lines))
