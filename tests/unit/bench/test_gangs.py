"""What the part `gangs` makes of a watch: when a gang was bound and ran, and whether it was ever begun in part."""

from __future__ import annotations

from typing import Any

import pytest

from bench.gangs.jobs import plain_job, volcano_job
from bench.gangs.start import Start
from bench.gangs.watch import Seen
from bench.parts.gangs import figures
from gangplank.backends.pod_template import JOB_LABEL


def pod(gang: str, number: int, node: str = "", phase: str = "Pending") -> dict[str, Any]:
    meta = {"uid": f"{gang}-{number}", "labels": {JOB_LABEL: gang}}
    return {"metadata": meta, "spec": {"nodeName": node} if node else {}, "status": {"phase": phase}}


def seen(*items: dict[str, Any]) -> Seen:
    one = Seen({"a": 2})
    for at, item in enumerate(items, 1):
        one.see("MODIFIED", item, float(at))
    return one


def test_a_gang_that_is_whole_before_its_first_binding_is_not_partial() -> None:
    both = seen(pod("a", 0), pod("a", 1), pod("a", 0, "n"), pod("a", 1, "n"), pod("a", 0, "n", "Running"))
    assert (both.partial, both.torn, both.whole()) == (set(), set(), False)
    both.see("MODIFIED", pod("a", 1, "n", "Running"), 9.0)
    assert both.whole()
    assert [(one.bound, one.running) for one in both.pods.values()] == [(3.0, 5.0), (4.0, 9.0)]


def test_a_pod_with_a_node_before_all_of_its_gang_exist_makes_it_partial() -> None:
    assert seen(pod("a", 0), pod("a", 0, "n"), pod("a", 1), pod("a", 1, "n")).partial == {"a"}
    assert seen(pod("a", 0, "n"), pod("a", 1, "n")).partial == {"a"}


def test_a_gang_of_which_only_some_have_a_node_is_torn() -> None:
    assert seen(pod("a", 0), pod("a", 1), pod("a", 0, "n")).torn == {"a"}


def test_what_was_seen_stays_when_a_later_change_says_less() -> None:
    one = seen(pod("a", 0, "n", "Running"))
    one.see("DELETED", pod("a", 0), 2.0)
    one.see("MODIFIED", pod("a", 0, "n", "Running"), 3.0)
    assert [(it.bound, it.running) for it in one.pods.values()] == [(1.0, 1.0)]


def test_plain_jobs_have_the_gangs_pods() -> None:
    (worker,) = (task for task in volcano_job("g", 4)["spec"]["tasks"] if task["name"] == "worker")
    plain = plain_job("g", 4)
    assert plain["spec"]["template"] == worker["template"]
    assert plain["spec"]["parallelism"] == sum(task["replicas"] for task in volcano_job("g", 4)["spec"]["tasks"])


@pytest.mark.parametrize(("upstream", "floor", "goal"), [(24.0, 4.0, 8.0), (24.0, 8.0, 10.0)])
def test_the_goal_is_three_times_upstreams_rate_or_four_fifths_of_the_floors(
    upstream: float, floor: float, goal: float
) -> None:
    seconds = {"ours": 9.0, "upstream": upstream, "floor": floor, "kubernetes": 50.0}
    rows = figures("10x100", {way: [Start(value, value + 1, 0, 0)] for way, value in seconds.items()})
    bound = next(one for one in rows if one.id == "gangs.10x100.bound")
    assert bound.goal == pytest.approx(goal)
    assert bound.met is (goal > 9)
