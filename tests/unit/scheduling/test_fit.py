"""fit: yes with a placement that holds, no with the change that would do, cannot tell with what is missing."""

from __future__ import annotations

import dataclasses
import itertools
import random
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.overview import queue_rows
from gangplank.scheduling.amounts import requests
from gangplank.scheduling.demand import changed, edited
from gangplank.scheduling.fit import Verdict, fit
from gangplank.scheduling.snapshot import EVERY_ADDRESS, Pods
from gangplank.scheduling.why import Situation, diagnose
from tests.unit.scheduling.states import CAPACITY, cluster, group, job, node, pod, queue

if TYPE_CHECKING:
    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.snapshot import Snapshot
    from tests.unit.scheduling.states import Json

GPU_TAINT = {"key": "flyte/gpu", "value": "dedicated", "effect": "NoSchedule"}


def codes(asked: Demand, state: Snapshot) -> list[str]:
    answer = fit(asked, state)
    assert (answer.verdict is Verdict.NO) == bool(answer.causes)
    return [cause.code for cause in answer.causes]


def starts_without_it(asked: Demand, state: Snapshot) -> bool:
    """Whether the job fits once its first cause is taken away."""
    removal = fit(asked, state).causes[0].removal
    assert removal is not None
    return fit(*removal(asked, state)).verdict is Verdict.YES


@pytest.mark.parametrize("backend", ["volcano", "pytorchjob", "trainjob", "indexed"])
def test_a_job_that_fits_has_a_node_for_every_pod(backend: str) -> None:
    answer = fit(job(backend), cluster())
    assert answer.verdict is Verdict.YES
    assert len(answer.nodes) == 3
    assert set(answer.nodes.values()) <= {"a", "b"}


def limits(*rows: Json) -> tuple[Json, ...]:
    """A LimitRange of the namespace."""
    return ({"metadata": {"name": "defaults"}, "spec": {"limits": [*rows]}},)


OF_FOUR = {"type": "Container", "default": {"cpu": "4"}}
HARD, USED = {"hard": {"requests.cpu": "4"}}, {"used": {"requests.cpu": "2"}}
QUOTA = {"metadata": {"name": "team"}, "spec": HARD, "status": USED}
MANY = {"accessModes": ["ReadWriteMany"]}
CLAIM: dict[str, Any] = {"metadata": {"name": "data", "namespace": "vision"}, "spec": MANY}
MOUNT = [{"claim": "data", "mount": "/data", "on": "all", "access": "ReadWriteMany"}]
PINNED = {"required": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}]}}  # fmt: skip
BOUND = {**CLAIM, "spec": {**CLAIM["spec"], "volumeName": "v"}, "status": {"phase": "Bound"}}
VOLUME = {"metadata": {"name": "v"}, "spec": {"nodeAffinity": PINNED}}
DOWN = {**node("b"), "status": {**node("b")["status"], "conditions": [{"type": "Ready", "status": "Unknown"}]}}
SILENT = {**DOWN, "metadata": node("a")["metadata"]}
ON_MASTER = [{"claim": "data", "mount": "/data", "on": "master"}]
CORDONED = {**node("b"), "spec": {"unschedulable": True}}
SMALL = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
GUARANTEED = (queue("root"), queue("default"), queue("x", guarantee={"resource": {"cpu": "6"}}))
GPUS: dict[str, Any] = {"nvidia.com_gpu": "4"}
FLAT = dataclasses.replace(CAPACITY, hierarchy=False)
NONE = {"cpu": "0", "memory": "0", "deviceclass/gpu.nvidia.com": "0", "nvidia.com/gpu": "0"}
WITHOUT_GPUS = queue("default", capability=NONE)
BARE_QUEUE = {"metadata": {"name": "bare"}}  # the API server stores it so
CASES: dict[str, tuple[dict[str, Any], Snapshot, str]] = {
    "quota": ({}, cluster(quotas=(QUOTA,)), "quota"),
    "LimitRange's default below the request": (
        {},
        cluster(limits=limits({"type": "Container", "default": {"cpu": "500m"}})),
        "limit-range",
    ),
    "LimitRange's most of a pod": (
        {},
        cluster(limits=limits(OF_FOUR, {"type": "Pod", "max": {"cpu": "3"}})),
        "limit-range",
    ),
    "LimitRange's least of a pod": ({}, cluster(limits=limits({"type": "Pod", "min": {"cpu": "2"}})), "limit-range"),
    "LimitRange's ratio of a pod": (
        {},
        cluster(limits=limits(OF_FOUR, {"type": "Pod", "maxLimitRequestRatio": {"cpu": "3"}})),
        "limit-range",
    ),
    "LimitRange's ratio of a container": (
        {},
        cluster(limits=limits({**OF_FOUR, "maxLimitRequestRatio": {"cpu": "2500m"}})),
        "limit-range",
    ),
    "LimitRange's ratio of a container without a limit": (
        {},
        cluster(limits=limits({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}})),
        "limit-range",
    ),
    "queue missing": ({"queue": "visoin"}, cluster(), "queue-missing"),
    "queue closed": ({}, cluster(queues=(queue("root"), queue("default", state="Closed"))), "queue-closed"),
    "queue with queues below": (
        {},
        cluster(queues=(queue("root"), queue("default"), queue("x", "default"))),
        "queue-inner",
    ),
    "queue's cap": ({}, cluster(queues=(queue("root"), queue("default", capability={"cpu": "2"}))), "queue-over"),
    "queue's cap, in a flat cluster": (
        {},
        cluster(queues=(queue("root"), queue("default", capability={"cpu": "2"}), BARE_QUEUE), settings=FLAT),
        "queue-over",
    ),
    "queue's cap of no devices": (
        {"resources": {"cpu": "1", "gpus": 1}},
        cluster(node("a", **GPUS), queues=(queue("root"), WITHOUT_GPUS)),
        "queue-over",
    ),
    "queue's cap of no devices, in a flat cluster": (
        {"resources": {"cpu": "1", "gpus": 1}},
        cluster(node("a", **GPUS), queues=(queue("root"), WITHOUT_GPUS), settings=FLAT),
        "queue-over",
    ),
    "cap of the queue above": (
        {"queue": "low"},
        cluster(queues=(queue("root"), queue("default", capability={"cpu": "2"}), queue("low", "default"))),
        "queue-over",
    ),
    "guarantees of other queues": (
        {},
        cluster(queues=GUARANTEED, settings=FLAT),
        "queue-over",
    ),
    "others hold the nodes": ({}, cluster(pods=(pod("x", "a", cpu="4"), pod("y", "b", cpu="2"))), "short"),
    "cluster too small": ({"workers": 20}, cluster(), "cluster-too-small"),
    "pod too large": ({"resources": {"cpu": "5"}}, cluster(), "pod-too-large"),
    "no GPU": ({"resources": {"cpu": "1", "gpus": 1}}, cluster(), "no-device"),
    "GPU node's taint": (
        {"resources": {"cpu": "1", "gpus": 1}, "gpu_tolerations": []},
        cluster(node("a"), node("b", taints=(GPU_TAINT,), **GPUS)),
        "taint",
    ),
    "selector": ({"node_selector": {"disk": "ssd"}}, cluster(), "selector"),
    "cordoned": ({"resources": {"cpu": "2"}}, cluster(node("a"), CORDONED), "node-cordoned"),
    "not ready": ({"resources": {"cpu": "2"}}, cluster(node("a"), DOWN), "node-not-ready"),
    "claim missing": ({"volumes": MOUNT}, cluster(), "volume-missing"),
    "claim being deleted": (
        {"volumes": MOUNT},
        cluster(claims=({**BOUND, "metadata": {**CLAIM["metadata"], "deletionTimestamp": "t"}},)),
        "volume-terminating",
    ),
    "claim without a class": (
        {"volumes": MOUNT},
        cluster(claims=({**CLAIM, "status": {"phase": "Pending"}},)),
        "volume-unbound",
    ),
    "volume on a node that is too small": (
        {"volumes": MOUNT, "resources": {"cpu": "2"}},
        cluster(claims=(BOUND,), volumes=(VOLUME,)),
        "volume-node",
    ),
    "D4: the volume's node does not answer": (
        {"volumes": ON_MASTER},
        cluster(SILENT, node("b"), claims=(BOUND,), volumes=(VOLUME,)),
        "volume-node-lost",
    ),
    "D4: the volume's node does not answer, and all pods are pinned to it": (
        {"backend": "indexed", "volumes": [{**ON_MASTER[0], "on": "all"}],
         "node_selector": {"kubernetes.io/hostname": "a"}},
        cluster(SILENT, node("b"), claims=(BOUND,), volumes=(VOLUME,)),
        "volume-node-lost",
    ),
    "D4: the volume's node is gone": (
        {"volumes": ON_MASTER},
        cluster(node("b"), claims=(BOUND,), volumes=(VOLUME,)),
        "volume-node-lost",
    ),
    "D4: the volume's node is gone, and others hold the rest": (
        {"volumes": ON_MASTER},
        cluster(node("b"), pods=(pod("x", "b", cpu="3"),), claims=(BOUND,), volumes=(VOLUME,)),
        "volume-node-lost",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_cause_without_which_the_job_starts(name: str) -> None:
    change, state, code = CASES[name]
    asked = job(**change)
    assert codes(asked, state) == [code]
    assert starts_without_it(asked, state)


@pytest.mark.parametrize("rows", [
    [OF_FOUR, {"type": "Pod", "max": {"cpu": "4"}, "min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "4"}}],
    [{**OF_FOUR, "maxLimitRequestRatio": {"cpu": "4"}}],
    [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}],
])  # fmt: skip
def test_a_job_within_all_rows_of_a_limit_range_starts(rows: list[Json]) -> None:
    assert fit(job(), cluster(limits=limits(*rows))).verdict is Verdict.YES


FULL = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
LARGE = {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "9", "limits.memory": "9Gi", "pods": "9"}}}


