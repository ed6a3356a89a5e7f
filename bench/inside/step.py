"""The trainer with each step timed from outside: `step.py FLAGS…`; prints the milliseconds of one.

A step has all that the trainer does for it, its own count of seconds only the work that this names. As in bound.py, the
first epoch does not count.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

sys.path.insert(0, "/opt/gangplank/trainer")

import train


def main() -> int:
    """A whole training."""
    seconds: list[float] = []
    step = train.Training._step

    def timed(self: Any, *batch: Any) -> Any:
        began = time.perf_counter()
        outcome = step(self, *batch)
        if self.progress.epoch:
            seconds.append(time.perf_counter() - began)
        return outcome

    train.Training._step = timed  # type: ignore[method-assign]  # the same, and its time
    code = train.main(sys.argv[1:])
    print(json.dumps({"event": "steps", "step": 1000 * sum(seconds) / len(seconds)}), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
