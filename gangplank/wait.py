"""The ways to wait: ask, pause, ask again, until a time limit or without one; and the message when it has passed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gangplank.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator


def polls(limit_s: float, poll_s: float) -> Iterator[float]:
    """Yield the seconds that have passed, at once and after each pause, for the last time after `limit_s`.

    The loop body returns the result; the code after the loop reports what was not reached in time.

    >>> [round(waited_s) for waited_s in polls(0, 0)][0]
    0
    """
    start = time.monotonic()
    while True:
        yield time.monotonic() - start
        if time.monotonic() - start > limit_s:
            return
        time.sleep(poll_s)


class Pause:
    """A pause between attempts that have no time limit: twice as long each time, up to the longest."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self.first_s = self.next_s = first_s
        self.longest_s = longest_s

    def take(self) -> None:
        """Wait; the next pause is longer."""
        time.sleep(self.next_s)
        self.next_s = min(2 * self.next_s, self.longest_s)

    def reset(self) -> None:
        """Begin with the first pause again, since an attempt succeeded."""
        self.next_s = self.first_s


def late(path: str, got: str, expected: str, limit_s: float, fix: str = "") -> str:
    """The message about something that did not happen in time.

    >>> late("pod default/a", "Pending", "its end", 120, "free a place on its node")
    'pod default/a: got Pending, expected its end within 120 s. Fix: free a place on its node'
    """
    return str(Problem(path, got, f"{expected} within {limit_s:.0f} s", fix))