@pytest.mark.parametrize(("where", "sidecar", "of_pod", "expected"), [
    ("containers", FULL, {}, ""),
    ("containers", {}, {}, "limits.memory, and its container side has no limit of memory"),
    ("initContainers", {"limits": FULL["limits"]}, {}, ""),
    ("initContainers", None, {}, "limits.memory, and its container side has no limit of memory"),
    ("initContainers", {"limits": {"memory": "1Gi"}}, {}, "requests.cpu, and its container side has no request of cpu"),
    ("containers", {}, FULL, ""),
])  # fmt: skip
def test_a_quota_demands_amounts_of_every_container(
    where: str, sidecar: Json | None, of_pod: Json, expected: str
) -> None:
    asked = job("indexed")
    (main,) = asked.parts[0].spec["containers"]
    both = {"containers": [{**main, "resources": FULL}]}
    both[where] = [*both.get(where, ()), {"name": "side", "image": "i", "resources": sidecar}]
    texts = [cause.text for cause in fit(edited(asked, **both, resources=of_pod), cluster(quotas=(LARGE,))).causes]
    assert texts == ([f"quota team counts {expected}"] if expected else [])


@pytest.mark.parametrize(("of_pod", "of_container", "starts"), [
    ({"limits": {"cpu": "9"}}, {}, False),
    ({"limits": {"cpu": "9"}, "requests": {"cpu": "1"}}, {}, True),
    ({"limits": {"cpu": "9"}}, {"requests": {"cpu": "1"}}, True),
    ({"limits": {"cpu": "9"}}, {"limits": {"cpu": "8"}}, False),
    ({"limits": {"memory": "1Gi"}}, {"requests": {"cpu": "1"}}, True),
])  # fmt: skip
def test_limits_of_a_whole_pod_become_its_requests_unless_its_containers_have_some(
    of_pod: Json, of_container: Json, starts: bool
) -> None:
    asked = job("indexed")
    (main,) = asked.parts[0].spec["containers"]
    asked = edited(asked, containers=[{**main, "resources": of_container}], resources=of_pod)
    assert codes(asked, cluster()) == ([] if starts else ["pod-too-large"])


