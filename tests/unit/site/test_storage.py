"""Storage of a site: classes, what of a claim may change, what jobs may mount, why a claim waits."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from gangplank.jobs.parse import parse_job
from gangplank.site.claim_pending import unbound, why_pending
from gangplank.site.storage import DEFAULT, LOCAL_PATH, claim_problems, class_problems, mount_problems

LOCAL = {"name": "local-path", "kind": "local", "folder": "/opt/local", "default": True}
SHARED = {"name": "local-shared", "kind": "shared", "folder": "/mnt/shared"}
NFS = {
    "name": "nfs",
    "kind": "csi",
    "provisioner": "nfs.csi.k8s.io",
    "access_modes": ["ReadWriteMany"],
    "expansion": True,
}
CLASSES = [LOCAL, SHARED, NFS]


def live_class(name: str, provisioner: str = LOCAL_PATH, **more: Any) -> dict[str, Any]:
    default = more.pop("default", False)
    meta = {"name": name, "annotations": {DEFAULT: "true"} if default else {}}
    return {"metadata": meta, "provisioner": provisioner, "allowVolumeExpansion": True} | more


def live_claim(cls: str = "local-path", phase: str = "Bound", modes: list[str] | None = None) -> dict[str, Any]:
    spec = {
        "storageClassName": cls,
        "accessModes": modes or ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
    }
    return {"metadata": {"name": "data", "namespace": "a"}, "spec": spec, "status": {"phase": phase}}


def claim(**fields: Any) -> dict[str, Any]:
    return {"name": "data", "namespace": "a", "size": "10Gi", **fields}


LIVE_CLASSES = [
    live_class("local-path", default=True),
    live_class("nfs", "nfs.csi.k8s.io"),
    live_class("fixed", "x.csi", allowVolumeExpansion=False),
]


def test_a_whole_inventory_is_taken() -> None:
    assert class_problems(CLASSES, LIVE_CLASSES) == []
    claims = [claim(), claim(name="b", **{"class": "local-shared"}, access_modes=["ReadWriteMany"])]
    assert claim_problems(claims, CLASSES) == []


@pytest.mark.parametrize(
    ("classes", "path", "expected"),
    [
        ([LOCAL, LOCAL | {"default": False}], "storage_classes[1].name", "a name of its own"),
        ([LOCAL | {"folder": ""}], "storage_classes[0].folder", "a folder for kind local"),
        ([LOCAL, NFS | {"provisioner": None}], "storage_classes[1].provisioner", "a provisioner for kind csi"),
        ([LOCAL, NFS | {"folder": "/x"}], "storage_classes[1].folder", "no folder for kind csi"),
        ([LOCAL | {"expansion": True}], "storage_classes[0].expansion", "none for kind local"),
        ([LOCAL | {"binding_mode": "Immediate"}], "storage_classes[0].binding_mode", "WaitForFirstConsumer"),
        ([SHARED], "storage_classes", "exactly one default class"),
        ([LOCAL, SHARED | {"default": True}], "storage_classes", "exactly one default class"),
    ],
)
def test_a_wrong_class_is_refused(classes: list[dict[str, Any]], path: str, expected: str) -> None:
    (problem,) = class_problems(classes)
    assert (problem.path, expected in problem.expected) == (path, True)


def test_a_driver_that_the_cluster_lacks_is_told() -> None:
    assert class_problems([LOCAL, NFS], drivers=["nfs.csi.k8s.io"]) == []
    (problem,) = class_problems([LOCAL, NFS], drivers=[])
    assert (problem.path, problem.got) == ("storage_classes[1].provisioner", '"nfs.csi.k8s.io"')


def test_a_strangers_default_class_is_refused_by_its_name() -> None:
    (problem,) = class_problems(CLASSES, [live_class("theirs", default=True)])
    assert "theirs" in problem.fix
    assert class_problems([SHARED], [live_class("theirs", default=True)]) == []


@pytest.mark.parametrize(
    ("given", "path", "text"),
    [
        (claim(size="big"), "size", "a quantity"),
        (claim(name="x", **{"class": "gold"}), "class", "one of fixed, local-path, local-shared, nfs"),
        (claim(name="x", access_modes=["ReadWriteMany"]), "access_modes", "use the class local-shared or nfs"),
        (claim(size="5Gi"), "size", "at least 10Gi: no claim shrinks"),
        (claim(size="20Gi"), "size", "the class local-path grows no volume"),
        (claim(**{"class": "nfs"}), "class", "local-path, as the claim has it"),
        (claim(access_modes=["ReadWriteMany"]), "access_modes", "ReadWriteOnce, as the claim has it"),
    ],
)
def test_what_a_claim_cannot_be_is_refused_with_the_cure(given: dict[str, Any], path: str, text: str) -> None:
    (problem,) = claim_problems([given], CLASSES, [live_claim()], LIVE_CLASSES)
    assert problem.path == f"storage_claims[0].{path}"
    assert text in f"{problem.expected}; {problem.fix}"


def test_a_change_that_would_need_a_new_claim_says_that_none_is_deleted() -> None:
    given = claim(size="5Gi", access_modes=["ReadWriteMany"], **{"class": "nfs"})
    found = claim_problems([given], CLASSES, [live_claim()], LIVE_CLASSES)
    assert [problem.path.split(".")[1] for problem in found] == ["class", "access_modes", "size"]
    assert all("never deleted for you" in problem.fix for problem in found)


def test_a_claim_grows_where_its_class_grows_volumes_and_it_is_bound() -> None:
    given = [claim(size="20Gi")]
    assert claim_problems(given, CLASSES, [live_claim("nfs")], LIVE_CLASSES) == []
    (problem,) = claim_problems(given, CLASSES, [live_claim("nfs", "Pending")], LIVE_CLASSES)
    assert "until the claim is bound" in problem.expected
    (problem,) = claim_problems(given, CLASSES, [live_claim("fixed")], LIVE_CLASSES)
    assert "grows no volume" in problem.expected


def test_the_same_size_in_other_words_is_no_change() -> None:
    assert claim_problems([claim(size="10240Mi")], CLASSES, [live_claim()], LIVE_CLASSES) == []


def test_a_claim_without_a_class_needs_a_default() -> None:
    assert claim_problems([claim()], [], [], [live_class("theirs", default=True)]) == []
    (problem,) = claim_problems([claim()], [SHARED])
    assert problem.got == "nothing"


def mounts(**volume: Any) -> list[dict[str, Any]]:
    given = {"name": "j", "image": "i", "script": "/a.py", "volumes": [{"claim": "data", "mount": "/d", **volume}]}
    return [asdict(item) for item in parse_job(given).volumes]


def test_a_job_may_mount_what_its_namespace_has() -> None:
    assert mount_problems(mounts(on="master"), [live_claim()]) == []
    assert mount_problems(mounts(access="ReadWriteMany"), [live_claim(modes=["ReadWriteMany"])]) == []


def test_a_job_that_takes_a_claim_for_more_than_it_is_gets_its_choices() -> None:
    (problem,) = mount_problems(mounts(access="ReadWriteMany"), [live_claim()])
    assert "ReadWriteOnce, as the claim data has it" in problem.expected
    assert "ReadWriteMany class" in problem.fix
    assert "on: master" in problem.fix


def test_a_claim_that_is_not_there_is_told_with_those_that_are() -> None:
    (problem,) = mount_problems(mounts(on="master", claim="dta"), [live_claim()])
    assert "which has data" in problem.expected


def event(reason: str, message: str = "m", name: str = "data", namespace: str = "a") -> dict[str, Any]:
    return {"involvedObject": {"namespace": namespace, "name": name}, "reason": reason, "message": message}


def pod(message: str = "", node: str = "", namespace: str = "a") -> dict[str, Any]:
    spec: dict[str, Any] = {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}
    spec |= {"nodeName": node} if node else {}
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    return {"metadata": {"namespace": namespace, "name": "p"}, "spec": spec, "status": {"conditions": [condition]}}


WAITS = {"volumeBindingMode": "WaitForFirstConsumer"}
BY_HAND = "kubernetes.io/no-provisioner"
MODES = "NodePath only supports ReadWriteOnce and ReadWriteOncePod (1.22+) access modes"


@pytest.mark.parametrize(
    ("cls", "classes", "events", "pods", "cause"),
    [
        ("gold", [live_class("x")], [], [], "no class: it names gold; there are: x"),
        ("", [live_class("x")], [], [], "no class: it names none"),
        ("x", [live_class("x", **WAITS)], [], [], "it waits for its first pod"),
        (
            "x",
            [live_class("x", **WAITS)],
            [],
            [pod("0/2 nodes")],
            "it waits for its first pod: pod p is not placed: 0/2",
        ),
        ("x", [live_class("x", **WAITS)], [event("ProvisioningFailed", MODES)], [pod()], "access mode: "),
        ("x", [live_class("x")], [event("ProvisioningFailed", "no space left on device")], [], "capacity: no space"),
        ("x", [live_class("x")], [event("ProvisioningFailed", "login refused")], [], "provisioning failed: login"),
        ("x", [live_class("x", BY_HAND)], [], [], "capacity: no free volume of x has 10Gi"),
        # as the cluster says it of such a class, and what an earlier pod has left
        ("x", [live_class("x", BY_HAND)], [event("ProvisioningFailed", "no plugin matched")], [], "capacity: no free"),
        ("x", [live_class("x", **WAITS)], [event("ProvisioningFailed", MODES)], [], "it waits for its first pod"),
        (
            "x",
            [live_class("x", "no.such")],
            [event("ExternalProvisioning")],
            [],
            "no provisioner: nobody answers for no",
        ),
        ("x", [live_class("x")], [event("Provisioning", "begun")], [], "provisioning goes on: begun"),
        ("x", [live_class("x")], [event("ProvisioningFailed", "no space", "other")], [], "no provisioner"),
        ("x", [live_class("x")], [event("ProvisioningFailed", "no space", namespace="b")], [], "no provisioner"),
        ("x", [live_class("x", **WAITS)], [], [pod("0/2", namespace="b")], "it waits for its first pod: the class"),
        (
            "x",
            [live_class("x")],
            [event("ProvisioningFailed", "login refused"), event("ProvisioningFailed", "no space")],
            [],
            "capacity: no space",
        ),
    ],
)
def test_a_pending_claim_is_explained(cls: str, classes: Any, events: Any, pods: Any, cause: str) -> None:
    found = why_pending(live_claim(cls, "Pending"), classes, events, pods)
    assert found.startswith(f"data: {cause}")
    assert "Fix: " in found


def test_a_claim_should_be_bound_unless_it_waits_for_its_first_pod() -> None:
    assert unbound(live_claim("x", "Pending"), [live_class("x")])
    assert not unbound(live_claim("x", "Pending"), [live_class("x", **WAITS)])
    assert not unbound(live_claim("x"), [live_class("x")])


def test_a_bound_claim_needs_no_explanation() -> None:
    assert why_pending(live_claim(), [], []) == ""
