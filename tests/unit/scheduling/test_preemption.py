"""fit with priorities: yes with what ends for it, no if that is not enough, cannot tell where the outcome is open."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.scheduling.amounts import requests
from gangplank.scheduling.demand import edited
from gangplank.scheduling.fit import Verdict, fit
from gangplank.scheduling.placement import capacity
from gangplank.scheduling.preemption import SOME
from gangplank.scheduling.settings import read
from tests.unit.scheduling.states import CAPACITY, cluster, group, job, node, pod, queue

if TYPE_CHECKING:
    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.snapshot import Snapshot
    from tests.unit.scheduling.states import Json

HIGH: Json = {"metadata": {"name": "high"}, "value": 10}
POLITE: Json = {"metadata": {"name": "polite"}, "value": 10, "preemptionPolicy": "Never"}
LOW: Json = {"metadata": {"name": "low"}, "value": -10}
CLASSES = {"priorities": (HIGH, POLITE, LOW)}


def ranked(name: str, where: str, priority: int = 0, **more: Any) -> Json:
    one = pod(name, where, **more)
    return {**one, "spec": {**one["spec"], "priority": priority}}


FULL = (ranked("x", "a", cpu="4", namespace="vision"), ranked("y", "b", 20, cpu="2"))


@pytest.mark.parametrize(("change", "verdict"), [
    ({"priority": "high"}, Verdict.YES),
    ({"priority": "polite"}, Verdict.NO),
    ({"priority": "low"}, Verdict.NO),
    ({}, Verdict.NO),
    ({"priority": "high", "workers": 6}, Verdict.NO),
])  # fmt: skip
def test_a_job_takes_the_room_of_pods_of_a_lower_priority(change: dict[str, Any], verdict: Verdict) -> None:
    answer = fit(job("indexed", **change), cluster(pods=FULL, **CLASSES))
    assert answer.verdict is verdict
    assert answer.ended == (("vision/x",) if verdict is Verdict.YES else ())
    assert bool(answer.nodes) == (verdict is Verdict.YES)


def test_the_usual_priority_is_that_of_the_global_default() -> None:
    usual = (HIGH, {**LOW, "metadata": {"name": "usual"}, "value": 5, "globalDefault": True})
    assert fit(job("indexed"), cluster(pods=FULL, priorities=usual)).verdict is Verdict.YES


@pytest.mark.parametrize("more", [(), ({**HIGH, "metadata": {"name": "second"}, "globalDefault": True},)])
def test_a_global_default_that_displaces_nobody_does_so_for_pods_that_name_no_class(more: tuple[Json, ...]) -> None:
    """Of two defaults the lower one counts."""
    usual = (*more, {**POLITE, "value": 5, "globalDefault": True})
    assert fit(job("indexed"), cluster(pods=FULL, priorities=usual)).verdict is Verdict.NO


def test_pods_of_other_namespaces_that_would_end_are_a_sum() -> None:
    pods = (ranked("secret-1", "a", cpu="4"), ranked("secret-2", "b", cpu="4"))
    answer = fit(job("indexed", priority="high", workers=5), cluster(pods=pods, **CLASSES))
    assert (answer.verdict, answer.ended) == (Verdict.YES, ("2 pods of other namespaces",))


def test_no_pod_is_named_where_the_scheduler_has_a_choice() -> None:
    pods = (ranked("x", "a", cpu="4", namespace="vision"), ranked("y", "b", cpu="4", namespace="vision"))
    answer = fit(job("indexed", priority="high"), cluster(pods=pods, **CLASSES))
    assert (answer.verdict, answer.ended) == (Verdict.YES, (SOME,))


def test_cannot_tell_without_the_priority_classes() -> None:
    state = cluster(pods=FULL, unread={"priorityclasses": "you may not list them"})
    answer = fit(job("indexed", priority="high"), state)
    assert answer.verdict is Verdict.CANNOT_TELL
    assert "you may not list them" in answer.missing[0]
    assert fit(job("indexed"), cluster(unread=state.unread)).verdict is Verdict.YES


def test_cannot_tell_whether_parts_that_differ_all_get_room() -> None:
    asked = edited(job("pytorchjob", priority="high", master_resources={"cpu": "2"}), schedulerName=None)
    assert fit(asked, cluster(pods=FULL, **CLASSES)).verdict is Verdict.CANNOT_TELL


def test_cannot_tell_what_another_scheduler_ends() -> None:
    asked = edited(job("indexed", priority="high"), schedulerName="mine")
    assert fit(asked, cluster(pods=FULL, **CLASSES)).verdict is Verdict.CANNOT_TELL


def test_no_pod_ends_for_a_job_that_its_quota_keeps_out() -> None:
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "1"}}}
    assert fit(job("indexed", priority="high"), cluster(pods=FULL, quotas=(quota,), **CLASSES)).verdict is Verdict.NO


def preempting(action: str, own: str = "", theirs: str = "", where: str = "default", **settings: Any) -> Verdict:
    """The answer for a job in a full cluster whose other pods are those of one gang in a queue."""
    held = (pod("x", "a", cpu="4", group="x"), pod("y", "b", cpu="4", group="x"))
    gang = group("x", where)
    gang["spec"] = {**gang["spec"], "priorityClassName": theirs}
    queues = (queue("root"), queue("default"), queue("other"))
    configuration = dataclasses.replace(CAPACITY, actions=("enqueue", "allocate", action), **settings)
    state = cluster(pods=held, groups=(gang,), queues=queues, settings=configuration, **CLASSES)
    return fit(job(**({"priority": own} if own else {})), state).verdict


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_cannot_tell_what_volcano_ends_in_the_jobs_queue(action: str) -> None:
    assert preempting(action, "high") is Verdict.CANNOT_TELL
    assert preempting(action, "", "low") is Verdict.CANNOT_TELL
    assert preempting(action, "high", "missing") is Verdict.CANNOT_TELL
    assert preempting(action, "low") is Verdict.NO
    assert preempting(action, "polite") is Verdict.NO
    assert preempting(action, "high", where="other") is Verdict.NO
    assert preempting("backfill", "high") is Verdict.NO


def test_cannot_tell_what_a_scheduler_ends_whose_configuration_may_not_be_read() -> None:
    state = cluster(pods=(pod("x", "a", cpu="4", group="x"), pod("y", "b", cpu="4")), settings=None)
    assert fit(job(), state).verdict is Verdict.CANNOT_TELL
    alone = cluster(pods=(pod("x", "a", cpu="4"), pod("y", "b", cpu="4")), settings=None)
    assert fit(job(), alone).verdict is Verdict.NO


@pytest.mark.parametrize(("actions", "verdict"), [
    (("enqueue", "allocate", "preempt"), Verdict.NO), (("allocate", "preempt"), Verdict.CANNOT_TELL),
])  # fmt: skip
def test_a_queues_limit_keeps_jobs_out_of_line_only_if_there_is_one(actions: tuple[str, ...], verdict: Verdict) -> None:
    queues = (queue("root"), queue("default", capability={"cpu": "3"}))
    settings = dataclasses.replace(CAPACITY, actions=actions)
    state = cluster(pods=(pod("x", "a", group="x"),), groups=(group("x", "default"),), queues=queues,
                    settings=settings, **CLASSES)  # fmt: skip
    assert fit(job(priority="high"), state).verdict is verdict


def test_cannot_tell_while_a_scheduler_makes_room_for_others() -> None:
    one = pod("x", "", cpu="4")
    ahead = {**one, "status": {"phase": "Pending", "nominatedNodeName": "a"}}
    assert fit(job("indexed"), cluster(pods=(one,))).verdict is Verdict.YES
    assert fit(job("indexed"), cluster(pods=(ahead,))).verdict is Verdict.CANNOT_TELL
    there = {**ahead, "spec": pod("x", "a", cpu="4")["spec"]}
    assert fit(job("indexed"), cluster(pods=(there,))).verdict is Verdict.YES


def test_only_gangpreempt_compares_priorities_whatever_the_plugins_are() -> None:
    assert preempting("preempt", ranked=False) is Verdict.CANNOT_TELL
    assert preempting("gangpreempt", ranked=False) is Verdict.NO


@pytest.mark.parametrize(("tiers", "expected"), [
    ("[{plugins: [{name: priority}, {name: gang}]}]", True),
    ("[{plugins: [{name: priority, enablePreemptable: false}, {name: gang}]}]", False),
    ("[{plugins: [{name: priority}]}, {plugins: [{name: drf}]}]", False),
    ("[{plugins: [{name: gang}]}]", False),
])  # fmt: skip
def test_priorities_count_in_a_single_tier_with_their_plugin(tiers: str, *, expected: bool) -> None:
    assert read(f"{{actions: preempt, tiers: {tiers}}}").ranked is expected


def played(asked: Demand, state: Snapshot, priority: int, dice: random.Random) -> set[str] | None:
    """The pods that end when each pod in turn goes to a node by chance; None if one of them gets none."""
    (part,) = asked.parts
    wanted = part.requests
    free = {room.name: dict(room.free) for room in state.rooms}
    lower = [one for one in state.pods.items if one["spec"]["priority"] < priority]
    ended: set[str] = set()
    for _ in range(part.minimum):
        names = [name for name, own in free.items() if capacity(wanted, own)]
        if not names:
            victims = {name: least(name, free[name], wanted, lower, ended, dice) for name in free}
            names = [name for name, some in victims.items() if some]
            if not names:
                return None
        chosen = dice.choice(names)
        if not capacity(wanted, free[chosen]):
            for one in victims[chosen]:
                ended.add(one["metadata"]["name"])
                add(free[chosen], requests(one["spec"]))
        add(free[chosen], wanted, -1)
    return ended


def add(free: dict[str, int], some: dict[str, int], times: int = 1) -> None:
    for name, value in some.items():
        free[name] = free.get(name, 0) + times * value


def least(
    name: str, free: dict[str, int], wanted: dict[str, int], lower: list[Json], ended: set[str], dice: random.Random
) -> list[Json]:
    """The pods of a node that end for one pod: all, and then each is spared for which there is room after all."""
    here = [one for one in lower if one["spec"]["nodeName"] == name and one["metadata"]["name"] not in ended]
    own = dict(free)
    for one in here:
        add(own, requests(one["spec"]))
    if not capacity(wanted, own):
        return []
    victims = []
    for one in sorted(here, key=lambda one: (-one["spec"]["priority"], dice.random())):
        add(own, requests(one["spec"]), -1)
        if not capacity(wanted, own):
            add(own, requests(one["spec"]))
            victims.append(one)
    return victims


@pytest.mark.parametrize("seed", range(80))
def test_agrees_with_a_scheduler_that_ends_the_least(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [node(name, cpu=str(dice.randint(2, 8))) for name in "abc"]
    others: list[Json] = []
    for number in range(dice.randint(2, 8)):
        where = dice.choice("abc")
        cpu = dice.choice((1, 2, 3))
        used = sum(int(one["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for one in others
                   if one["spec"]["nodeName"] == where)  # fmt: skip
        if used + cpu <= int(nodes["abc".index(where)]["status"]["allocatable"]["cpu"]):
            others.append(ranked(f"p{number}", where, dice.choice((-5, 0, 20)), cpu=str(cpu), namespace="vision"))
    cores = str(dice.choice((1, 2, 3)))
    asked = job("indexed", priority="high", workers=dice.randint(0, 6), resources={"cpu": cores, "memory": "1Gi"})
    state = cluster(*nodes, pods=tuple(others), **CLASSES)
    answer = fit(asked, state)
    for _ in range(5):
        ended = played(asked, state, 10, dice)
        assert (answer.verdict is Verdict.YES) == (ended is not None)
        if answer.ended != (SOME,):
            assert {f"vision/{name}" for name in ended or ()} == set(answer.ended)