def test_a_limit_range_does_not_raise_the_requests_of_a_whole_pod() -> None:
    asked = job("indexed")
    (main,) = asked.parts[0].spec["containers"]
    asked = edited(asked, containers=[{**main, "resources": {}}], resources={"limits": {"cpu": "1"}})
    assert codes(asked, cluster(limits=limits({"type": "Container", "defaultRequest": {"cpu": "9"}}))) == []


def test_a_limit_range_without_rows_says_nothing() -> None:
    assert fit(job(), cluster(limits=({"metadata": {"name": "empty"}, "spec": {"limits": None}},))).causes == ()


@pytest.mark.parametrize(("state", "order"), [
    (cluster(node("a", taints=(GPU_TAINT,)), quotas=(QUOTA,)), ["quota", "taint", "volume-missing"]),
    (cluster(pods=(pod("x", "a", cpu="4"), pod("y", "b", cpu="2"))), ["volume-missing", "short"]),
    (cluster(queues=(queue("root"), queue("default", state="Closed"))), ["queue-closed", "volume-missing"]),
])  # fmt: skip
def test_causes_come_from_the_outside_in_and_waiting_last(state: Snapshot, order: list[str]) -> None:
    assert codes(job(volumes=MOUNT), state) == order


def test_in_a_tree_of_queues_a_guarantee_is_no_limit_of_others() -> None:
    """As Volcano 1.15: the root of the tree takes more than the cluster has."""
    assert fit(job(), cluster(queues=GUARANTEED)).verdict is Verdict.YES


@pytest.mark.parametrize(("nodes", "state"), [
    ((SILENT, node("b")), "that does not answer"), ((node("b"),), "the cluster has no such node"),
])  # fmt: skip
def test_d4_a_lost_volume_is_named_with_its_node_and_what_to_do(nodes: tuple[Json, ...], state: str) -> None:
    asked = job(volumes=ON_MASTER)
    (cause,) = fit(asked, cluster(*nodes, claims=(BOUND,), volumes=(VOLUME,))).causes
    assert cause.text == f"its volume claim data is on a alone, and {state}"
    assert cause.evidence == ("the files on that claim are on no other node: persistentvolume v",)
    assert cause.fix.startswith("bring a back; if it is off for good, its files are lost")


def test_d4_a_volume_that_another_node_has_too_is_not_lost() -> None:
    both = {"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "c"]}]}]}}  # fmt: skip
    small = cluster(SILENT, node("b"), node("c", cpu="0"), claims=(BOUND,),
                    volumes=({**VOLUME, "spec": {"nodeAffinity": both}},))  # fmt: skip
    assert codes(job(volumes=ON_MASTER), small) == ["node-not-ready"]


def test_d4_a_disk_of_a_zone_is_not_lost_with_the_nodes_of_that_zone() -> None:
    zone = {"topology.kubernetes.io/zone": "z"}
    rule = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}
    disk = {**VOLUME, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}}}
    silent = [{**DOWN, "metadata": node(name, labels=zone)["metadata"]} for name in "ac"]
    (cause,) = fit(job(volumes=ON_MASTER), cluster(*silent, node("b"), claims=(BOUND,), volumes=(disk,))).causes
    assert cause.text == "its volume claim data is on a, c alone, and they do not answer"
    assert cause.evidence == ("no other node can mount that claim: persistentvolume v",)
    assert cause.fix == "bring one of them back, or add a node with the same labels"


def test_nobody_waits_for_a_rule_when_others_hold_what_is_allowed() -> None:
    tainted = node("c", taints=(GPU_TAINT,))
    state = cluster(node("a"), tainted, pods=(pod("x", "a", cpu="3"),))
    (cause,) = fit(job(), state).causes
    assert (cause.code, cause.passing) == ("short", True)
    assert "other pods hold 3 cpu" in cause.evidence[1]


def test_others_appear_as_sums_only() -> None:
    state = cluster(pods=(pod("secret-job", "a", cpu="4"), pod("secret-too", "b", cpu="3")))
    (cause,) = fit(job(), state).causes
    assert "secret" not in repr((cause.text, cause.evidence, cause.fix))


def test_a_quota_counts_the_jobs_own_pods_once() -> None:
    assert codes(job(), cluster(quotas=(QUOTA,))) == ["quota"]
    assert fit(job(), cluster(quotas=(QUOTA,)), {"requests.cpu": 1000}).verdict is Verdict.YES


@pytest.mark.parametrize("settings", [CAPACITY, FLAT])
def test_a_queue_with_a_cap_of_no_cores_and_no_memory_has_no_cap_of_them(settings: Any) -> None:
    """As Volcano has it: only of other resources does a zero bar all."""
    queues = (queue("root"), WITHOUT_GPUS)
    assert fit(job(), cluster(queues=queues, settings=settings)).verdict is Verdict.YES


def test_queues_and_gangs_without_a_spec_are_as_empty_ones() -> None:
    gang = {"metadata": {"name": "x", "namespace": "other", "uid": "x"}}
    queues, preempting = (
        (queue("root"), queue("default"), BARE_QUEUE),
        dataclasses.replace(CAPACITY, actions=("preempt",)),
    )
    pods = (pod("x", "a", cpu="4", group="x"), pod("y", "b", cpu="4"))
    state = cluster(queues=queues, groups=(gang,), pods=pods, settings=preempting)
    assert [cause.code for cause in fit(job(), state).causes] == ["short"]
    rows = {row["queue"]: row for row in queue_rows(dataclasses.replace(state, pods=Pods()))}
    assert rows["default"]["gangs waiting"] == 1
    assert rows["bare"]["gangs waiting"] == 0


