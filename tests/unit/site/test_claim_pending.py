"""Why a volume claim is Pending, and which claims should be bound."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.site.claim_pending import unbound, why_pending
from tests.support.storage import live_claim, live_class


def event(reason: str, message: str = "m", name: str = "data", namespace: str = "a") -> dict[str, Any]:
    return {"involvedObject": {"namespace": namespace, "name": name}, "reason": reason, "message": message}


def pod(message: str = "", node: str = "", namespace: str = "a") -> dict[str, Any]:
    spec: dict[str, Any] = {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}
    spec |= {"nodeName": node} if node else {}
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    return {"metadata": {"namespace": namespace, "name": "p"}, "spec": spec, "status": {"conditions": [condition]}}


def without_class() -> dict[str, Any]:
    claim = live_claim("", "Pending")
    del claim["spec"]["storageClassName"]
    return claim


WAITS = {"volumeBindingMode": "WaitForFirstConsumer"}
BY_HAND = "kubernetes.io/no-provisioner"
MODES = "NodePath only supports ReadWriteOnce and ReadWriteOncePod (1.22+) access modes"


@pytest.mark.parametrize(
    ("cls", "classes", "events", "pods", "cause"),
    [
        ("gold", [live_class("x")], [], [], "no class: it names gold; the cluster has x"),
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
        # the event of such a class, and one that an earlier pod has left
        ("x", [live_class("x", BY_HAND)], [event("ProvisioningFailed", "no plugin matched")], [], "capacity: no free"),
        ("x", [live_class("x", **WAITS)], [event("ProvisioningFailed", MODES)], [], "it waits for its first pod"),
        (
            "x",
            [live_class("x", "no.such")],
            [event("ExternalProvisioning")],
            [],
            "no provisioner: nobody answers for no",
        ),
        ("x", [live_class("x")], [event("Provisioning", "begun")], [], "provisioning is under way: begun"),
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
    claim = live_claim(cls, "Pending") if cls else without_class()
    line = why_pending(claim, classes, events, pods)
    assert line.startswith(f"data: {cause}")
    assert "Fix: " in line


@pytest.mark.parametrize(("events", "cause"), [
    ([{}], "no provisioner"), ([{"reason": "Provisioning"}], "provisioning is under way: ."),
    ([{"reason": "ProvisioningFailed"}], "provisioning failed: ."), ([{"message": "m"}], "no provisioner"),
])  # fmt: skip
def test_an_event_may_lack_what_the_api_leaves_out_when_empty(events: list[dict[str, Any]], cause: str) -> None:
    about = {"involvedObject": {"namespace": "a", "name": "data"}}
    events = [{"involvedObject": {}}, *({**about, **one} for one in events)]
    line = why_pending(live_claim("x", "Pending"), [live_class("x")], events)
    assert line.startswith(f"data: {cause}")


def test_a_claim_should_be_bound_unless_it_waits_for_its_first_pod() -> None:
    assert unbound(live_claim("x", "Pending"), [live_class("x")])
    assert not unbound(live_claim("x", "Pending"), [live_class("x", **WAITS)])
    assert not unbound(live_claim("x"), [live_class("x")])
    assert unbound(live_claim("x", "Lost"), [live_class("x", **WAITS)])


def test_a_lost_claim_is_explained() -> None:
    assert why_pending(live_claim("x", "Lost"), [], []).startswith("data: its volume ")


def test_a_bound_claim_needs_no_explanation() -> None:
    assert why_pending(live_claim(), [], []) == ""


def test_a_claim_of_the_default_class_names_that_class() -> None:
    line = why_pending(without_class(), [live_class("x", "no.such", default=True)], [])
    assert "nobody answers for no.such, which the class x names" in line


@pytest.mark.parametrize("default", [True, False])
def test_a_claim_whose_class_is_empty_waits_for_a_volume_without_one(default: bool) -> None:
    """It was explained by the provisioner of the default class, which never sees it."""
    line = why_pending(live_claim("", "Pending"), [live_class("x", "no.such", default=default)], [])
    assert line == (
        "data: capacity: no free volume without a class has 10Gi and ReadWriteOnce. "
        "Fix: create a PersistentVolume for it that names no class."
    )
