"""Why a job does not run: one cause, from the outside in, with its evidence and the next step.

A cause is looked for in the present state, never in the newest warning. One that keeps a job from starting is proven
by its removal: in a copy of the state without it, the job would start. A refusal of the API server is its own proof.
What kubelets, logs and exit codes say of a job is observed: it is not taken away to see whether the job would run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from gangplank.k8s.conditions import failed_init
from gangplank.scheduling import pod_causes, pod_rules
from gangplank.scheduling.cause import Cause
from gangplank.scheduling.demand import UNFORESEEN
from gangplank.scheduling.fit import Answer, Verdict, fit
from gangplank.scheduling.remedy import needed, steps
from gangplank.scheduling.rest import rest
from gangplank.scheduling.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangplank.scheduling.demand import Demand
    from gangplank.spec import Json

ADMISSION = {"limit-range", "quota", "queue-missing", "queue-closed", "queue-inner"}  # what a refusal is about, too
RUNNING = {"stuck": "stands still", "slow": "is slow"}  # what a job does whose ranks say so
HELD = "Kueue suspends it until its queue"  # begins why a job is suspended
PATIENCE_S = 10.0  # before a controller or scheduler that has no ready pod, and has not answered, is a cause
BUSY_S = 60.0  # before one is that has a ready pod, or whose pods may not be read


@dataclass(frozen=True)
class Failure:
    """Who failed first, how, its last lines, and the exit status of a command that ends as it did."""

    who: str
    how: str
    lines: tuple[str, ...] = ()
    status: int = 0


@dataclass(frozen=True)
class Situation:
    """One job and all that is known about it."""

    name: str
    demand: Demand | None = None  # None if the library cannot foresee the job's pods
    state: Snapshot = field(default_factory=Snapshot)  # without the job's own pods and gang
    live: bool = True  # whether it has been submitted
    phase: str = "Pending"
    reason: str = ""
    ended: str = ""  # "succeeded", "failed", or ""
    suspended: str = ""  # how, if it is
    answered: bool = True  # whether its controller has written a status
    age_s: float = 0.0
    pods: tuple[Json, ...] = ()
    placed: tuple[Json, ...] = ()  # those with a node, with the devices that they hold; if none, as in `pods`
    standing: str = ""  # how far it has come, if only the rest of its pods is asked about
    group: Json | None = None  # its gang, as the scheduler has it
    lost_group: str = ""  # the gang that its pods wait with, if it does not exist
    held: Mapping[str, int] = field(default_factory=dict)  # what its own pods count as in quotas
    refusals: tuple[Cause, ...] = ()  # of the API server, which still holds
    absent: Mapping[tuple[str, str], bool | None] = field(default_factory=dict)  # Secrets, ConfigMaps; None: unread
    events: tuple[Json, ...] = ()  # about its own objects
    failure: Failure | None = None
    retries: str = ""  # that they are used up, and how often it failed
    ranks: Cause | None = None  # what the logs of its ranks say of one another
    unread: tuple[str, ...] = ()  # what may not be read of its pods
    unavailable: tuple[str, ...] = ()  # components without a ready pod
    controller: str = "its controller"

    def waits(self, otherwise: str) -> str:
        """That the rest of its pods waits; `otherwise` if none of them has a node."""
        return f"{self.standing} waits" if self.standing else otherwise

    @property
    def would(self) -> str:
        """That it would start, or the rest of its pods."""
        return f"it {self.standing} would start now" if self.standing else "it would start now"


class Proof(StrEnum):
    """How far a cause is known to be one."""

    REMOVAL = "removal"  # without it, the job would start
    REFUSAL = "refusal"  # the API server says so itself, now
    OBSERVED = "observation"  # a kubelet, a log or an exit code says so
    NONE = ""


BECAUSE = {Proof.REMOVAL, Proof.REFUSAL}


@dataclass(frozen=True)
class Diagnosis:
    """One cause, or none; how it is proven; what else is wrong, and what could not be found out."""

    job: str
    summary: str  # what the first line says of a job without a cause
    cause: Cause | None = None
    proof: Proof = Proof.NONE
    also: tuple[Cause, ...] = ()
    missing: tuple[str, ...] = ()
    together: tuple[Cause, ...] = ()  # those of `also` that have to go with the cause before the job starts

    @property
    def proven(self) -> bool:
        """Whether the cause is more than an observation."""
        return self.proof in BECAUSE

    @property
    def first_line(self) -> str:
        """One sentence, with "because" only before what is proven."""
        if self.cause is None:
            return f"{self.job}: {self.summary}"
        if not self.proof:
            return f"{self.job}: cannot tell for certain; probably because {self.cause.text}"
        link = " because" if self.proven else ":"
        return f"{self.job} {self.summary}{link} {self.cause.text}"

    @property
    def needed(self) -> tuple[Cause, ...]:
        """What has to go before the job starts, as far as that is known."""
        return (self.cause, *self.together) if self.cause else ()

    def text(self) -> str:
        """The whole answer."""
        lines = [self.first_line]
        if self.cause:
            lines += [f"  {line}" for line in self.cause.evidence]
        lines += [f"also: {cause.text}" for cause in self.also]
        lines += [f"cannot tell: {line}" for line in self.missing]
        return "\n".join([*lines, *steps("next", self.needed)])

    def fields(self) -> Json:
        """The answer as JSON."""
        cause = self.cause
        return {
            "job": self.job,
            "summary": self.first_line,
            "cause": cause.code if cause else None,
            "text": cause.text if cause else None,
            "because": cause.text if cause and self.proven else None,
            "proven": self.proven,
            "proof": self.proof.value or None,
            "waits_for_others": bool(cause and cause.passing),
            "evidence": list(cause.evidence) if cause else [],
            "next": "; ".join(one.fix for one in self.needed if one.fix),
            "needed": [one.code for one in self.needed],
            "also": [{"cause": one.code, "text": one.text} for one in self.also],
            "cannot_tell": list(self.missing),
        }


def diagnose(now: Situation) -> Diagnosis:
    """The first cause that holds, in one order: controllers, admission, queue, nodes, volumes, pods, the training."""
    if now.ended == "succeeded":
        return Diagnosis(now.name, f"nothing is wrong: it is {now.phase}")
    if now.ended:
        if not (now.pods or now.failure or now.unread):  # it may have failed for want of pods
            causes = _not_started(now)
            if causes.cause and causes.cause.code in ADMISSION:
                return causes
        newest = pod_causes.newest(now.pods)
        return _seen(now, "failed", _ends(now, newest, [*_meeting(now), _failed(now)], now.reason))
    if now.suspended:
        held = "kubectl describe workloads.kueue.x-k8s.io says why; if others resume the job, Kueue suspends it again"
        fix = held if now.suspended.startswith(HELD) else "resume it, or delete it and submit it again"
        cause = Cause("suspended", now.suspended, fix=fix)
        return _seen(now, "does not run", [cause])
    if not now.answered and now.age_s > _patience_s(now):
        return _seen(now, "does not start", [_silent(now, "controller", f"{now.controller} does not answer")])
    if now.unread and not now.pods:
        return Diagnosis(now.name, f"cannot tell: it is {now.phase}", missing=now.unread)
    inside = _inside(now)
    if unplaced(now) or not now.live:
        outside = _not_started(now)
        if outside.cause or not inside:
            return outside
    if inside:
        return _seen(now, "does not run", inside)
    if now.ranks:
        return _seen(now, RUNNING.get(now.ranks.code, "does not run"), [now.ranks])
    return _well(now)


def _inside(now: Situation) -> list[Cause]:
    """What is wrong with pods that have a node."""
    causes = [*pod_causes.lost(now.pods, now.state.away), *pod_causes.waiting(now.pods, now.events, now.absent)]
    crashed = [*pod_causes.crashed(now.pods, now.failure)]
    pods = now.pods if crashed else pod_causes.unreplaced(now.pods)
    return [*causes, *_ends(now, pods, [*(_meeting(now) if crashed else []), *crashed])]


def _ends(now: Situation, pods: Sequence[Json], own: Sequence[Cause], reason: str = "") -> list[Cause]:
    """What ended pods from outside, then what their ranks did; memory last if a rank ended with a code of its own."""
    outside = pod_causes.ended(pods, reason)
    cause, killed = next(pod_causes.memory(pods), (None, False))
    memory = [cause] if cause else []
    if killed or (now.failure and now.failure.status == pod_causes.KILLED):
        return [*outside, *memory, *own]
    return [*outside, *own, *memory]


def _meeting(now: Situation) -> list[Cause]:
    """What ranks say of one another; a rank that did not join since its init container failed is not what was first."""
    return [now.ranks] if now.ranks and not any(map(failed_init, now.pods)) else []


def _well(now: Situation) -> Diagnosis:
    """Nothing is wrong, unless only events that may not be read would say why pods with a node have no container."""
    late = [pod["metadata"]["name"] for pod in now.pods if (pod.get("status") or {}).get("phase") == "Pending"]
    if late and (reason := now.state.unread.get("events")):
        missing = (*now.unread, f"what keeps {late[0]} from running: events ({reason})")
        return Diagnosis(now.name, f"cannot tell: {_progress(now)}", missing=missing)
    return Diagnosis(now.name, f"nothing is wrong: {_progress(now)}", missing=now.unread)


def unplaced(now: Situation) -> bool:
    """Whether some of its pods do not exist, or have no node."""
    size = now.demand.size if now.demand else max(1, len(now.pods))
    return len(now.pods) < size or any(not pod["spec"].get("nodeName") for pod in now.pods)


def _seen(now: Situation, summary: str, causes: Sequence[Cause]) -> Diagnosis:
    first, *others = causes
    also = tuple(cause for cause in others[:1] if cause.code not in {"failed", "crash"})  # those say the same again
    return Diagnosis(now.name, "waits" if first.passing else summary, first, Proof.OBSERVED, also)


def _patience_s(now: Situation) -> float:
    """How long nobody is blamed for not having looked at the job yet: on a busy machine that takes long."""
    return PATIENCE_S if now.unavailable else BUSY_S


def _silent(now: Situation, code: str, text: str) -> Cause:
    evidence = [f"{now.age_s:.0f} s have passed since it was submitted", *now.unavailable]
    return Cause(code, text, tuple(evidence), "check that its pods run, and read their logs")


def _failed(now: Situation) -> Cause:
    what = f"{now.failure.who} failed first: {now.failure.how}" if now.failure else now.reason or f"it is {now.phase}"
    what += f"; {now.retries}" if now.retries else ""
    lines = tuple(now.failure.lines) if now.failure else ()
    reason = (f"the job says: {now.reason}",) if now.reason else ()
    if not (now.pods or now.failure or now.unread):
        gone = ("its pods are gone, and their logs with them",)
        fix = f"submit it again, and follow it: gangplank submit FILE --wait, or gangplank logs {now.name} -f"
        return Cause("failed", what, (*reason, *gone), fix)
    fix = f"gangplank logs {now.name} --previous shows all lines of all ranks"
    return Cause("failed", what, (*reason, *lines), fix)


def _progress(now: Situation) -> str:
    running = sum((pod.get("status") or {}).get("phase") == "Running" for pod in now.pods)
    return f"it is {now.phase}, {running} of {len(now.pods)} pods run"


def _not_started(now: Situation) -> Diagnosis:
    """Pods do not exist or have no node: refused, or by arithmetic what keeps them out."""
    if now.lost_group:
        return _seen(now, "does not start", [_without_gang(now)])
    if now.demand is None:
        if now.refusals:
            return _refused(now, now.refusals, (UNFORESEEN,))
        return Diagnosis(now.name, "cannot tell", missing=(UNFORESEEN,))
    if (name := _stranger(now)) and now.pods and now.age_s > BUSY_S and _overlooked(now):
        return _seen(now, "does not start", [_without_scheduler(now, name)])
    left = rest(now)
    answer = fit(left.demand or now.demand, left.state, dict(left.held))
    refusals = list(now.refusals)
    if any(cause.code in ADMISSION for cause in answer.causes):  # it has the same, with amounts and a removal
        refusals = [one for one in refusals if one.code == "webhook"]
    if refusals:
        return _refused(left, [*refusals, *answer.causes], answer.missing)
    if answer.causes:
        return judged(left, left.demand or now.demand, answer)
    return _without_cause(left, now.demand, answer)


def _without_cause(now: Situation, job: Demand, answer: Answer) -> Diagnosis:
    """What is said of a job whose rest would start, as far as is computed here; `job` is all of it."""
    if cause := pod_causes.between_pods(job, _scheduler_says(now)):
        missing = tuple(line for line in answer.missing if line not in pod_causes.ANSWERS[cause.code])
        return Diagnosis(now.name, now.waits("does not start"), cause, Proof.OBSERVED, missing=missing)
    if answer.verdict is Verdict.CANNOT_TELL:
        said = _scheduler_says(now)
        summary = f"cannot tell; its scheduler says: {said[0]}" if said else "cannot tell"
        return Diagnosis(now.name, summary, missing=answer.missing)
    if not now.live:
        return Diagnosis(now.name, "nothing is wrong: it is not submitted, and would start now")
    waited = f"after {now.age_s:.0f} s of waiting"
    if now.age_s > _patience_s(now):
        if _overlooked(now):
            return _seen(now, "does not start", [_silent(now, "scheduler", "its scheduler does not answer")])
        if said := _scheduler_says(now):  # of a moment ago, or for a reason that is not computed here
            says = f"{now.would}, as far as is computed here, {waited}; its scheduler says: {said[0]}"
            return Diagnosis(now.name, says, missing=("whether that still holds: ask again, or gangplank fit --exact",))
    return Diagnosis(now.name, f"nothing is wrong: {now.would}, {waited}")


def _without_gang(now: Situation) -> Cause:
    text = f"PodGroup {now.lost_group} does not exist, and its scheduler places no pod without it"
    names = ", ".join(pod["metadata"]["name"] for pod in now.pods)
    fix = "follow it: playbooks/train.yml with its job file has its controller make the PodGroup again"
    return Cause("gang-lost", text, (f"pods: {names}",), fix)


def _stranger(now: Situation) -> str:
    """The schedulerName of its pods, if no condition and no event says that a scheduler serves that name."""
    sources = [(one.get("source") or {}).get("component") or one.get("reportingComponent") for one in now.events]
    names = pod_rules.strangers(now.demand, now.state) if now.demand else []
    return next((name for name in names if name not in sources), "")


def _without_scheduler(now: Situation, name: str) -> Cause:
    usual = " and ".join(pod_rules.USUAL)
    evidence = (
        f"{now.age_s:.0f} s have passed since it was submitted, and no condition or event of its pods is a scheduler's",
        f"no pod that this account may read has one by {name}; the usual schedulers are {usual}",
    )
    fix = "correct schedulerName in the job, or check that this scheduler runs"
    return Cause("scheduler-name", f"no scheduler named {name} has looked at its pods", evidence, fix)


def _overlooked(now: Situation) -> bool:
    """Whether no scheduler has looked at it."""
    if now.group is not None:
        status = now.group.get("status") or {}
        if not status.get("phase") or (status["phase"] == "Pending" and not status.get("conditions")):
            return True
    conditions = [one for pod in now.pods for one in (pod.get("status") or {}).get("conditions") or ()]
    return bool(now.pods) and not any(one.get("type") == "PodScheduled" for one in conditions)


def _scheduler_says(now: Situation) -> list[str]:
    """Why its scheduler has not placed its gang, or pods of it."""
    conditions = [*(((now.group or {}).get("status") or {}).get("conditions") or ())]
    waiting = [pod for pod in now.pods if not pod["spec"].get("nodeName")]
    conditions += [one for pod in waiting for one in (pod.get("status") or {}).get("conditions") or ()]
    refusing = [one for one in conditions if one.get("status") != "True" or one.get("type") == "Unschedulable"]
    said = [str(one.get("message") or "") for one in refusing]
    return [pod_causes.cut(text) for text in said if text]


def _refused(now: Situation, causes: Sequence[Cause], missing: tuple[str, ...]) -> Diagnosis:
    """What the API server refuses, which no change of the state takes away; the other causes are beside it."""
    return Diagnosis(now.name, now.waits(_verb(now)), causes[0], Proof.REFUSAL, tuple(causes[1:]), missing)


def judged(now: Situation, job: Demand, answer: Answer) -> Diagnosis:
    """The first cause without which the job would start; else the first of those that keep it out together."""
    way = needed(job, now.state, answer.causes, dict(now.held))
    first = way.causes[0]
    proof, together = (Proof.REMOVAL, way.causes[1:]) if way.enough else (Proof.NONE, ())
    others = tuple(one for one in answer.causes if one is not first)
    summary = now.waits("waits" if first.passing else _verb(now))
    return Diagnosis(now.name, summary, first, proof, others, answer.missing, together)


def _verb(now: Situation) -> str:
    return "does not start" if now.live else "would not start"