def test_what_waits_ahead_in_the_queue_has_its_place() -> None:
    queues = (queue("root"), queue("default", capability={"cpu": "5"}))
    ahead = {**group("x", "default"), "status": {"phase": "Inqueue"}}
    ahead["spec"] = {**ahead["spec"], "minResources": {"cpu": "3"}}
    assert codes(job(), cluster(queues=queues, groups=(ahead,))) == ["queue-over"]
    assert fit(job(), cluster(queues=queues)).verdict is Verdict.YES


def test_a_node_in_trouble_is_not_helped_by_a_toleration() -> None:
    """Its kubelet refuses all pods while its disk is full."""
    full, kept = ({"key": key, "effect": "NoSchedule"} for key in ("node.kubernetes.io/disk-pressure", "flyte/gpu"))
    (cause,) = fit(job(), cluster(node("a", taints=(full,)), node("b", taints=(full,)))).causes
    assert (cause.code, "toleration" in cause.fix, "describe node" in cause.fix) == ("taint", False, True)
    (cause,) = fit(job(), cluster(node("a", taints=(kept,)), node("b", taints=(kept,)))).causes
    assert cause.fix == "add a toleration of flyte/gpu:NoSchedule to the job"


def test_no_scheduler_places_a_pod_that_names_its_node() -> None:
    """They had a place on node a."""
    answer = fit(edited(job("indexed"), nodeName="b"), cluster())
    said = "whether b takes its pods, which name it (nodeName): no scheduler looks at them"
    assert (answer.verdict, answer.nodes, answer.missing) == (Verdict.CANNOT_TELL, {}, (said,))


LINED = dataclasses.replace(CAPACITY, line=Fraction(6, 5))


def test_who_waits_in_line_keeps_out_what_would_go_beyond_its_limit() -> None:
    """The line may ask for 1.2 x 8 cores: 5 and 3 of the job are too many beside 2 of pods that run."""
    ahead = group("x", "default", phase="Inqueue")
    ahead["spec"]["minResources"] = {"cpu": "5"}
    busy = (pod("y", "a", cpu="2"),)
    state = cluster(groups=(ahead,), pods=busy, settings=LINED)
    (cause,) = fit(job(), state).causes
    assert (cause.code, cause.passing) == ("queue-line", True)
    assert cause.evidence == (
        "7600m cpu is left of 1.2 times the cluster's 8 cpu",
        "gangs that are ahead in line ask for 5 cpu, and the job needs 3 cpu",
    )
    assert starts_without_it(job(), state)
    free = [
        cluster(groups=(ahead,), settings=LINED),
        cluster(groups=(ahead,), pods=busy),
        cluster(groups=({**ahead, "status": {"phase": "Pending"}},), pods=busy, settings=LINED),
    ]
    assert [fit(job(), one).verdict for one in free] == [Verdict.YES] * 3
    assert fit(job("indexed"), state).verdict is Verdict.YES, "it has no gang"
    live = Situation("digits", job(), state, age_s=300.0, group={"status": {"phase": "Pending"}})
    assert diagnose(live).cause == cause, "it was the scheduler that does not answer"
    in_line = dataclasses.replace(live, group={"status": {"phase": "Inqueue"}})
    assert diagnose(in_line).cause is None


@pytest.mark.parametrize(("weight", "verdict"), [(1, Verdict.CANNOT_TELL), (4, Verdict.YES)])
def test_what_a_weight_leaves_a_queue_is_not_known_where_more_is_asked_for_than_there_is(
    weight: Any, verdict: Verdict
) -> None:
    """Of 8 cores, a half is below the 5 that the queue would have with the job, and four fifths are above."""
    queues = (queue("root"), queue("default", weight=weight), queue("other"))
    groups = (group("mine", "default"), group("x", "other"))
    waits = pod("x", "", cpu="6", group="x")
    own = pod("mine", "a", cpu="2", group="mine")
    settings = dataclasses.replace(FLAT, plugins=("priority", "gang", "proportion"))
    state = cluster(queues=queues, groups=groups, pods=(waits, own), settings=settings)
    answer = fit(job(), state)
    said = "what the weight of its queue default leaves it: more cpu is asked for than the cluster has"
    assert (answer.verdict, answer.missing) == (verdict, () if verdict is Verdict.YES else (said,))
    assert fit(job(), dataclasses.replace(state, settings=FLAT)).verdict is Verdict.YES
    assert fit(job(), dataclasses.replace(state, pods=Pods((own,)))).verdict is Verdict.YES


def test_cannot_tell_without_the_pods_of_others_but_knows_what_can_never_fit() -> None:
    unread = {"pods of all namespaces": "you may not list them"}
    assert fit(job(), cluster(unread=unread)).verdict is Verdict.CANNOT_TELL
    assert fit(job(), cluster(unread=unread)).missing == ("pods of all namespaces (you may not list them)",)
    assert codes(job(resources={"cpu": "5"}), cluster(unread=unread)) == ["pod-too-large"]


def test_a_queue_above_others_holds_what_it_notes_and_not_theirs_again() -> None:
    """Who may not list the pods of all namespaces was refused: the queue system's sums have those below in them."""
    inner, own, other = queue("org", capability={"cpu": "8"}), queue("default", "org"), queue("vision", "org")
    for one in (inner, other):
        one["status"]["allocated"] = {"cpu": "4"}
    unread = {"pods of all namespaces": "you may not list them"}
    state = cluster(queues=(queue("root"), inner, own, other), unread=unread)
    assert fit(job(), state).causes == ()
    other["status"]["allocated"] = {"cpu": "6"}
    assert codes(job(), state) == ["queue-over"]


def test_what_there_is_is_rounded_down_so_that_advice_can_be_followed() -> None:
    """30.886 GiB was called 30.89Gi, as was what is too much for it."""
    small = node("a")
    small["status"]["allocatable"]["memory"] = "32386776Ki"
    (cause,) = fit(job(resources={"cpu": "1", "memory": "30.89Gi"}), cluster(small)).causes
    assert "a pod asks for 30.89Gi memory, the largest has 30.88Gi memory" in cause.text
    assert "ask for at most 30.88Gi memory a pod" in cause.fix
    assert codes(job(resources={"cpu": "1", "memory": "30.88Gi"}), cluster(small)) != ["pod-too-large"]


