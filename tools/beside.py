"""`make test`: one target on the terminal, and another beside it, on the processor time that the first leaves.

Tests on a cluster mostly wait for it. What needs none runs meanwhile; what it prints is kept, and printed at the end.
Each runs to its end, whatever becomes of the other. The output of the one that failed comes last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = Path(".beside.log")
MAKE = ("make", "--no-print-directory")


def start(target: str, output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Make a target, whose output goes to a file and which yields to others, if there is a file."""
    error = subprocess.STDOUT if output else None
    running = subprocess.Popen([*MAKE, target], stdin=subprocess.DEVNULL, stdout=output, stderr=error)
    if output:
        os.sched_setscheduler(running.pid, os.SCHED_IDLE, os.sched_param(0))
    return running


def main(first: str, other: str) -> int:
    """Make both; 1 if one of them fails."""
    began = time.monotonic()
    with LOG.open("wb") as log:
        beside, shown = start(other, log), start(first)
        print(f"make {other} runs beside make {first}; its output is in {LOG}", flush=True)
        # The terminal stops both with Ctrl-C. Others are asked to stop by name, and each removes what it has started.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, stopping(shown, beside))
        failed = shown.wait()
        if beside.poll() is None:
            minutes = (time.monotonic() - began) / 60
            print(f"make {first} ended after {minutes:.0f} minutes; make {other} still runs", flush=True)
        beside.wait()
    if beside.returncode or not failed:
        with LOG.open("rb") as log:
            shutil.copyfileobj(log, sys.stdout.buffer)
    else:
        print(f"make {other} passed; its output is in {LOG}")
    return 1 if failed or beside.returncode else 0


def stopping(*running: subprocess.Popen[bytes]) -> Callable[[int, object], None]:
    """A handler that passes its signal on."""

    def handler(number: int, _: object) -> None:
        for one in running:
            with contextlib.suppress(ProcessLookupError):
                one.send_signal(number)

    return handler


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
