"""fit and why about CSI drivers: where a volume's driver runs, and how many volumes a node may have of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.scheduling.drivers import counted
from gangplank.scheduling.fit import Verdict, fit
from gangplank.scheduling.preemption import SOME
from gangplank.scheduling.why import Situation, diagnose
from tests.unit.scheduling.states import cluster, job, node, pod

if TYPE_CHECKING:
    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.snapshot import Snapshot

Json = dict[str, Any]
DRIVER = "disk.example.com"
HIGH = {"metadata": {"name": "high"}, "value": 10}
MOUNT = [{"claim": "data", "mount": "/data", "on": "all", "access": "ReadWriteMany"}]
CORDONED = {**node("b"), "spec": {"unschedulable": True}}
NO_RIGHT = "you may not list them"


def claim(name: str = "data", namespace: str = "vision", **spec: Any) -> Json:
    spec = {"accessModes": ["ReadWriteMany"], "volumeName": f"v-{name}", **spec}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": {"phase": "Bound"}}


def volume(name: str = "data", namespace: str = "vision", **source: Any) -> Json:
    spec = {"claimRef": {"name": name, "namespace": namespace}, **(source or {"csi": {"driver": DRIVER}})}
    return {"metadata": {"name": f"v-{name}"}, "spec": spec, "status": {"phase": "Bound"}}


def late(provisioner: str, **parameters: str) -> dict[str, tuple[Json, ...]]:
    """A claim that waits for its first pod, and its class."""
    own = {"metadata": {"name": "late"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    waiting = {**claim(storageClassName="late", volumeName=""), "status": {"phase": "Pending"}}
    return {"claims": (waiting,), "volumes": (), "classes": ({**own, "parameters": parameters},)}


def csi_node(name: str, *drivers: str, count: int | None = None) -> Json:
    most = {} if count is None else {"allocatable": {"count": count}}
    return {"metadata": {"name": name}, "spec": {"drivers": [{"name": one, **most} for one in drivers] or None}}


def state(*csi_nodes: Json, nodes: tuple[Json, ...] = (), **more: Any) -> Snapshot:
    fields = {"claims": (claim(),), "volumes": (volume(),), "ignored": frozenset[str](), **more}
    return cluster(*nodes, csi_nodes=csi_nodes, **fields)


def why(asked: Demand, now: Snapshot) -> tuple[str, bool]:
    diagnosis = diagnose(Situation("digits", asked, now, live=False))
    return diagnosis.first_line, diagnosis.proven


@pytest.mark.parametrize("backend", ["volcano", "indexed"])
@pytest.mark.parametrize("nodes", [(), (csi_node("a"), csi_node("b", "other.example.com"))])
def test_a_driver_that_runs_nowhere_is_named_and_proven(backend: str, nodes: tuple[Json, ...]) -> None:
    asked, now = job(backend, volumes=MOUNT), state(*nodes)
    (cause,) = fit(asked, now).causes
    assert cause.code == "volume-driver"
    words = f"its volume claim data needs the CSI driver {DRIVER}, which runs on no node"
    assert why(asked, now) == (f"digits would not start because {words}", True)


def test_a_job_that_mounts_no_volume_of_the_driver_needs_none() -> None:
    assert fit(job(), state()).verdict is Verdict.YES
    assert fit(job(volumes=MOUNT), state(volumes=(volume(nfs={}),))).verdict is Verdict.YES


@pytest.mark.parametrize(("backend", "ignored", "verdict"), [
    ("volcano", frozenset(), Verdict.YES),
    ("volcano", frozenset({DRIVER}), Verdict.CANNOT_TELL),
    ("volcano", None, Verdict.CANNOT_TELL),
    ("indexed", frozenset(), Verdict.CANNOT_TELL),
])  # fmt: skip
def test_who_counts_volumes_chooses_the_nodes_with_the_driver_and_of_others_nobody_can_tell(
    backend: str, ignored: frozenset[str] | None, verdict: Verdict
) -> None:
    """Kubernetes' scheduler before 1.37 binds to any node, and the kubelet cannot mount."""
    asked = job(backend, volumes=MOUNT)
    answer = fit(asked, state(csi_node("a", DRIVER), csi_node("b"), ignored=ignored))
    assert answer.verdict is verdict
    assert {*answer.nodes.values()} <= {"a"}
    text = f"whether its scheduler chooses only nodes that run the CSI driver {DRIVER} of its volume claim data"
    assert [line.partition(":")[0] for line in answer.missing] == ([] if verdict is Verdict.YES else [text])
    everywhere = csi_node("a", DRIVER), csi_node("b", DRIVER)
    assert fit(asked, state(*everywhere, ignored=ignored)).verdict is Verdict.YES
    on_open_nodes = state(everywhere[0], nodes=(node("a"), CORDONED), ignored=ignored)
    assert fit(asked, on_open_nodes).verdict is Verdict.YES