@pytest.mark.parametrize(("fields", "evidence"), [
    ({"resources": {"cpu": "5"}}, "1 node may be used"), ({}, "1 node may be used, with room for 2 pods;")])
def test_evidence_counts_one_node(fields: Json, evidence: str) -> None:
    (cause,) = fit(job(**fields), cluster(node("a", cpu="2"))).causes
    assert cause.evidence[0].startswith(evidence)


def test_own_pods_that_hold_the_nodes_are_why_also_where_those_of_others_may_not_be_read() -> None:
    unread = {"pods of all namespaces": "you may not list them"}
    held = (pod("x", "a", cpu="4"), pod("y", "b", cpu="4"))
    assert [cause.code for cause in fit(job(), cluster(pods=held, unread=unread)).causes] == ["short"]


def local(modes: tuple[str, ...] = ("ReadWriteMany",), size: str = "1Gi", kept_for: str = "", **status: Any) -> Json:
    """A volume of a class that makes none, perhaps kept for a claim."""
    spec: Json = {"storageClassName": "local", "accessModes": [*modes], "capacity": {"storage": size}}
    spec |= {"claimRef": {**CLAIM["metadata"], "name": kept_for}} if kept_for else {}
    return {"metadata": {"name": "v"}, "spec": spec, "status": {"phase": "Available", **status}}


@pytest.mark.parametrize(("volumes", "verdict"), [
    ((), Verdict.NO),
    ((local(phase="Bound"),), Verdict.NO),
    ((local(phase="Released"),), Verdict.NO),
    ((local(("ReadWriteOnce",)),), Verdict.NO),
    ((local(size="1Mi"),), Verdict.NO),
    ((local(kept_for="other"),), Verdict.NO),
    ((local(kept_for="data"),), Verdict.CANNOT_TELL),
    ((local(),), Verdict.CANNOT_TELL),  # on which node
])  # fmt: skip
def test_a_claim_whose_class_makes_no_volumes_needs_a_free_one(volumes: tuple[Json, ...], verdict: Verdict) -> None:
    """Such a claim is bound once its pod has a node: the job waited forever, and was said to start now."""
    classes = {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
               "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    spec = {**MANY, "storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}
    claim = {**CLAIM, "spec": spec, "status": {"phase": "Pending"}}
    asked, state = job(volumes=MOUNT), cluster(claims=(claim,), classes=(classes,), volumes=volumes)
    answer = fit(asked, state)
    assert answer.verdict is verdict
    if verdict is Verdict.NO:
        (cause,) = answer.causes
        assert cause.code == "volume-unbound"
        assert cause.evidence == ("no free volume of local has 1Gi and ReadWriteMany",)
        assert answer.missing == ()
        assert starts_without_it(asked, state)
    else:
        assert answer.missing == ("on which node volume claim data gets one of the free volumes of local",)


@pytest.mark.parametrize(("field", "kind", "of_state"), [
    ("priorityClassName", "PriorityClass", "priorities"), ("runtimeClassName", "RuntimeClass", "runtimes"),
])  # fmt: skip
def test_a_class_that_does_not_exist_keeps_a_job_out(field: str, kind: str, of_state: str) -> None:
    """The API server refuses its pods."""
    asked = edited(job("indexed"), **{field: "mine"})
    others: dict[str, Any] = {of_state: ({"metadata": {"name": "other"}, "value": 1},)}
    (cause,) = fit(asked, cluster(**others)).causes
    assert (cause.code, cause.text) == ("class-missing", f"its {kind} mine does not exist")
    assert cause.evidence == ("the cluster has other",)
    assert starts_without_it(asked, cluster(**others))
    assert fit(asked, cluster(unread={kind.lower() + "es": "no right"})).causes == ()


def test_the_classes_of_the_cluster_itself_need_not_be_listed() -> None:
    assert codes(edited(job("indexed"), priorityClassName="system-node-critical"), cluster()) == []


@pytest.mark.parametrize(("default", "expected"), [(True, ["quota"]), (False, [])])
def test_a_quota_of_the_default_priority_class_counts_pods_that_name_none(default: bool, expected: list[str]) -> None:
    usual = {"metadata": {"name": "usual"}, "value": 1, "globalDefault": default}
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["usual"]}
    hard = {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [scope]}}
    state = cluster(priorities=(usual,), quotas=({"metadata": {"name": "team"}, "spec": hard},))
    assert codes(job("indexed"), state) == expected


@pytest.mark.parametrize(("resources", "best_effort"), [
    ({}, True), ({"limits": {"nvidia.com/gpu": "0"}}, True), ({"requests": {"cpu": "0"}}, True),
    ({"requests": {"cpu": "1m"}}, False), ({"limits": {"memory": "1Mi"}}, False),
])  # fmt: skip
def test_a_quota_counts_pods_by_what_they_ask_of_cpu_and_memory(resources: Json, *, best_effort: bool) -> None:
    asked = edited(job("indexed"), containers=[{"name": "c", "image": "i", "resources": resources}])
    for scope, counts in (("BestEffort", best_effort), ("NotBestEffort", not best_effort)):
        spec = {"hard": {"pods": "1"}, "scopes": [scope]}
        state = cluster(quotas=({"metadata": {"name": "team"}, "spec": spec},))
        assert codes(asked, state) == (["quota"] if counts else [])


