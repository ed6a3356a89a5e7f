"""How long the library takes: `make bench-expand`, or python3 bench/expand.py; exits 1 when a figure is missed.

Figures: a job of 10,000 replicas to all its objects in at most 2 s, ten times the replicas in at most 11 times the
time, a job of three replicas in at most 5 ms, `gangplank --help` in at most 150 ms. Each is the best of some runs, and
expanding is counted in CPU time: other programs on the machine can only add to either.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gangplank.backends import BACKENDS
from gangplank.parse import parse_job
from gangplank.pods import Site

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
RUNS = 5


def best(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """The shortest time of some runs, in seconds."""
    times = []
    for _ in range(RUNS):
        begin = clock()
        work()
        times.append(clock() - begin)
    return min(times)


def expand(backend: str, replicas: int) -> None:
    """A job from its description to all its objects."""
    job = {"name": "bench", "image": "img", "script": "/a.py", "backend": backend, "workers": replicas - 1}
    spec = parse_job(job)
    BACKENDS[backend].objects(BACKENDS[backend].manifests(spec)[-1], Site())


def help_text() -> None:
    """The command's help, in a new process."""
    subprocess.run([sys.executable, "-m", "gangplank", "--help"], cwd=ROOT, check=True, capture_output=True)


def main() -> int:
    """Measure, print, compare."""
    missed = 0
    print(f"{'':12}  {'3 pods':>10}  {'1,000':>10}  {'10,000':>10}  {'ratio':>6}")
    for backend in BACKENDS:
        three, thousand, ten = (best(partial(expand, backend, pods)) for pods in (3, 1000, 10_000))
        missed += (three > 0.005) + (ten > 2) + (ten > 11 * thousand)
        print(f"{backend:12}  {three * 1e3:7.2f} ms  {thousand * 1e3:7.1f} ms  {ten:8.3f} s  {ten / thousand:6.1f}")
    help_s = best(help_text, time.perf_counter)
    missed += help_s > 0.150
    print(f"gangplank --help: {help_s * 1e3:.0f} ms")
    print("all figures reached" if not missed else f"{missed} figures missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
