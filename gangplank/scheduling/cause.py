"""One reason why a job does not start, with the change to a copy of the state that takes it away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gangplank.scheduling.demand import Demand
from gangplank.scheduling.snapshot import Snapshot

Removal = Callable[[Demand, Snapshot], tuple[Demand, Snapshot]]


@dataclass(frozen=True)
class Cause:
    """`text` completes "JOB does not start because …" or "JOB does not run: …".

    A cause that is `passing` goes away when other jobs end.
    """

    code: str
    text: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    removal: Removal | None = None
    passing: bool = False