ZONE, OLD = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(("labels", "zone", "fits"), [
    ({ZONE: "east"}, {ZONE: "east"}, True), ({ZONE: "east"}, {ZONE: "west"}, False), ({ZONE: "east"}, {}, True),
    ({ZONE: "east__west"}, {ZONE: "west"}, True), ({OLD: "east"}, {ZONE: "west"}, False),
    ({OLD: "east"}, {ZONE: "east"}, True), ({"topology.kubernetes.io/region": "r"}, {ZONE: "east"}, False),
    ({"disk": "fast"}, {ZONE: "east"}, True),
    ({OLD: "east"}, {OLD: "east"}, True), ({OLD: "east"}, {OLD: "west"}, False), ({ZONE: "east"}, {OLD: "east"}, False),
    ({OLD: "east"}, {OLD: "west", ZONE: "east"}, False), ({OLD: "east", ZONE: "east"}, {OLD: "east"}, False),
])  # fmt: skip
@pytest.mark.parametrize("where", ["a", "b"])
def test_a_volume_with_labels_of_a_zone_is_mounted_on_its_nodes_alone(
    labels: Json, zone: Json, where: str, fits: bool
) -> None:
    """As Kubernetes' plugin VolumeZone, beside the volume's node affinity if it has one; that is for node a."""
    pinned = {"nodeAffinity": PINNED} if where == "b" else {}
    volume = {"metadata": {"name": "v", "labels": labels}, "spec": pinned}
    one = node(where)
    one["metadata"]["labels"] |= zone
    state = cluster(one, claims=(BOUND,), volumes=(volume,))
    assert (fit(job(volumes=MOUNT), state).verdict is Verdict.YES) is (fits and where == "a")


@pytest.mark.parametrize(("uid", "expected"), [("old", ["volume-unbound"]), ("new", []), (None, [])])
def test_the_volume_of_a_deleted_claim_is_not_that_of_a_new_one_of_its_name(
    uid: str | None, expected: list[str]
) -> None:
    classes = {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
               "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    spec = {**MANY, "storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {**CLAIM["metadata"], "uid": "new"}, "spec": spec, "status": {"phase": "Pending"}}
    volume = local(kept_for="data", phase="Released" if expected else "Available")
    volume["spec"]["claimRef"] |= {"uid": uid} if uid else {}
    state = cluster(claims=(claim,), classes=(classes,), volumes=(volume,))
    assert [cause.code for cause in fit(job(volumes=MOUNT), state).causes] == expected


@pytest.mark.parametrize(("volumes", "expected"), [
    ((local(),), []), ((local(kept_for="data"),), []), ((local(kept_for="other"),), ["volume-unbound"]),
    ((local(size="1Mi"),), ["volume-unbound"]), ((local(phase="Released"),), ["volume-unbound"]),
    ((), ["volume-unbound"]),
])  # fmt: skip
def test_a_claim_that_names_a_free_volume_is_bound_within_seconds(
    volumes: tuple[Json, ...], expected: list[str]
) -> None:
    """The controller of volumes takes up to 15 s."""
    spec = {**MANY, "storageClassName": "", "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}}
    claim = {**CLAIM, "spec": spec, "status": {"phase": "Pending"}}
    for volume in volumes:
        del volume["spec"]["storageClassName"]  # as the API server has it
    assert codes(job(volumes=MOUNT), cluster(claims=(claim,), volumes=volumes)) == expected


@pytest.mark.parametrize("unread", [{}, {"storageclasses": "no right"}])
@pytest.mark.parametrize("mode", ["Immediate", "WaitForFirstConsumer"])
def test_a_lost_claim_is_never_mounted(mode: str, unread: dict[str, str]) -> None:
    classes = {"metadata": {"name": "local"}, "provisioner": "p", "volumeBindingMode": mode}
    claim = {**BOUND, "spec": {**BOUND["spec"], "storageClassName": "local"}, "status": {"phase": "Lost"}}
    state = cluster(claims=(claim,), classes=() if unread else (classes,), unread=unread)
    answer = fit(job(volumes=MOUNT), state)
    assert answer.verdict is Verdict.NO
    assert [cause.text for cause in answer.causes] == ["its volume claim data is Lost"]
    assert answer.causes[0].evidence == ("data: its volume v does not exist, or is that of another claim",)
    assert answer.causes[0].fix == "delete the claim and create it again, or name another"


@pytest.mark.parametrize(("on", "phase", "expected"), [
    ("all", "Bound", ["volume-one-pod"]), ("all", "Pending", ["volume-one-pod"]), ("master", "Bound", []),
])  # fmt: skip
def test_a_claim_for_one_pod_keeps_several_of_a_job_out(on: str, phase: str, expected: list[str]) -> None:
    claim = {**BOUND, "spec": {"accessModes": ["ReadWriteOncePod"]}, "status": {"phase": phase}}
    asked, state = job(volumes=[{**MOUNT[0], "on": "master"}]), cluster(claims=(claim,))
    if on == "all":
        asked = edited(asked, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    assert codes(asked, state) == expected
    if expected:
        assert starts_without_it(asked, state)
        assert (
            fit(asked, state).causes[0].text == "its volume claim data is ReadWriteOncePod, and 3 of its pods mount it"
        )


SANDBOX = {"key": "sandbox", "value": "gvisor", "effect": "NoSchedule"}
SANDBOXES = (node("a"), node("b", labels={"sandbox": "gvisor"}, taints=(SANDBOX,)))
THERE = {"nodeSelector": {"sandbox": "gvisor"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]}


@pytest.mark.parametrize(("runtime", "expected", "places"), [
    ({}, [], {"a"}),
    ({"overhead": {"podFixed": {"cpu": "250m"}}}, ["taint"], set()),  # three pods fit on a, instead of four
    ({"scheduling": {"nodeSelector": {"sandbox": "runc"}}}, ["selector"], set()),
    ({"scheduling": THERE}, [], {"b"}),
])  # fmt: skip
def test_what_a_runtime_class_adds_to_pods_counts(runtime: Json, expected: list[str], places: set[str]) -> None:
    classes = tuple({"metadata": {"name": name}, **more} for name, more in (("own", runtime), ("other", THERE)))
    asked, state = edited(job(workers=3), runtimeClassName="own"), cluster(*SANDBOXES, runtimes=classes)
    assert codes(asked, state) == expected
    assert {*fit(asked, state).nodes.values()} == places
    assert diagnose(Situation("digits", asked, state, live=False)).proven == ("taint" in expected)


def test_cannot_tell_what_a_runtime_class_adds_that_may_not_be_read() -> None:
    state = cluster(unread={"runtimeclasses": "no right"})
    answer = fit(edited(job(), runtimeClassName="own"), state)
    assert (answer.verdict, answer.missing) == (Verdict.CANNOT_TELL, ("runtimeclasses (no right)",))
    assert fit(job(), state).verdict is Verdict.YES


@pytest.mark.parametrize(("toleration", "verdict"), [
    ({"operator": "Exists"}, Verdict.YES),
    ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}, Verdict.YES),
    ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"}, Verdict.NO),
    ({"key": "dedicated", "operator": "Exists"}, Verdict.NO),
])  # fmt: skip
def test_a_job_that_tolerates_cordons_goes_to_cordoned_nodes(toleration: Json, verdict: Verdict) -> None:
    assert fit(job(tolerations=[toleration]), cluster(CORDONED)).verdict is verdict