def test_a_driver_on_too_few_nodes_is_named_and_one_with_the_node_s_own_state_is_not() -> None:
    wide, here = job(volumes=MOUNT, workers=5), (csi_node("a", DRIVER), csi_node("b"))
    assert why(wide, state(*here))[0].endswith(f"the CSI driver {DRIVER}, which runs on only 1 of 2 nodes")
    assert why(wide, state(*here))[1]
    full = state(*here, pods=(pod("x", "a", cpu="4"),))
    assert [cause.code for cause in fit(job(volumes=MOUNT), full).causes] == ["short"], "of the node that has it"
    away = fit(job(volumes=MOUNT), state(*here[1:], csi_node("a"), nodes=(node("a"), CORDONED)))
    assert [cause.code for cause in away.causes] == ["volume-driver"]


@pytest.mark.parametrize(("backend", "provisioner", "more", "codes"), [
    ("volcano", DRIVER, {}, ["volume-driver"]),
    ("volcano", "nfs.example.com/external", {}, ["volume-driver"]),
    ("volcano", "nfs.example.com/external", {"ignored": frozenset({"nfs.example.com/external"})}, []),
    ("volcano", "rancher.io/local-path", {}, []),
    ("indexed", "nfs.example.com/external", {}, []),
    ("indexed", DRIVER, {}, []),
    ("indexed", DRIVER, {"csi_drivers": ({"metadata": {"name": DRIVER}},)}, ["volume-driver"]),
])  # fmt: skip
def test_the_driver_of_a_claim_that_waits_for_its_first_pod_is_its_class_s(
    backend: str, provisioner: str, more: Json, codes: list[str]
) -> None:
    """Volcano counts the volumes of every provisioner that it is not set to ignore, whether or not that is CSI's."""
    asked, now = job(backend, volumes=MOUNT), state(**late(provisioner), **more)
    assert [cause.code for cause in fit(asked, now).causes] == codes
    if codes:
        assert why(asked, now)[1]
        assert ("volcano_ignored_provisioners" in fit(asked, now).causes[0].fix) is not bool(more)


def test_a_class_may_name_the_driver_of_its_provisioner() -> None:
    named = late("other.example.com", **{"csi.storage.k8s.io/csi-driver-name": DRIVER})
    assert fit(job(volumes=MOUNT), state(csi_node("a", DRIVER), csi_node("b", DRIVER), **named)).verdict is Verdict.YES


