"""How long a request waits for an API server that does not answer, and who hears of it. Sends nothing itself."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from gangplank.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
OUTAGE_S = 180.0  # a control plane that is upgraded or moved is back within two minutes
RETRY_S = 1.0


def silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Patience:
    """What is asked for `seconds` after its first failure, or to `until` (of time.monotonic) if that is sooner."""

    seconds: float = 0.0
    until: float = math.inf
    say: Callable[[str], None] = silent

    def ask(self, request: Callable[[], T]) -> T:
        """The answer of a request that may be repeated; KubeError is raised at once where it is an answer too."""
        failed: float | None = None
        while True:
            try:
                answer = request()
            except KubeError as error:
                now = time.monotonic()
                first, failed = failed is None, failed or now
                end = min(failed + self.seconds, self.until)
                if not error.outage:
                    raise
                if now >= end:
                    if first:
                        raise
                    raise KubeError(f"{error}; waited {now - failed:.0f} s", error.status, error.silence) from None
                if first:
                    why = error.silence or error
                    self.say(f"the API server does not answer ({why}); waiting up to {end - now:.0f} s for it")
                time.sleep(min(RETRY_S, end - now))
            else:
                if failed is not None:
                    self.say(f"the API server answers again after {time.monotonic() - failed:.0f} s")
                return answer
