"""The part `churn`: its gangs, and what it makes of memory and seconds."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bench.gangs.start import Start
from bench.part import Setting
from bench.parts import churn
from bench.parts.churn import LASTS, figures, flat, gang

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    gangs = [Start(float(number), 200.0, (), 0) for number in range(101)]
    ours = {"gang": gangs, "floor": [Start(1.0, 1.0, (), 0)] * 2}
    rows = {one.id: one for one in figures(ours, ours["gang"])}
    assert rows["churn.gang.bound"].value == pytest.approx(50)
    assert rows["churn.gang.bound.99"].value == pytest.approx(99)


def test_the_peer_is_measured_before_and_after_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that becomes slower all the time makes the peer as slow as ours, in the mean."""
    clock: list[str] = []
    volcano = SimpleNamespace(kube=None, own="own", upstream="upstream", use=clock.append)

    @contextlib.contextmanager
    def prepared(*_: Any) -> Iterator[Any]:
        yield volcano

    def churned(_: Any, __: Any, span_s: float) -> tuple[dict[str, list[Start]], list[dict[str, float]]]:
        rows = [Start(float(len(clock)), float(len(clock)), (), 0)] * int(span_s // 30)
        return {"gang": rows, "floor": rows}, [{"etcd": 100.0}] * len(rows)

    monkeypatch.setattr(churn, "prepared", prepared)
    monkeypatch.setattr(churn, "churned", churned)
    rows = {one.id: one for one in churn.measure(Setting(tmp_path))}
    assert clock == ["upstream", "own", "upstream"]
    one = rows["churn.gang.bound"]
    assert one.peer is not None
    assert one.value == one.peer.value == 2.0
    assert rows["churn.memory.etcd"].met
