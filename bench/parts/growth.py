"""How time and memory grow: teams, the objects of a job, and the answer of `fit`.

Each size runs in a process of its own, so that its peak of memory is its own. The exponent is that between two sizes:
1 is linear. The goal is that of n log n between the same sizes.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.figures import exponent, figure
from bench.part import Part
from bench.parts import expand, fit, teams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("How time and memory grow with teams and pods", minutes=12, usual=False)
ROUNDS = 3
PODS = (1000, 10_000, 100_000)
BACKEND = "volcano"
CLUSTERS = (100, 1000, 10_000)  # pods; a tenth as many nodes
TEAMS = (10, 100, 1000)
Cost = tuple[float, float]


def limit(small: int, large: int) -> float:
    """The exponent of n log n between two sizes.

    >>> round(limit(100, 1000), 3)
    1.176
    """
    return 1 + math.log(math.log(large) / math.log(small)) / math.log(large / small)


def expanded(size: int) -> Cost:
    """Seconds of CPU time and MiB at most, for a job of so many pods."""
    return expand.cpu_s(functools.partial(expand.expand, BACKEND, size)), peak()


def answered(size: int) -> Cost:
    """The same for `fit` and `why` on a cluster with so many pods."""
    seconds = fit.answer_s(1, "1", size, tainted=False)[1]
    return seconds, peak()


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


def grown(name: str, title: str, rounds: dict[int, list[Cost]]) -> Iterator[Figure]:
    """Time and memory at each size, and the exponents between two."""
    for size, costs in rounds.items():
        yield figure(f"growth.{name}.{size}.time", f"{size:,} {title}", "s", [seconds for seconds, _ in costs])
        yield figure(f"growth.{name}.{size}.memory", f"{size:,} {title}", "MiB", [mib for _, mib in costs])
    for small, large in pairwise(rounds):
        exponents = [
            exponent((small, before), (large, after))
            for (before, _), (after, _) in zip(rounds[small], rounds[large], strict=True)
        ]
        yield figure(f"growth.{name}.{large}.exponent", f"{small:,} to {large:,} {title}", "exponent", exponents,
                     goal=limit(small, large), why="n log n")  # fmt: skip
    low, *_, high = rounds
    mib = {size: statistics.median(mib for _, mib in rounds[size]) for size in (low, high)}
    bytes_each = (mib[high] - mib[low]) * 2**20 / (high - low)
    yield figure(f"growth.{name}.each", f"memory of each of {high:,} {title}", "KiB", [bytes_each / 1024])


def measure(setting: Setting) -> Iterator[Figure]:
    """All sizes in turns."""
    for name, title, work, sizes in (
        ("expand", "pods of a job, expand", expanded, PODS),
        ("fit", "pods of a cluster, fit and why", answered, CLUSTERS),
    ):
        rounds: dict[int, list[Cost]] = {size: [] for size in sizes}
        for number in range(ROUNDS):
            for size in sizes:
                rounds[size].append(alone(work, size))
            setting.say(f"{name}, round {number + 1}: " + ", ".join(f"{rows[-1][0]:.2f} s" for rows in rounds.values()))
        yield from grown(name, title, rounds)
    yield from grown("teams", "teams, second run", dict(second_runs(setting)))


def second_runs(setting: Setting) -> Iterator[tuple[int, list[Cost]]]:
    """Seconds and memory of playbooks/teams.yml where nothing has to change."""
    with ExitStack() as stack:
        kubeconfig = teams.control_plane(stack, setting.folder)
        for count in TEAMS:
            site = setting.folder / f"teams-{count}"
            teams.write(site, count)
            begin = time.monotonic()
            teams.playbook(site, kubeconfig)
            setting.say(f"{count} teams, first run: {time.monotonic() - begin:.0f} s")
            again = functools.partial(of_programs, functools.partial(teams.playbook, site, kubeconfig))
            yield count, [alone(again, count) for _ in range(ROUNDS)]
