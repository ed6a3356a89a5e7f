"""How long a build will take: the cost of each step on two cores, and the pace of this machine so far."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SETTLING_S = 60.0  # how much of the reference's time must pass until this machine's own pace counts for half


class Progress:
    """The remaining steps of one build, `costs` in seconds on two cores."""

    def __init__(self, costs: dict[str, float], clock: Callable[[], float] = time.monotonic, cores: int = 0) -> None:
        """Start the clock."""
        self.costs, self.clock = dict(costs), clock
        self.total_s = sum(costs.values())
        self.guess = 2 / min(cores or len(os.sched_getaffinity(0)), 8)
        self.done_s, self.began, self.step, self.step_began = 0.0, clock(), "", clock()

    def begin(self, step: str) -> None:
        """End the current step, and begin this one."""
        self.done_s += self.costs.pop(self.step, 0)
        self.step, self.step_began = step, self.clock()

    def left_s(self) -> float:
        """The estimated rest, in seconds."""
        pace = (self.step_began - self.began + self.guess * SETTLING_S) / (self.done_s + SETTLING_S)
        step_s = self.costs.get(self.step, 0)
        spent_s = min((self.clock() - self.step_began) / pace, step_s * 0.95)
        return (sum(self.costs.values()) - spent_s) * pace

    def estimate(self) -> str:
        """The estimate at the end of a line of progress; empty for a build of less than a minute.

        >>> Progress({"kubernetes": 280, "etcd": 20}, cores=2).estimate()
        '; about 5 min left'
        >>> Progress({"etcd": 20}, cores=2).estimate()
        ''
        """
        if self.total_s * self.guess < 60:
            return ""
        return f"; about {math.ceil(self.left_s() / 60)} min left"