ZONES = [{"matchLabelExpressions": [{"key": "zone", "values": ["x", "y"]}, {"key": "ssd", "values": ["true"]}]},
         {"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["b"]}]}]  # fmt: skip


@pytest.mark.parametrize(("topologies", "workers", "code"), [
    (ZONES, 2, None), (ZONES[1:], 2, None), (ZONES[1:], 4, "volume-topology"), (ZONES[:1], 2, "volume-topology"),
    ([], 4, None),
])  # fmt: skip
@pytest.mark.parametrize("backend", ["volcano", "indexed"])
def test_a_class_may_make_volumes_for_some_nodes_alone(
    backend: str, topologies: list[Json], workers: int, code: str | None
) -> None:
    """Both schedulers place pods there alone; fit said that they go anywhere."""
    more = late("rancher.io/local-path")
    now = state(**{**more, "classes": ({**more["classes"][0], "allowedTopologies": topologies},)})
    asked = job(backend, volumes=MOUNT, workers=workers)
    assert [cause.code for cause in fit(asked, now).causes] == ([code] if code else [])
    assert {*fit(asked, now).nodes.values()} <= ({"b"} if topologies else {"a", "b"})
    assert not code or why(asked, now)[1]
    bound = state(**{**more, "claims": (claim(storageClassName="late", volumeName=""),)})
    assert fit(asked, bound).verdict is Verdict.YES


@pytest.mark.parametrize(("name", "now"), [
    ("csinodes", state()),
    ("csidrivers", state(**late(DRIVER))),
    ("deployments of its scheduler", state(ignored=None, **late(DRIVER))),
])  # fmt: skip
def test_cannot_tell_where_what_is_about_drivers_may_not_be_read(name: str, now: Snapshot) -> None:
    asked = job("indexed" if name == "csidrivers" else "volcano", volumes=MOUNT)
    now = replace(now, unread={name: NO_RIGHT}, csi_nodes=None if name == "csinodes" else ())
    answer = fit(asked, now)
    assert (answer.verdict, answer.missing) == (Verdict.CANNOT_TELL, (f"{name} ({NO_RIGHT})",))
    assert fit(job(), now).verdict is Verdict.YES


def user(number: int, where: str, of: str = "") -> Json:
    """A pod of another namespace with a volume of the driver."""
    item = pod(f"user-{number}", where, cpu="10m")
    item["spec"]["volumes"] = [{"name": "a", "persistentVolumeClaim": {"claimName": of or f"other-{number}"}}]
    return item


OTHERS = tuple(volume(name, "other") for name in ("other-0", "other-1"))


@pytest.mark.parametrize(("backend", "count", "verdict", "codes"), [
    ("volcano", 5, Verdict.YES, []),
    ("volcano", 4, Verdict.NO, ["short"]),  # three pods on the one node, each counts
    ("volcano", 2, Verdict.NO, ["cluster-too-small"]),
    ("indexed", 3, Verdict.YES, []),  # all mount the same volume
    ("indexed", 2, Verdict.NO, ["attach-limit"]),
])  # fmt: skip
def test_the_volumes_that_a_node_may_have_are_limited(
    backend: str, count: int, verdict: Verdict, codes: list[str]
) -> None:
    pods = (user(0, "a"), user(1, "a"))
    nodes = csi_node("a", DRIVER, count=count), csi_node("b", DRIVER)
    now = state(*nodes, nodes=(node("a"),), pods=pods, volumes=(volume(), *OTHERS))
    asked = job(backend, volumes=MOUNT)
    answer = fit(asked, now)
    assert (answer.verdict, [cause.code for cause in answer.causes]) == (verdict, codes)
    assert not codes or why(asked, now)[1]
    assert fit(asked, state(*nodes, pods=pods, volumes=(volume(), *OTHERS))).verdict is Verdict.YES, "b has no limit"


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("phase", ["Released", "Available"])
def test_the_former_volume_of_a_claim_that_was_created_again_takes_no_room(phase: str, own: bool) -> None:
    """It counted as what the pods of the new claim mount, which is the job's own volume, or none of the driver's."""
    name, space = ("data", "vision") if own else ("other-0", "other")
    users = [user(0, "a", name)]
    users[0]["metadata"]["namespace"] = space
    new = volume(name, space) if own else volume(name, space, nfs={})
    old = {**volume(name, space), "metadata": {"name": "v-old"}, "status": {"phase": phase}}
    volumes = (*((new,) if own else (volume(), new)), old)
    now = state(csi_node("a", DRIVER, count=1), nodes=(node("a"),), pods=(*users,), volumes=volumes)
    assert fit(job("indexed", volumes=MOUNT), now).verdict is Verdict.YES


@pytest.mark.parametrize(("count", "passing", "fix"), [(2, True, "wait until"), (0, False, "mount fewer")])
def test_who_ends_other_pods_gains_nothing_where_a_node_never_has_enough_volumes(
    count: int, passing: bool, fix: str
) -> None:
    pods, volumes = (user(0, "a"), user(1, "a")), (volume(), *OTHERS)
    now = state(csi_node("a", DRIVER, count=count), nodes=(node("a"),), pods=pods, volumes=volumes)
    (cause,) = fit(job("indexed", volumes=MOUNT), now).causes
    assert (cause.code, cause.passing) == ("attach-limit", passing)
    assert cause.fix.startswith(fix)


@pytest.mark.parametrize("count", [None, 1])
def test_the_pods_that_end_for_a_job_are_not_named_where_some_of_them_end_for_their_volumes(count: int | None) -> None:
    """That on a takes no room that the job needs, only its volume."""
    low = (user(0, "a"), pod("x", "b", cpu="3", namespace="vision"))
    pods = tuple({**one, "spec": {**one["spec"], "priority": 0}} for one in low)
    nodes = csi_node("a", DRIVER, count=count), csi_node("b", DRIVER)
    more = {"nodes": (node("a", cpu="3500m"), node("b")), "volumes": (volume(), *OTHERS), "priorities": (HIGH,)}
    answer = fit(job("indexed", volumes=MOUNT, workers=5, priority="high"), state(*nodes, pods=pods, **more))
    assert (answer.verdict, answer.ended) == (Verdict.YES, ("vision/x",) if count is None else (SOME,))


def test_a_cluster_without_volumes_keeps_its_pods() -> None:
    pods = (pod("x", "a", cpu="4"), pod("y", "b", cpu="4"))
    now = state(csi_node("a", DRIVER, count=5), csi_node("b", DRIVER, count=5), pods=pods, **late(DRIVER))
    assert [cause.code for cause in fit(job(volumes=MOUNT), now).causes] == ["short"]


def test_volumes_are_counted_once_however_often_the_rest_of_a_state_is_altered() -> None:
    """With ten thousand pods, counting them takes longer than all the rest."""
    nodes = csi_node("a", DRIVER, count=9), csi_node("b", DRIVER, count=9)
    now = state(*nodes, pods=(user(0, "a"),), volumes=(volume(), *OTHERS))
    later = replace(now, nodes=(node("a"),))
    other = replace(now, volumes=(volume(),))
    first, again, fewer = (counted(job(volumes=MOUNT), one)[1].pods for one in (now, later, other))
    assert again is first
    assert [f"attachable-volumes-csi-{DRIVER}" in pods.taken[0][1] for pods in (first, fewer)] == [True, False]


def test_who_may_not_read_volumes_gets_no_driver_that_only_the_claim_s_class_names() -> None:
    """A provisioner that is not CSI's makes volumes that no scheduler counts once they exist."""
    classes = late("nfs.example.com/external")["classes"]
    unread = {"persistentvolumes": NO_RIGHT}
    bound = state(claims=(claim(storageClassName="late"),), volumes=(), classes=classes, unread=unread)
    answer = fit(job(volumes=MOUNT), bound)
    assert (answer.causes, answer.missing) == ((), (f"persistentvolumes ({NO_RIGHT})",))
    waiting = state(**late("nfs.example.com/external"), unread=unread)
    assert [cause.code for cause in fit(job(volumes=MOUNT), waiting).causes] == ["volume-driver"]


@pytest.mark.parametrize(("count", "missing"), [(5, (f"persistentvolumes ({NO_RIGHT})",)), (None, ())])
def test_without_the_volumes_of_other_pods_nobody_can_tell_whether_a_node_may_have_more(
    count: int | None, missing: tuple[str, ...]
) -> None:
    nodes = csi_node("a", DRIVER, count=count), csi_node("b", DRIVER, count=count)
    now = state(*nodes, **late(DRIVER), unread={"persistentvolumes": NO_RIGHT})
    assert fit(job(volumes=MOUNT), now).missing == missing


def test_pods_that_share_a_volume_have_one_for_kubernetes_scheduler_and_each_has_one_for_volcano() -> None:
    nodes, shared = (node("a"), CORDONED), (user(0, "a", "other-0"), user(1, "a", "other-0"))
    for backend, count in (("volcano", 5), ("indexed", 2)):
        own = {"nodes": nodes, "pods": shared, "volumes": (volume(), *OTHERS)}
        enough, less = (state(csi_node("a", DRIVER, count=most), **own) for most in (count, count - 1))
        assert fit(job(backend, volumes=MOUNT), enough).verdict is Verdict.YES
        assert fit(job(backend, volumes=MOUNT), less).verdict is Verdict.NO