LATE = {**CLAIM, "spec": {**CLAIM["spec"], "storageClassName": "late"}, "status": {"phase": "Pending"}}


@pytest.mark.parametrize(("claim", "volumes", "unread", "missing"), [
    (BOUND, MOUNT, "persistentvolumes", ("persistentvolumes (no right)",)),
    (BOUND, MOUNT, "storageclasses", ()),
    (LATE, MOUNT, "storageclasses", ("storageclasses (no right)",)),
    (LATE, [], "storageclasses", ()),
    (BOUND, [], "persistentvolumes", ()),
])  # fmt: skip
def test_cannot_tell_where_the_volume_or_the_class_of_a_claim_may_not_be_read(
    claim: Json, volumes: list[Json], unread: str, missing: tuple[str, ...]
) -> None:
    """A volume of one node, and a claim that nobody binds, were taken for mountable everywhere."""
    answer = fit(job(volumes=volumes), cluster(claims=(claim,), unread={unread: "no right"}))
    assert (answer.verdict, answer.missing) == (Verdict.CANNOT_TELL if missing else Verdict.YES, missing)


NEAR: dict[str, Any] = {"mode": "hard", "highest_tier_allowed": 1}


@pytest.mark.parametrize(("mode", "verdict"), [("hard", Verdict.CANNOT_TELL), ("soft", Verdict.YES)])
def test_cannot_tell_what_a_hard_network_topology_leaves(mode: str, verdict: Verdict) -> None:
    assert fit(job(volcano={"network_topology": {**NEAR, "mode": mode}}), cluster()).verdict is verdict


def test_a_job_that_is_too_large_is_so_with_a_network_topology_too() -> None:
    assert codes(job(volcano={"network_topology": NEAR}, workers=20), cluster()) == ["cluster-too-small"]


def test_cannot_tell_when_scheduling_gates_are_removed() -> None:
    answer = fit(edited(job(), schedulingGates=[{"name": "example.com/quota"}]), cluster())
    assert answer.verdict is Verdict.CANNOT_TELL
    assert answer.missing == ("when its scheduling gates are removed: example.com/quota",)


def refusing(name: str, where: str, **term: Any) -> Json:
    """A pod that shares its node with no pod that the term chooses."""
    term = {"topologyKey": "kubernetes.io/hostname", **term}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    one = pod(name, where)
    return {**one, "spec": {**one["spec"], "affinity": affinity}}


EVERYONE: Json = {"labelSelector": {}, "namespaceSelector": {}}
OURS = {"labelSelector": {"matchLabels": {"gangplank.dev/job": "digits"}}, "namespaces": ["vision"]}


@pytest.mark.parametrize(("term", "verdict"), [
    (EVERYONE, Verdict.CANNOT_TELL),
    (OURS, Verdict.CANNOT_TELL),
    ({**OURS, "namespaces": []}, Verdict.YES),
    ({**OURS, "namespaces": ["vision"], "labelSelector": {"matchLabels": {"app": "db"}}}, Verdict.YES),
    ({**OURS, "labelSelector": None}, Verdict.YES),
    ({**EVERYONE, "topologyKey": "rack"}, Verdict.YES),
])  # fmt: skip
def test_cannot_tell_where_a_running_pod_may_refuse_to_share_its_node(term: Json, verdict: Verdict) -> None:
    pods = (refusing("x", "a", **term), pod("y", "b", cpu="2"))
    assert fit(job(), cluster(pods=pods)).verdict is verdict


def test_a_job_goes_to_nodes_that_nobody_refuses_to_share() -> None:
    answer = fit(job(), cluster(pods=(refusing("x", "a", **EVERYONE),)))
    assert answer.verdict is Verdict.YES
    assert set(answer.nodes.values()) == {"b"}


def test_cannot_tell_when_the_queue_could_reclaim() -> None:
    settings = dataclasses.replace(CAPACITY, actions=("enqueue", "allocate", "gangreclaim"))
    own = queue("default", deserved={"cpu": "4", "memory": "8Gi"})
    queues = (queue("root"), own, queue("x", deserved={"cpu": "4"}))
    held = (pod("x", "a", cpu="4", group="x"), pod("y", "b", cpu="4", group="x"))
    state = cluster(pods=held, queues=queues, groups=(group("x", "x"),), settings=settings)
    answer = fit(job(), state)
    assert answer.verdict is Verdict.CANNOT_TELL
    assert "4 cpu" in answer.missing[0]


def reclaiming(own: Json, theirs: Json, above: str = "root", **settings: Any) -> Verdict:
    """The answer for a job whose queue may take back what another one holds in a full cluster."""
    configuration = dataclasses.replace(CAPACITY, actions=("enqueue", "allocate", "reclaim"), **settings)
    queues = (queue("root"), queue("team", deserved={"cpu": "4"}), queue("mine", above, **own), queue("x", **theirs))
    held = (pod("x", "a", cpu="4", group="x"), pod("y", "b", cpu="4", group="x"))
    state = cluster(pods=held, queues=queues, groups=(group("x", "x"),), settings=configuration)
    return fit(job(queue="mine"), state).verdict


