"""What the part `fit` measures: the work of fit and why on a large cluster, and what `fit --exact` is asked of."""

from __future__ import annotations

import contextlib
import cProfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bench.part import Setting
from bench.parts import fit
from tests.support import bare_site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


CALLS = 150  # of Python or C functions for each pod of the cluster: up to 75, with volumes 112


def calls(name: str, pods: int) -> int:
    """How many calls both answers take."""
    answer, profile = fit.question(1, fit.CASES[name], pods), cProfile.Profile()
    profile.runcall(answer)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("name", fit.CASES)
def test_fit_and_why_work_little_for_each_pod_of_a_large_cluster(name: str) -> None:
    """Counted in calls, as many on a busy machine; `make bench PARTS=fit growth` measures CPU time."""
    half, whole = calls(name, fit.PODS // 2), calls(name, fit.PODS)
    assert fit.PODS < whole < CALLS * fit.PODS
    assert whole < 2.2 * half, "more than n log n"


@pytest.mark.parametrize(("nodes", "pods"), fit.EXACT.items())
def test_the_site_that_is_copied_has_so_many_nodes_and_pods(nodes: int, pods: int) -> None:
    keys = [key for key, _ in [*bare_site.namespace("default"), *fit.stored(nodes, pods)]]
    assert len(keys) == len(set(keys)), "etcd refuses a write that names a key twice"
    places = ("minions/", "pods/other/", "scheduling.volcano.sh/queues/", "scheduling.volcano.sh/podgroups/other/")
    counts = [sum(key.startswith(place) for key in keys) for place in places]
    assert counts == [nodes, pods, fit.QUEUES, fit.QUEUES]


def test_the_exact_answer_is_measured_as_the_command_in_turns_with_its_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []

    @contextlib.contextmanager
    def site(_: Path, state: Sequence[Any]) -> Iterator[Any]:
        turns.append(f"{sum(key.startswith('minions/') for key, _ in state)} nodes")
        yield SimpleNamespace(plane=SimpleNamespace(kubeconfig="its kubeconfig"))
        turns.append("end")

    def answered(command: Any, kubeconfig: str) -> tuple[float, str]:
        assert (command.words[:2], command.statuses, kubeconfig) == (("fit", "--exact"), (0,), "its kubeconfig")
        assert Path(command.words[2]).is_file()
        turns.append("exact")
        return 8.0, "yes"

    def floor() -> float:
        turns.append("floor")
        return 5.0

    monkeypatch.setattr(bare_site, "bare_site", site)
    monkeypatch.setattr(bare_site, "in_a_network", lambda: contextlib.nullcontext(lambda call: call()))
    monkeypatch.setattr(fit, "answered", answered)
    monkeypatch.setattr(fit, "start_s", floor)
    monkeypatch.setattr(fit, "CASES", {})
    rows = {one.id: one for one in fit.measure(Setting(tmp_path))}
    assert turns == [step for nodes in (100, 1000) for step in (f"{nodes} nodes", *["exact", "floor"] * 3, "end")]
    assert {name: (one.value, one.floor and one.floor.value, one.goal) for name, one in rows.items()} == {
        "fit.exact.100": (8.0, 5.0, 10.0), "fit.exact.1000": (8.0, 5.0, None),
    }  # fmt: skip
