"""How time and memory grow with a size: what a process of its own costs, and the exponent between two sizes.

1 is linear. The goal is the exponent of n log n between the same sizes.
"""

from __future__ import annotations

import math
import multiprocessing
import resource
import statistics
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.figures import exponent, figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bench.figures import Figure

Cost = tuple[float, float]  # seconds and MiB


def limit(small: int, large: int) -> float:
    """The exponent of n log n between two sizes.

    >>> round(limit(100, 1000), 3)
    1.176
    """
    return 1 + math.log(math.log(large) / math.log(small)) / math.log(large / small)


def of_programs(work: Callable[[], tuple[float, object]], _: int) -> Cost:
    """Seconds of a work that starts programs, and MiB at most of the largest of them."""
    return work()[0], peak(resource.RUSAGE_CHILDREN)


def peak(who: int = resource.RUSAGE_SELF) -> float:
    """MiB that this process had at most, or the largest of those that it has started and that have ended."""
    return resource.getrusage(who).ru_maxrss / 1024


def alone(work: Callable[[int], Cost], size: int) -> Cost:
    """Do it in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, size).result()


def grown(name: str, title: str, rounds: Mapping[int, list[Cost]]) -> Iterator[Figure]:
    """Time and memory at each size, and the exponents between two; their ids begin with the name."""
    for size, costs in rounds.items():
        yield figure(f"{name}.{size}.time", f"{size:,} {title}", "s", [seconds for seconds, _ in costs])
        yield figure(f"{name}.{size}.memory", f"{size:,} {title}", "MiB", [mib for _, mib in costs])
    for small, large in pairwise(rounds):
        for at, id_ in enumerate(("exponent", "memory.exponent")):
            exponents = [
                exponent((small, before[at]), (large, after[at]))
                for before, after in zip(rounds[small], rounds[large], strict=True)
            ]
            what = f"{'memory of ' if at else ''}{small:,} to {large:,} {title}"
            yield figure(f"{name}.{large}.{id_}", what, "exponent", exponents, goal=limit(small, large), why="n log n")
    low, *_, high = rounds
    mib = {size: statistics.median(mib for _, mib in rounds[size]) for size in (low, high)}
    bytes_each = (mib[high] - mib[low]) * 2**20 / (high - low)
    yield figure(f"{name}.each", f"memory of each of {high:,} {title}", "KiB", [bytes_each / 1024])
