"""What is read of devices by claim: where rules or rights leave it open which of them are free, nobody guesses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.client import Kube
from gangplank.cluster.situation import situation
from gangplank.scheduling.fit import Answer, Verdict, fit
from tests.unit.scheduling.states import node, queue
from tests.unit.scheduling.test_claimed_devices import CLASS, claiming, described, device_class, slice_of

if TYPE_CHECKING:
    from tests.unit.conftest import Api

Json = dict[str, Any]
GROUP, ALPHA = "/apis/resource.k8s.io", "/apis/resource.k8s.io/v1alpha3"
CLAIMS, RULES = f"{GROUP}/v1/resourceclaims", f"{ALPHA}/devicetaintrules"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
TAINT = {"key": "example.com/broken", "effect": "NoSchedule"}


@pytest.fixture
def forbidden(api: Api, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Paths that this person may not list; the cluster has a node with four devices, and knows rules about devices."""
    paths: set[str] = set()
    usual = api.answer

    def answer(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        if where in paths:
            return 403, b'{"message": "forbidden"}'
        if where == GROUP:
            versions = [{"groupVersion": f"resource.k8s.io/{name}", "version": name} for name in ("v1", "v1alpha3")]
            return 200, json.dumps({"versions": versions}).encode()
        return usual(method, where, query, body)

    monkeypatch.setattr(api, "answer", answer)
    api.groups[ALPHA] = [{"name": "devicetaintrules", "kind": "DeviceTaintRule"}]
    api.groups[f"{GROUP}/v1"] = [{"name": "deviceclasses", "kind": "DeviceClass"}]
    api.objects |= {
        "/api/v1/nodes/a": node("a"),
        f"{GROUP}/v1/deviceclasses/{CLASS}": device_class(),
        f"{GROUP}/v1/resourceslices/a": slice_of("a", 4),
        **{f"{QUEUES}/{name}": queue(name) for name in ("root", "default")},
        "/apis/scheduling.volcano.sh": {},
    }
    return paths


def answer(gpus: int = 1) -> Answer:
    """Of fit, about a job of two pods that is not submitted."""
    *templates, manifest = described(gpus)
    now = situation(Kube(), manifest, live=False, others=templates)
    assert now.demand
    return fit(now.demand, now.state)


def rule(**selector: str) -> Json:
    return {"metadata": {"name": "broken"}, "spec": {"deviceSelector": selector, "taint": TAINT}}


@pytest.mark.usefixtures("forbidden")
def test_devices_are_counted() -> None:
    assert answer(2).verdict is Verdict.YES
    assert (answer(3).verdict, answer(3).causes[0].code) == (Verdict.NO, "cluster-too-small")


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize(("one", "verdict"), [
    (rule(driver=CLASS, pool="a", device="gpu-0"), Verdict.CANNOT_TELL),
    (rule(driver=CLASS), Verdict.CANNOT_TELL),
    (rule(), Verdict.CANNOT_TELL),
    (rule(deviceClassName=CLASS), Verdict.CANNOT_TELL),  # of Kubernetes before 1.35
    (rule(driver="other.example.com"), Verdict.YES),
    (rule(driver=CLASS, pool="b"), Verdict.YES),
    (rule(driver=CLASS, device="gpu-9"), Verdict.YES),
    ({**rule(), "spec": {"taint": TAINT}}, Verdict.YES),  # without a selector it is about no device
    ({**rule(), "spec": {"deviceSelector": {}, "taint": {**TAINT, "effect": "None"}}}, Verdict.YES),
])  # fmt: skip
def test_a_rule_that_taints_a_device_leaves_open_how_many_there_are(api: Api, one: Json, verdict: Verdict) -> None:
    """A device of which nobody gets more is not free, whatever the driver publishes of it."""
    api.objects[f"{RULES}/broken"] = one
    said = answer(2)
    assert said.verdict is verdict
    assert verdict is Verdict.YES or said.missing == ("devices behind resource claims (not computed here)",)


@pytest.mark.parametrize("where", [f"{GROUP}/v1/resourceslices", RULES, CLAIMS])
def test_devices_that_may_not_be_read_are_not_taken_for_none(forbidden: set[str], where: str) -> None:
    """Without the slices, no node seemed to have a device; without the claims, no device seemed to be held."""
    forbidden.add(where)
    assert answer().verdict is Verdict.CANNOT_TELL
    assert not answer().causes


def test_a_member_s_own_pods_hold_devices_too(api: Api, forbidden: set[str]) -> None:
    """Of the other namespaces, a member of a team may list neither pods nor claims."""
    forbidden |= {CLAIMS, "/api/v1/pods"}
    holder, claim = claiming("x", "a", 4)
    for kind, item in (
        ("/api/v1/namespaces/vision/pods", holder),
        (f"{GROUP}/v1/namespaces/vision/resourceclaims", claim),
    ):
        item["metadata"]["namespace"] = "vision"
        api.objects[f"{kind}/{item['metadata']['name']}"] = item
    said = answer()
    assert (said.verdict, [cause.code for cause in said.causes]) == (Verdict.NO, ["short"])
