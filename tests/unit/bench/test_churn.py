"""The part `churn`: its gangs, and what it makes of memory and seconds."""

from __future__ import annotations

import pytest

from bench.gangs.start import Start
from bench.parts.churn import LASTS, figures, flat, gang


def test_each_pod_of_a_gang_ends_by_itself() -> None:
    tasks = gang("g", 4, "4", 20)["spec"]["tasks"]
    assert [task["template"]["metadata"]["annotations"][LASTS] for task in tasks] == ["20s"] * len(tasks)
    assert {task["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] for task in tasks} == {"4"}


@pytest.mark.parametrize(("last", "met"), [(104.0, True), (120.0, False)])
def test_memory_that_grows_after_the_first_third_misses_the_goal(last: float, met: bool) -> None:
    sizes = [{"etcd": size, "sh": 1.0} for size in (10.0, 10.0, 100.0, 100.0, last, last)]
    (row,) = flat(sizes)
    assert (row.id, row.met) == ("churn.memory.etcd", met)


def test_the_99th_percentile_is_that_of_the_gangs() -> None:
    ours = {"gang": [Start(float(number), 200.0, 0, 0) for number in range(101)], "floor": [Start(1.0, 1.0, 0, 0)] * 2}
    rows = {one.id: one for one in figures(ours, ours["gang"])}
    assert rows["churn.gang.bound"].value == pytest.approx(50)
    assert rows["churn.gang.bound.99"].value == pytest.approx(99)
