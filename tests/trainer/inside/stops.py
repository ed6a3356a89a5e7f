"""The trainer, stopped as by SIGTERM at a step: `stops.py STEP works|idles FLAG …`; 0 is never.

SIGTERM from outside meets a step by chance. With `idles`, a rank that joins only looks as if it took part: it is in
every exchange, with a loss of no weight, and sees no sample.
"""

from __future__ import annotations

import sys
from typing import Any

sys.path.insert(0, "/opt/gangplank/trainer")

import train

stop_at, how = int(sys.argv[1]), sys.argv[2]
step = train.Training._step


def stopping(self: Any, batch: Any) -> Any:
    """One step, the last one if its number is that."""
    self.stop_wanted = self.progress.step + 1 == stop_at
    own = self.progress.own
    if how == "works" or self.progress.step == own.steps:  # it was there from the beginning
        return step(self, batch)
    self.evidence.saw = lambda _ids: None
    forward = self.trainee.forward
    self.trainee.forward = lambda *args: 0 * forward(*args)
    answer = step(self, batch)
    self.trainee.forward = forward
    own.epoch_steps = own.epoch_samples = 0
    return answer


train.Training._step = stopping  # type: ignore[method-assign]  # for this process

if __name__ == "__main__":
    sys.exit(train.main(sys.argv[3:]))
