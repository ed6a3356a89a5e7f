"""What would do so that a job starts: causes whose removal `fit` has shown to be enough; how much of it fits now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gangplank.scheduling.fit import Verdict, fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.scheduling.amounts import Amounts
    from gangplank.scheduling.cause import Cause
    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.snapshot import Snapshot


@dataclass(frozen=True)
class Remedy:
    """The causes that have to go together, whether that is known to be enough, and the most pods that fit as it is."""

    causes: tuple[Cause, ...] = ()
    enough: bool = True
    pods: int = 0


def steps(title: str, causes: Sequence[Cause], more: str = ", together") -> list[str]:
    """The lines about what helps against some causes; `more` follows the title of several."""
    fixes = [cause.fix for cause in causes if cause.fix]
    if len(fixes) < 2:
        return [f"{title}: {fix}" for fix in fixes]
    return [f"{title}{more}:", *(f"  {fix}" for fix in fixes)]


def remedy(job: Demand, state: Snapshot, causes: Sequence[Cause], held: Amounts | None = None) -> Remedy:
    """What would do, and how much of the job fits as it is."""
    return replace(needed(job, state, causes, held), pods=largest(job, state, held))


def needed(job: Demand, state: Snapshot, causes: Sequence[Cause], held: Amounts | None = None) -> Remedy:
    """The first cause that alone keeps the job out; else as few as do it together; else all, with `enough` false."""
    for cause in causes:
        if starts(job, state, [cause], held):
            return Remedy((cause,))
    if not starts(job, state, causes, held):
        return Remedy(tuple(causes), enough=False)
    together = list(causes)
    for cause in causes:
        rest = [one for one in together if one is not cause]
        if starts(job, state, rest, held):
            together = rest
    return Remedy(tuple(together))


def starts(job: Demand, state: Snapshot, causes: Sequence[Cause], held: Amounts | None = None) -> bool:
    """Whether the job would start in a copy of the state without these causes; one that nothing removes stays."""
    for cause in causes:
        if cause.removal is None:
            return False
        job, state = cause.removal(job, state)
    return fit(job, state, held, explain=False).verdict is Verdict.YES


def smaller(job: Demand, pods: int) -> Demand:
    """The job with only so many pods in its largest part."""
    most = max(job.parts, key=lambda part: part.minimum)
    parts = [replace(part, pods=part.pods[:pods], minimum=pods) if part is most else part for part in job.parts]
    return replace(job, parts=tuple(part for part in parts if part.pods), least=None)


def largest(job: Demand, state: Snapshot, held: Amounts | None = None) -> int:
    """The most pods of the job that would start now, beside those that run: its largest part shrinks. 0: none."""
    low, high = 0, max((part.minimum for part in job.parts), default=0)
    fits = 0
    while low < high:  # low - 1 is known to fit, and high is known not to
        middle = (low + high) // 2
        less = smaller(job, middle)
        if not less.parts or fit(less, state, held, explain=False).verdict is Verdict.YES:
            low, fits = middle + 1, less.size
        else:
            high = middle
    return fits
