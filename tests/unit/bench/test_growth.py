"""How costs of growing sizes are measured and judged, and the part that does so for the nodes of a site."""

from __future__ import annotations

import contextlib
import functools
import math
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bench import growth, plane
from bench.figures import exponent
from bench.part import BenchError, Setting
from bench.parts import expand, nodes, teams
from tests.support import bare_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.mark.parametrize(("power", "reached"), [(0.5, True), (1.0, True), (2.0, False)])
def test_growth_beyond_n_log_n_misses_its_goal(power: float, reached: bool) -> None:
    rounds = {size: [(size**power, float(size)), (2 * size**power, float(size))] for size in (10, 100, 1000)}
    rows = {one.id: one for one in growth.grown("growth.x", "things", rounds)}
    assert rows["growth.x.100.exponent"].value == pytest.approx(power)
    exponents = {name: one for name, one in rows.items() if name.endswith("exponent")}
    assert {one.met for name, one in exponents.items() if "memory" not in name} == {reached}
    assert [one.value for name, one in exponents.items() if "memory" in name] == pytest.approx([1, 1])
    assert rows["growth.x.each"].value == pytest.approx(1024)  # a MiB of memory for each


@pytest.mark.parametrize("sizes", [(10, 100), (1000, 10_000), (100, 500)])
def test_what_grows_as_n_log_n_is_at_its_goal(sizes: tuple[int, int]) -> None:
    small, large = sizes
    times = growth.n_log_n(small, large)
    assert times == pytest.approx(large * math.log2(large) / (small * math.log2(small)))
    assert exponent((small, 1.0), (large, times)) == pytest.approx(growth.limit(small, large))


def test_the_growth_of_expand_is_held_against_n_log_n(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {3: 0.002, 1000: 0.1, 10_000: 1.3}
    monkeypatch.setattr(expand, "ROUNDS", 1)
    monkeypatch.setattr(expand, "expand", lambda _, replicas: [{"replicas": replicas}])
    monkeypatch.setattr(expand, "thousand_s", lambda _: seconds[1000])
    monkeypatch.setattr(expand, "cpu_s", lambda work: seconds[work()[0]["replicas"]])
    monkeypatch.setattr(expand, "python_ms", lambda *_: 1.0)
    rows = {one.id: one for one in expand.measure(Setting(tmp_path))}
    one, few = rows["expand.volcano.growth"], rows["expand.volcano.3"]
    assert (one.value, one.goal) == pytest.approx((13, 40 / 3))
    assert (one.why, one.met) == ("n log n", True)
    assert (few.value, few.peer and few.peer.value) == (2.0, 2.0)


def program(mib: int, before: list[str]) -> tuple[float, str]:
    return teams.timed(*before, sys.executable, "-I", "-S", "-c", f"b'x' * ({mib} << 20)")


def test_the_memory_of_a_work_is_that_of_its_own_programs() -> None:
    works = [functools.partial(program, mib) for mib in (150, 1)]
    large, small = (growth.alone(functools.partial(growth.of_programs, work), 1)[1] for work in works)
    assert 150 < large < 175
    assert small < 25, "neither a process that ran before nor the one that starts it counts"


def own_peak(_: int) -> growth.Cost:
    return 0.0, growth.peak()


def test_the_memory_of_a_process_of_its_own_is_not_that_of_the_process_that_starts_it() -> None:
    before = growth.alone(own_peak, 1)[1]
    assert b"x" * (300 << 20)
    assert growth.peak() > 300
    assert growth.alone(own_peak, 1)[1] < before + 50


def test_each_command_is_asked_on_every_number_of_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled: list[int] = []
    asked: list[str] = []

    @contextlib.contextmanager
    def prepared(_: Setting, nodes: int) -> Iterator[Any]:
        yield SimpleNamespace(kube=nodes)

    def again(name: str) -> tuple[float, list[str]]:
        asked.append(nodes.PLAYBOOKS[name])
        return 1.0, []

    def alone(work: Callable[[int], growth.Cost], size: int) -> growth.Cost:
        assert filled[-1] == size
        assert isinstance(work, functools.partial)
        return float(size), 100.0

    monkeypatch.setattr(nodes, "prepared", prepared)
    monkeypatch.setattr(nodes, "filled", lambda kube, count: filled.append(count) if kube == count else None)
    monkeypatch.setattr(nodes, "again", again)
    monkeypatch.setattr(nodes, "read_s", lambda _: 0.5)
    monkeypatch.setattr(nodes, "alone", alone)
    rows = {one.id: one for one in nodes.measure(Setting(tmp_path))}
    assert filled == list(nodes.SIZES)
    assert {name.split(".")[0] for name in rows} == {"nodes"}
    for command in ("status", "preflight", "why", "fit", "site", "lab"):
        assert rows[f"nodes.{command}.1000.exponent"].value == pytest.approx(1)
        assert rows[f"nodes.{command}.1000.memory.exponent"].value == pytest.approx(0)
        floor = rows[f"nodes.{command}.1000.time"].floor
        assert (floor and floor.value) == (None if command in nodes.PLAYBOOKS else 0.5)
    assert asked == ["playbooks/site.yml", "playbooks/lab.yml"] * len(nodes.SIZES)
    assert rows["nodes.site.changes"].met
    assert rows["nodes.lab.changes"].met


def test_the_floor_of_fit_exact_is_the_start_of_its_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Until the scheduler has looked at everything once; their versions are not looked up meanwhile."""
    steps: list[str] = []

    class Plane:
        def __init__(self, programs: dict[str, str], _: Path) -> None:
            assert {*programs} == {"etcd", "kube-apiserver", "vc-scheduler"}
            self.sessions = iter([0.0, 0.0, 1.0, 2.0])

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            steps.append("end")

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: steps.append(name)

        def waiting(self, _: str) -> Iterator[None]:
            return iter([None] * 9)

        def metric(self, _: str) -> float:
            return next(self.sessions)

    (tmp_path / "config").mkdir()
    (tmp_path / "config" / bare_site.CONFIGURATION).write_text("actions: allocate")
    monkeypatch.setattr(plane, "Plane", Plane)
    monkeypatch.setattr(plane, "shown", lambda _: tmp_path)
    monkeypatch.setattr(bare_site, "shown", lambda _: tmp_path)
    monkeypatch.setattr(plane, "in_a_network", lambda: contextlib.nullcontext(lambda call: call()))
    # In this module alone: a thread of another test may look at the clock, too.
    monkeypatch.setattr(plane, "time", SimpleNamespace(monotonic=iter([1.0, 4.5]).__next__))
    assert plane.start_s() == 3.5
    assert steps == ["start_etcd", "load", "start_api", "start_scheduler", "end"]


@pytest.mark.parametrize(("status", "text", "kept"), [
    (0, "waits: no room", True), (6, "nothing", False), (4, "waits", False),
])  # fmt: skip
def test_the_time_of_a_command_that_did_not_answer_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, text: str, kept: bool
) -> None:
    done = subprocess.CompletedProcess([], status, text, "no answer")
    monkeypatch.setattr("bench.parts.nodes.subprocess.run", lambda *_, **__: done)
    command = nodes.commands(tmp_path)["why"]
    if kept:
        assert nodes.answered(command, "kubeconfig")[1] == text
    else:
        with pytest.raises(BenchError, match=f"gangplank why: got exit status {status} and {text}"):
            nodes.answered(command, "kubeconfig")
