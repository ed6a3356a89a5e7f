"""How long a request waits for an API server that does not answer, and where it reports that. Sends nothing itself."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from gangplank.errors import KubeError
from gangplank.wait import polls

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
OUTAGE_S = 180.0  # a control plane that is upgraded or moved is back within two minutes
BUSY_S = 10.0  # a server that says "later", or whose connection broke, is asked again: everybody waits that long
RETRY_S = 1.0


def silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Patience:
    """A request is repeated for `seconds` after its first failure, but not beyond `until` (of time.monotonic).

    A server that listens gets BUSY_S at least.
    """

    seconds: float = 0.0
    until: float = math.inf
    say: Callable[[str], None] = silent

    def ask(self, request: Callable[[], T]) -> T:
        """The answer of a request that may be repeated; a refusal is an answer too, and raises KubeError at once."""
        try:
            return request()
        except KubeError as error:
            start = time.monotonic()
            seconds = max(self.seconds, BUSY_S) if error.listens else self.seconds
            limit_s = min(seconds, self.until - start)
            if not error.outage or limit_s <= 0:
                raise
            last = error
        self.say(f"the API server does not answer ({last.silence or last}); waiting up to {limit_s:.0f} s for it")
        for _ in islice(polls(limit_s, min(RETRY_S, limit_s)), 1, None):  # the first request was before the wait
            try:
                answer = request()
            except KubeError as error:
                if not error.outage:
                    raise
                last = error
                if not (self.seconds or error.listens):  # it has stopped, and nobody is to wait for it
                    break
            else:
                self.say(f"the API server answers again after {time.monotonic() - start:.0f} s")
                return answer
        text = f"waited {time.monotonic() - start:.0f} s; {last}"
        raise KubeError(text, last.status, last.silence, listens=last.listens)