GUARANTEE: Json = {"guarantee": {"resource": {"cpu": "4"}}}
PROPORTION: dict[str, Any] = {"plugins": ("priority", "gang", "proportion"), "hierarchy": False}


@pytest.mark.parametrize(("own", "above", "settings", "verdict"), [
    ({}, "root", {}, Verdict.NO),
    (GUARANTEE, "root", {}, Verdict.CANNOT_TELL),
    ({}, "team", {}, Verdict.NO),
    ({}, "team", {"levels": 1}, Verdict.CANNOT_TELL),
    ({}, "root", PROPORTION, Verdict.CANNOT_TELL),
])  # fmt: skip
def test_cannot_tell_when_the_queue_is_entitled_to_more(
    own: Json, above: str, settings: dict[str, Any], verdict: Verdict
) -> None:
    assert reclaiming(own, {}, above, **settings) is verdict


def test_nothing_is_taken_back_from_queues_that_are_not_reclaimable() -> None:
    assert reclaiming(GUARANTEE, {"reclaimable": False}) is Verdict.NO
    assert reclaiming({}, {"reclaimable": False}, **PROPORTION) is Verdict.NO


def brute(asked: Demand, state: Snapshot) -> bool:
    """Whether any assignment of pods to nodes holds, by trying all."""
    pods = [requests(part.spec) for part in asked.parts for _ in range(part.minimum)]
    free = []
    for one in state.nodes:
        used = state.pods.used.get(one["metadata"]["name"], {})
        free.append(int(one["status"]["allocatable"]["cpu"]) * 1000 - used.get("cpu", 0))
    for choice in itertools.product(range(len(free)), repeat=len(pods)):
        left = list(free)
        for which, wanted in zip(choice, pods, strict=True):
            left[which] -= wanted["cpu"]
        if all(left[which] >= 0 for which in choice):
            return True
    return False


def with_port(asked: Demand) -> Demand:
    """The job, whose pods each take a port of their host."""
    (part,) = asked.parts
    containers = [{**one, "ports": [{"containerPort": 80, "hostPort": 8080}]} for one in part.spec["containers"]]
    return edited(asked, containers=containers)


def test_pods_of_one_job_do_not_share_a_port_of_a_host() -> None:
    answer = fit(with_port(job(workers=1)), cluster())
    assert (answer.verdict, len(set(answer.nodes.values()))) == (Verdict.YES, 2)
    assert codes(with_port(job(workers=2)), cluster()) == ["cluster-too-small"]


def at_address(spec: Json, address: str | None) -> list[Json]:
    """The containers of a pod that take a port of one address of their host."""
    where = {} if address is None else {"hostIP": address}
    port = {"containerPort": 80, "hostPort": 8080, **where}
    return [{**one, "ports": [port]} for one in spec["containers"]]


@pytest.mark.parametrize(("one", "other", "fits"), [
    ("10.0.0.1", "10.0.0.2", True), ("10.0.0.1", "10.0.0.1", False), (EVERY_ADDRESS, "10.0.0.1", False),
    ("10.0.0.1", None, False), ("", EVERY_ADDRESS, False), ("::1", "127.0.0.1", True),
])  # fmt: skip
def test_a_port_of_one_address_of_a_host_leaves_that_of_another(
    one: str | None, other: str | None, fits: bool
) -> None:
    """As for kube-scheduler (CheckConflict of HostPortInfo): 0.0.0.0, the default, is every address."""
    for mine, theirs in ((one, other), (other, one)):
        taken = pod("x", "a")
        taken["spec"]["containers"] = at_address(taken["spec"], theirs)
        alone = job(workers=0)
        alone = edited(alone, containers=at_address(alone.parts[0].spec, mine))
        assert codes(alone, cluster(node("a"), pods=(taken,))) == ([] if fits else ["host-port"])

        both = job(workers=1, master_resources={"cpu": "2"})
        specs = [{**part.spec, "containers": at_address(part.spec, address)}
                 for part, address in zip(both.parts, (mine, theirs), strict=True)]  # fmt: skip
        both = changed(both, specs)
        assert (fit(both, cluster(node("a"))).verdict is Verdict.YES) is fits
        assert fit(both, cluster()).verdict is Verdict.YES


def test_the_ports_of_sidecars_count_and_those_of_other_init_containers_do_not() -> None:
    (part,) = job(workers=1).parts
    first = {**part.spec["containers"][0], "name": "first", "ports": [{"containerPort": 80, "hostPort": 8080}]}
    for policy, places in (("Always", 2), (None, 1)):
        asked = edited(job(workers=1), initContainers=[first | ({"restartPolicy": policy} if policy else {})])
        answer = fit(asked, cluster())
        assert (answer.verdict, len(set(answer.nodes.values()))) == (Verdict.YES, places)


def test_a_packing_that_is_hard_to_see_is_no_sure_no() -> None:
    """Only if the master is on c, there is room for both workers, on a."""
    asked = job(workers=2, resources={"cpu": "4"}, master_resources={"cpu": "5"})
    state = cluster(node("a", cpu="8"), node("b", cpu="3"), node("c", cpu="5"))
    assert brute(asked, state)
    assert fit(asked, state).verdict is not Verdict.NO


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_trying_every_placement(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [node(name, cpu=str(chance.randint(1, 5))) for name in "abc"[: chance.randint(1, 3)]]
    places = [chance.choice(nodes)["metadata"]["name"] for _ in range(chance.randint(0, 3))]
    others = tuple(pod(f"x{number}", where, cpu="500m") for number, where in enumerate(places))
    large = {"cpu": str(chance.randint(1, 4))}
    asked = job(workers=chance.randint(1, 4), resources={"cpu": str(chance.randint(1, 3))}, master_resources=large)
    state = cluster(*nodes, pods=others)
    verdict = fit(asked, state).verdict
    if verdict is not Verdict.CANNOT_TELL:
        assert (verdict is Verdict.YES) == brute(asked, state)
    if verdict is Verdict.YES:
        assert len(fit(asked, state).nodes) == asked.minimum
