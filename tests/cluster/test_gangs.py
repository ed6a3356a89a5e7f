"""Gangs on simulated nodes start whole: shapes and sizes of a cluster that `make bench` leaves out.

Each case starts all gangs of one shape in each way of bench/gangs/ways.py: Volcano as the role installs it and with
upstream's values, Kubernetes' scheduler with plain Jobs, and the floor of a bare client. No time is asserted. A sweep
keeps the seconds in tests/sweeps/gangs.json. Its first part of three is one round of every shape; the other two parts
are the other rounds of all but the first shape, whose 10,000 pods take 40 minutes a round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from bench.gangs.site import prepared
from bench.gangs.ways import once, ways
from bench.part import Setting
from tests.support.sweeps import sweeping
from tools.gang_figures import Row, keep

if TYPE_CHECKING:
    from pathlib import Path

LEAST_CPU_S = 1  # of a program whose CPU time is kept


class Shape(NamedTuple):
    """So many gangs of so many pods, on so many nodes of 16 cores that take 110 pods each."""

    gangs: int
    size: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.gangs}x{self.size}-on-{self.nodes}"


SAMPLE = Shape(5, 4, 10)
SWEPT = (Shape(500, 20, 100), Shape(1, 1000, 100), Shape(10, 100, 1000), Shape(100, 10, 1000))
LARGE, *OTHERS = SWEPT
SWEEP = [(LARGE, 0), *((shape, number) for shape in OTHERS for number in (1, 2, 0))]  # a part has every third of these
CASES = SWEEP if sweeping("gangs") else [(SAMPLE, 0)]


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize(("shape", "number"), CASES, ids=str)
def test_gangs_start_whole(tmp_path: Path, shape: Shape, number: int) -> None:
    setting, rows, reports = Setting(tmp_path), [], dict[str, tuple[str, ...]]()
    with prepared(setting, nodes=shape.nodes) as volcano:
        works = ways(volcano)
        for way in works if number % 2 == 0 else reversed(works):
            one = once(volcano, works[way], (shape.gangs, shape.size))
            reports[way] = one.reports
            cpu_s = {name: round(s, 1) for name, s in sorted(one.cpu_s.items()) if s >= LEAST_CPU_S}
            seconds = round(one.bound_s, 2), round(one.running_s, 2)
            rows.append(Row(*shape, number, way, *seconds, one.failed, one.partial, cpu_s, int(one.refused)))
            setting.say(f"{shape}, round {number + 1}, {way}: bound {one.bound_s:.1f} s, "
                        f"running {one.running_s:.1f} s, {one.failed} failed, {one.refused:.0f} refused, "
                        f"{one.partial} partial")  # fmt: skip
    if sweeping("gangs"):
        keep(rows)
    (ours,) = (row for row in rows if row.way == "ours")
    assert (ours.failed, ours.partial) == (0, 0), (rows, reports)
