"""The trainer with its evidence, or without: `evidence_cpu.py with|without FLAGS…`; prints the CPU seconds of the run.

User and system, of this process and all its threads: `run` from after the imports to the end, `process` from the
process's own begin. Without: no gradient is looked at, nothing is hashed, recorded, printed, exchanged or brought to
rank 0. The training itself is the same.
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


def nothing(*_: Any, **__: Any) -> Any:
    """In place of work."""


def spent() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """A whole training."""
    if core := os.environ.get("BENCH_CORE"):
        os.sched_setaffinity(0, {int(core)})
    if sys.argv[1] == "without":
        train.GradientWatch = NoWatch  # type: ignore[misc,assignment]  # what it needs of one
        train.parameter_hash = run.parameter_sample = lambda _: ""  # type: ignore[assignment]  # no hash
        train.ParameterSample = lambda _: lambda: ""  # type: ignore[assignment,misc]  # as above
        for name in ("add", "saw", "samples", "exchange_heads"):
            setattr(evidence.Evidence, name, nothing)
    began = spent()
    code = train.main(sys.argv[2:])
    whole = spent()
    row = {"event": "cpu", "run": whole - began, "process": whole, "counted": evidence.CPU_SECONDS[0]}
    print(json.dumps(row), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
