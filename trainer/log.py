"""One JSON object a line on standard output: the only thing a rank prints while it trains."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
from pathlib import Path
from typing import IO

TURN = threading.RLock()  # between threads; between processes, a lock of a file that each opens itself
NUMBERS: dict[int, int] = {}  # of the last event, by process
FILES: dict[int, IO[bytes]] = {}  # by process: one that forked shares its parent's


def say(event: str, **fields: object) -> None:
    """Print one line and flush it; its `number` shows whether one before it is missing."""
    with TURN:
        own = os.getpid()
        NUMBERS[own] = NUMBERS.get(own, 0) + 1
        say_lines(json.dumps({"event": event, **fields, "number": NUMBERS[own]}, separators=(",", ":")) + "\n")


def say_lines(text: str) -> None:
    """Print whole lines and flush them; lines of the ranks of one pod never mix.

    A short line needs the lock too: a full pipe takes it in the middle of another rank's long one.
    """
    own = os.getpid()
    with TURN:
        if own not in FILES:
            FILES[own] = Path(__file__).open("rb")  # noqa: SIM115  # it stays open
        fcntl.flock(FILES[own], fcntl.LOCK_EX)
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        finally:
            fcntl.flock(FILES[own], fcntl.LOCK_UN)
