"""What of a job is still to be placed: its pods with a node stay there, whatever has changed since they started."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gangplank.backends.base import RANDOM
from gangplank.scheduling.namespace_rules import counted, defaulted
from gangplank.scheduling.snapshot import Pods, has_ended

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.why import Situation
    from gangplank.spec import Json


def rest(now: Situation) -> Situation:
    """The same job, asked for its pods without a node alone; the others are back in the state.

    Pods that exist have passed the quotas and limits of their namespace. A queue looks at each pod again: Volcano gives
    none a node while the queue is closed or over its cap, also of a gang that runs. It does not look at who is ahead in
    line (AllocatableFn in pkg/scheduler/plugins/capacity of 1.15).
    """
    if now.demand is None:
        return now
    waiting = [pod for pod in now.pods if not pod["spec"].get("nodeName")]
    settled = [pod for pod in now.pods if pod["spec"].get("nodeName")]
    phase = ((now.group or {}).get("status") or {}).get("phase") or "Pending"
    job = replace(shrunk(now.demand, settled, {rank(pod) for pod in waiting}), in_line=phase != "Pending")
    state = now.state
    if job.placed:
        placed = now.placed or tuple(pod for pod in settled if not has_ended(pod))
        groups = tuple({**one, "status": {}} for one in (*state.groups, *([now.group] if now.group else [])))
        own = frozenset(pod["metadata"]["uid"] for pod in placed)
        state = replace(state, pods=Pods((*state.pods.items, *placed)), groups=groups, own=own)
    if len(waiting) >= job.size:
        job, state = defaulted(job, state), replace(state, quotas=(), limits=())
    held = counted(waiting) if job.placed else now.held
    return replace(now, demand=job, state=state, held=held, standing=standing(job, settled) if job.placed else "")


def rank(pod: Json) -> str:
    """Equal for a pod and for the one that takes its place."""
    meta = pod["metadata"]
    return str(meta.get("generateName") or meta["name"]).rstrip("-")


def foreseen(name: str) -> str:
    """What is known of a pod's name before it exists: its `rank`."""
    return name.removesuffix(RANDOM).rstrip("-")


def present(pods: Sequence[Json], job: Demand | None) -> list[Json]:
    """A job's pods without those that have ended, and that its controller needs no more: others take their turn."""
    if job is None:
        return list(pods)
    ranks = {foreseen(name) for part in job.parts for name in part.pods}
    return [pod for pod in pods if not has_ended(pod) or rank(pod) in ranks]


def shrunk(job: Demand, settled: Sequence[Json], waiting: Collection[str]) -> Demand:
    """A job without its pods that have a node; as it is if all are needed, or if none would be left.

    What keeps a gang of its minimum from growing is asked of all that is left.
    """
    names = {foreseen(name): name for part in job.parts for name in part.pods}
    ranks = [rank(pod) for pod in settled if rank(pod) not in waiting]
    gone = {names[key] for key in ranks if key in names}
    others = [name for key, name in names.items() if name not in gone and key not in waiting]
    gone |= set(others[: sum(key not in names for key in ranks)])  # of names that nobody foresees
    left = [replace(part, pods=tuple(name for name in part.pods if name not in gone)) for part in job.parts]
    size = sum(len(part.pods) for part in left)
    if not gone or not size:
        return job
    needed, parts = max(0, job.minimum - len(gone)) or size, []
    for part in left:
        parts += [replace(part, minimum=min(needed, len(part.pods)))] if part.pods else []
        needed -= min(needed, len(part.pods))
    return replace(job, parts=tuple(parts), least=None, placed=len(gone))


def standing(job: Demand, settled: Sequence[Json]) -> str:
    """How far a job has come, and who waits, as the beginning of "… waits because …"."""
    running = all((pod.get("status") or {}).get("phase") in {"Running", "Succeeded"} for pod in settled)
    names = [foreseen(name) for part in job.parts for name in part.pods]
    who = names[0] if len(names) == 1 else "the rest"
    return f"{'runs with' if running else 'has nodes for'} {job.placed} of {job.placed + job.size} pods; {who}"
