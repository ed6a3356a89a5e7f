"""One JSON object a line on standard output: the only thing a rank prints."""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path

# A pipe takes up to this many bytes of one write as a whole (PIPE_BUF on Linux).
ATOMIC_BYTES = 4096


def say(event: str, **fields: object) -> None:
    """Print one line and flush it; lines of the ranks of one pod never mix."""
    line = json.dumps({"event": event, **fields}, separators=(",", ":")) + "\n"
    if len(line) <= ATOMIC_BYTES:
        sys.stdout.write(line)
        sys.stdout.flush()
        return
    with Path(__file__).open("rb") as turn:  # each process opens it itself, so the lock is between processes
        fcntl.flock(turn, fcntl.LOCK_EX)
        sys.stdout.write(line)
        sys.stdout.flush()
