"""How time and memory grow: teams, the objects of a job, and the answer of `fit`.

Each size runs in a process of its own, so that its peak of memory is its own. The exponent is that between two sizes:
1 is linear. The goal is that of n log n between the same sizes.
"""

from __future__ import annotations

import functools
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench.growth import alone, grown, of_programs, peak
from bench.part import Part
from bench.parts import expand, fit, teams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.figures import Figure
    from bench.growth import Cost
    from bench.part import Setting

PART = Part("How time and memory grow with teams and pods", minutes=12, usual=False)
ROUNDS = 3
PODS = (1000, 10_000, 100_000)
BACKEND = "volcano"
CLUSTERS = (1000, 10_000, 100_000)  # pods; a tenth as many nodes
TEAMS = (10, 100, 1000)


def expanded(size: int) -> Cost:
    """Seconds of CPU time and MiB at most, for a job of so many pods."""
    return expand.cpu_s(functools.partial(expand.expand, BACKEND, size)), peak()


def answered(size: int) -> Cost:
    """The same for `fit` and `why` on a cluster with so many pods."""
    return fit.answer_s(1, fit.CASES["fits"], size), peak()


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
        yield from grown(f"growth.{name}", title, rounds)
    yield from grown("growth.teams", "teams, second run", dict(second_runs(setting)))


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
