"""why of a job of which some pods have a node: those stay there, and only what the others wait for is named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.scheduling.demand import Part, edited
from gangplank.scheduling.why import Proof, Situation, diagnose
from tests.unit.scheduling.states import cluster, group, job, node, pod, queue

if TYPE_CHECKING:
    from gangplank.scheduling.snapshot import Snapshot

Json = dict[str, Any]
OTHER = pod("x", "b", cpu="1")
CORDONED = {**node("a", cpu="2"), "spec": {"unschedulable": True}}
TAINTED = node("a", cpu="2", taints=({"key": "maintenance", "effect": "NoSchedule"},))
NODE_A, NODE_B = node("a", cpu="2"), node("b", cpu="1")
QUOTA = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}, "status": {"used": {"pods": "3"}}}
SHORT = "1 of its 3 pods has no place: the nodes that it may use have too little cpu free"
CLOSED = (queue("root"), queue("default", state="Closed"))
GANG: Json = {"demand": job(min_available=2), "group": group("digits-1", "default", "vision", phase="Running")}
SELECTS: Json = {"demand": edited(job("indexed"), nodeSelector={"gpu": "yes"})}


def own(index: int, where: str, name: str = "digits-{}") -> Json:
    item = pod(name.format(index), where, namespace="vision")
    if not where:
        del item["spec"]["nodeName"]
        item["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
    return item


def partly(state: Snapshot, pods: tuple[Json, ...] | None = None, **more: Any) -> Situation:
    """Two of three pods run on node a, which they fill."""
    pods = (own(0, "a"), own(1, "a"), own(2, "")) if pods is None else pods
    return Situation("digits", **{"demand": job("indexed"), "state": state, "pods": pods, "age_s": 600.0, **more})


@pytest.mark.parametrize(("first", "more"), [
    (NODE_A, {}), (CORDONED, {}), (TAINTED, {}), (NODE_A, SELECTS), (NODE_A, GANG), (CORDONED, GANG),
], ids=["nothing", "a cordon", "a taint", "a label that is gone", "a gang", "a gang on a cordoned node"])  # fmt: skip
def test_what_has_changed_since_the_others_started_is_not_named(first: Json, more: Json) -> None:
    """The cordon, taint or label was named, and proven: its pods were all planned again."""
    labelled = node("b", cpu="1", labels={"gpu": "yes"})
    diagnosis = diagnose(partly(cluster(first, labelled, pods=(OTHER,)), **more))
    who = "digits-worker-1" if more is GANG else "digits-2"
    assert diagnosis.first_line == f"digits runs with 2 of 3 pods; {who} waits because {SHORT}"
    assert diagnosis.proof is Proof.REMOVAL
    assert "other pods hold 1 cpu" in diagnosis.text(), "not what its own hold"


def test_what_keeps_the_rest_out_for_good_is_named() -> None:
    diagnosis = diagnose(partly(cluster(NODE_A, {**NODE_B, "spec": {"unschedulable": True}})))
    assert diagnosis.cause
    assert (diagnosis.cause.code, diagnosis.proof) == ("node-cordoned", Proof.REMOVAL)
    assert diagnosis.first_line.startswith("digits runs with 2 of 3 pods; digits-2 waits because 1 of the nodes")


def test_a_master_that_runs_on_the_only_large_node_is_not_moved() -> None:
    """Nothing was wrong: planned again, the worker fits there, and the master beside it."""
    large = {"containers": [{"name": "a", "resources": {"requests": {"cpu": "4"}}}]}
    master = job("indexed").parts[0].spec
    wanted = replace(job("indexed"), parts=(Part(("digits-0",), master, 1), Part(("digits-1",), large, 1)))
    state, pods = cluster(node("large", cpu="4"), node("small", cpu="1")), (own(0, "large"), own(1, ""))
    diagnosis = diagnose(partly(state, pods, demand=wanted))
    assert diagnosis.first_line == (
        "digits runs with 1 of 2 pods; digits-1 waits because the cluster is too small for the rest of its pods, where "
        "the others are, even when nothing else runs"
    )


@pytest.mark.parametrize(("pods", "codes"), [
    ((own(0, "a"), own(1, "a"), own(2, "")), ["short"]),
    ((own(0, ""), own(1, ""), own(2, "")), []),
    ((own(0, "a"), own(1, "a")), ["quota", "short"]),
], ids=["two run", "all wait", "the third does not exist"])  # fmt: skip
def test_a_quota_keeps_only_pods_out_that_do_not_exist(pods: tuple[Json, ...], codes: list[str]) -> None:
    """It was lowered since, and blamed for pods that it had let in."""
    used = {**QUOTA, "status": {"used": {"pods": str(len(pods))}}}
    others = (OTHER,) if codes else ()
    now = partly(cluster(NODE_A, NODE_B, pods=others, quotas=(used,)), pods, held={"pods": len(pods) * 1000})
    assert [cause.code for cause in diagnose(now).needed] == codes


def test_a_queue_that_is_closed_keeps_a_gang_that_runs_from_growing() -> None:
    """Volcano asks a queue for each pod (AllocatableFn in pkg/scheduler/plugins/capacity)."""
    line = diagnose(partly(cluster(NODE_A, NODE_B, queues=CLOSED), **GANG)).first_line
    assert line == "digits runs with 2 of 3 pods; digits-worker-1 waits because its queue default is Closed"


@pytest.mark.parametrize(("cap", "expected"), [("3", None), ("2", "queue-over")])
def test_the_cap_of_a_queue_counts_the_pods_that_run_once_and_nobody_ahead_in_line(
    cap: str, expected: str | None
) -> None:
    ahead = group("ahead", "default", phase="Inqueue")
    ahead["spec"]["minResources"] = {"cpu": "3"}
    queues = (queue("root"), queue("default", capability={"cpu": cap}))
    pods = tuple(
        {**one, "metadata": {**one["metadata"], "annotations": {"scheduling.k8s.io/group-name": "digits-1"}}}
        for one in (own(0, "a"), own(1, "a"), own(2, ""))
    )
    cause = diagnose(partly(cluster(NODE_A, NODE_B, queues=queues, groups=(ahead,)), pods, **GANG)).cause
    assert (cause.code if cause else None) == expected


def test_the_rest_that_has_a_place_would_start() -> None:
    line = diagnose(partly(cluster(NODE_A, NODE_B), age_s=5.0)).first_line
    assert line == (
        "digits: nothing is wrong: it runs with 2 of 3 pods; digits-2 would start now, after 5 s of waiting"
    )
    begun = {**own(0, "a"), "status": {"phase": "Pending"}}
    line = diagnose(partly(cluster(NODE_A, NODE_B, pods=(OTHER,)), (begun, own(1, ""), own(2, "")))).first_line
    assert line.startswith("digits has nodes for 1 of 3 pods; the rest waits because 1 of its 3 pods has no place")


def test_the_pod_in_the_place_of_one_that_failed_is_what_waits() -> None:
    """An Indexed Job keeps the failed pod; both have the same generateName."""
    failed = {**own(2, "a", "digits-{}-old"), "status": {"phase": "Failed"}}
    again = own(2, "", "digits-{}-new")
    for one in (failed, again):
        one["metadata"]["generateName"] = "digits-2-"
    state = cluster(NODE_A, NODE_B, pods=(OTHER,))
    line = diagnose(partly(state, (own(0, "a"), own(1, "a"), failed, again))).first_line
    assert line == f"digits has nodes for 2 of 3 pods; digits-2 waits because {SHORT}"
