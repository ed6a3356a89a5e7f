"""The trainer with or without its evidence and observation: `evidence_cpu.py KIND FLAGS…`; prints its CPU seconds.

User and system, of this process and all its threads: `run` from after the imports to the end, `process` from the
process's own begin. The training is the same in each KIND:

- with: as it is.
- evidence: without observation. No kind of work is timed, and nobody watches for a rank that stands still.
- without: also no gradient is looked at, nothing is hashed, recorded, printed, exchanged or brought to rank 0.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

sys.path.insert(0, "/opt/gangplank/trainer")

import evidence
import run
import train


class NoWatch:
    """Sees nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.exchanges = 0

    def stepped(self, _: int) -> None:
        """A step."""

    def take_exchanges(self) -> int:
        """None were counted."""
        return 0


class NoClock:
    """Measures nothing."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, _kind: str, began: float) -> float:
        """Some work."""
        return began

    def take(self) -> dict[str, float]:
        """Nothing was measured."""
        return {}


def nothing(*_: Any, **__: Any) -> Any:
    """In place of work."""


def without_evidence() -> None:
    """Take the evidence away."""
    train.GradientWatch = NoWatch  # type: ignore[misc,assignment]  # what it needs of one
    train.parameter_hash = run.parameter_sample = lambda _: ""  # type: ignore[assignment]  # no hash
    train.ParameterSample = lambda _: lambda: ""  # type: ignore[assignment,misc]  # as above
    for name in ("add", "saw", "samples", "exchange_heads"):
        setattr(evidence.Evidence, name, nothing)


def without_observation() -> None:
    """Take the observation away."""
    os.environ["GANGPLANK_STUCK_S"] = "0"
    train.Clock = NoClock  # type: ignore[misc,assignment]  # what it needs of one
    rehearse = train.Training._rehearse

    def rehearse_without_hook(self: train.Training) -> None:
        next(self.net.parameters())._backward_hooks = None  # that of Training._gradients_ready, the only one so far
        rehearse(self)

    train.Training._rehearse = rehearse_without_hook  # type: ignore[method-assign]  # the next line of its __init__


def spent() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """A whole training."""
    if core := os.environ.get("BENCH_CORE"):
        os.sched_setaffinity(0, {int(core)})
    kind = sys.argv[1]
    if kind != "with":
        without_observation()
    if kind == "without":
        without_evidence()
    began = spent()
    code = train.main(sys.argv[2:])
    whole = spent()
    row = {"event": "cpu", "run": whole - began, "process": whole, "counted": evidence.CPU_SECONDS[0]}
    print(json.dumps(row), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
