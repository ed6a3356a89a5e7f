"""`make test` and `make check`: one target on the terminal, and another beside it, which yields to it.

Tests on a cluster mostly wait for it. What needs none runs meanwhile; what it prints is kept, and printed at the end.
Each runs to its end, whatever becomes of the other. If one fails, its output comes last.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAKE = ("make", "--no-print-directory")
YIELDS = ("nice", "-n", "10")  # to a tenth of a processor that the other wants


def start(*command: str, output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start a command on the terminal, or with a file for all that it prints."""
    error = subprocess.STDOUT if output else None
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=error)


def stop(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Pass SIGTERM on."""
    for one in running:
        one.terminate()


def main(first: str, other: str) -> int:
    """Make both; 1 if one of them fails."""
    began, running, kept = time.monotonic(), list[subprocess.Popen[bytes]](), Path(f".{other}.log")
    signal.signal(signal.SIGINT, lambda *_: None)  # a terminal sends it to all of them
    signal.signal(signal.SIGTERM, lambda *_: stop(running))
    with kept.open("wb") as log:
        print(f"make {other} runs beside make {first}; its output is in {kept}", flush=True)
        running.append(beside := start(*YIELDS, *MAKE, other, output=log))
        running.append(shown := start(*MAKE, first))
        word = "failed" if shown.wait() else "passed"
        print(f"make {first} {word} after {(time.monotonic() - began) / 60:.0f} minutes", flush=True)
        if beside.poll() is None:
            print(f"make {other} still runs; its output is in {kept}", flush=True)
        beside.wait()
    failed = [name for name, one in ((first, shown), (other, beside)) if one.returncode]
    if failed != [first]:
        with kept.open("rb") as log:
            shutil.copyfileobj(log, sys.stdout.buffer)
    if failed:
        print("failed:", ", ".join(f"make {name}" for name in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
