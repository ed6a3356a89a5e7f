"""The trainer, and the CPU time that its evidence takes beside that of the run, Python's start and imports left out.

CPU time, user and system, not wall time: it stays the same while other work takes turns on the machine. All of the
evidence is counted: looking at gradients and weights, records, exchanges of heads, bringing records to rank 0.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

sys.path.insert(0, "/opt/gangplank/trainer")

import evidence
import train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORK = ("add", "samples", "saw", "mark", "gradients", "exchange_heads", "take", "hand_in", "lines", "__init__")
inside, spent, turn = threading.local(), [0.0], threading.Lock()


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Add the CPU time of this thread, once however deep the calls are."""
    if getattr(inside, "counts", False):
        yield
        return
    inside.counts, began = True, time.thread_time()
    try:
        yield
    finally:
        inside.counts = False
        with turn:
            spent[0] += time.thread_time() - began


def counting(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work, counted."""

    @functools.wraps(work)
    def run(*args: Any, **more: Any) -> Any:
        with counted():
            return work(*args, **more)

    return run


def main() -> int:
    """A whole training."""
    evidence.counted = counted
    for name in WORK:
        setattr(evidence.Evidence, name, counting(getattr(evidence.Evidence, name)))
    began = time.process_time()
    code = train.main(sys.argv[1:])
    took = time.process_time() - began
    print(json.dumps({"event": "cpu", "evidence": spent[0], "run": took}), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
