"""How time and memory grow with a size: what a process of its own costs, and the exponent between two sizes.

1 is linear. The goal is the exponent of n log n between the same sizes.
"""

from __future__ import annotations

import math
import multiprocessing
import re
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import exponent, figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.figures import Beside, Figure

Cost = tuple[float, float]  # seconds and MiB
WHY = "n log n"
# Words before a command: a small process starts it, and writes how large the largest of its processes was. A process
# keeps as its peak what was in memory before its program was loaded, which is its parent's.
LARGEST = """import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)"""


def n_log_n(small: int, large: int) -> float:
    """How many times as much n log n is at the large size: the goal of every growth.

    >>> round(n_log_n(1000, 10_000), 1)
    13.3
    """
    return large * math.log(large) / (small * math.log(small))


def limit(small: int, large: int) -> float:
    """The exponent of n log n between two sizes.

    >>> round(limit(100, 1000), 3)
    1.176
    """
    return math.log(n_log_n(small, large)) / math.log(large / small)


def of_programs(work: Callable[[Sequence[str]], tuple[float, object]], _: int) -> Cost:
    """Seconds of a work that puts these words before its command, and MiB at most of the largest process of that."""
    with tempfile.NamedTemporaryFile("r") as file:
        seconds, _rest = work([sys.executable, "-I", "-S", "-c", LARGEST, file.name])
        return seconds, int(file.read()) / 1024


def peak() -> float:
    """MiB that this process had at most, since its program was loaded."""
    line = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(line[1]) / 1024 if line else 0.0


def alone(work: Callable[[int], Cost], size: int) -> Cost:
    """Do it in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, size).result()


def grown(
    name: str, title: str, rounds: Mapping[int, list[Cost]], floors: Mapping[int, Beside] | None = None
) -> Iterator[Figure]:
    """Time, beside its floor, and memory at each size, and the exponents between two; their ids begin with the name."""
    for size, costs in rounds.items():
        yield figure(f"{name}.{size}.time", f"{size:,} {title}", "s", [seconds for seconds, _ in costs],
                     floor=floors[size] if floors else None)  # fmt: skip
        yield figure(f"{name}.{size}.memory", f"{size:,} {title}", "MiB", [mib for _, mib in costs])
    for small, large in pairwise(rounds):
        for at, id_ in enumerate(("exponent", "memory.exponent")):
            exponents = [
                exponent((small, before[at]), (large, after[at]))
                for before, after in zip(rounds[small], rounds[large], strict=True)
            ]
            what = f"{'memory of ' if at else ''}{small:,} to {large:,} {title}"
            yield figure(f"{name}.{large}.{id_}", what, "exponent", exponents, goal=limit(small, large), why=WHY)
    low, *_, high = rounds
    mib = {size: statistics.median(mib for _, mib in rounds[size]) for size in (low, high)}
    bytes_each = (mib[high] - mib[low]) * 2**20 / (high - low)
    yield figure(f"{name}.each", f"memory of each of {high:,} {title}", "KiB", [bytes_each / 1024])
