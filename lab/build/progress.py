"""How long a build will still take: what each step costs on two cores, and how fast this machine has been so far."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SETTLING_S = 60.0  # how much of the reference's time must pass until this machine's own pace counts for half


class Progress:
    """The steps of one build that have still to be done, `costs` in seconds on two cores."""

    def __init__(self, costs: dict[str, float], clock: Callable[[], float] = time.monotonic, cores: int = 0) -> None:
        """Start the clock."""
        self.costs, self.clock = dict(costs), clock
        self.total_s = sum(costs.values())
        self.guess = 2 / min(cores or len(os.sched_getaffinity(0)), 8)
        self.done_s, self.began, self.step, self.step_began = 0.0, clock(), "", clock()

    def begin(self, step: str) -> None:
        """End the step before, and begin this one."""
        self.done_s += self.costs.pop(self.step, 0)
        self.step, self.step_began = step, self.clock()

    def left_s(self) -> float:
        """The estimate of what is left, in seconds."""
        pace = (self.step_began - self.began + self.guess * SETTLING_S) / (self.done_s + SETTLING_S)
        step_s = self.costs.get(self.step, 0)
        gone_s = min((self.clock() - self.step_began) / pace, step_s * 0.95)
        return (sum(self.costs.values()) - gone_s) * pace

    def shown(self) -> str:
        """The estimate behind a line of progress; nothing for a build of less than a minute.

        >>> Progress({"kubernetes": 280, "etcd": 20}, cores=2).shown()
        '; about 5 min left'
        >>> Progress({"etcd": 20}, cores=2).shown()
        ''
        """
        if self.total_s * self.guess < 60:
            return ""
        return f"; about {math.ceil(self.left_s() / 60)} min left"
