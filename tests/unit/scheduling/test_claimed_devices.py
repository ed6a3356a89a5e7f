"""fit counts devices by claim as a resource of nodes, and says that it cannot tell where only the scheduler could."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site
from gangplank.scheduling.claimed_devices import asking, holding, offering
from gangplank.scheduling.demand import Demand, demand
from gangplank.scheduling.fit import Answer, Verdict, fit
from tests.unit.scheduling.states import cluster, node, pod

Json = dict[str, Any]
CLASS, NAME = "gpu.example.com", "deviceclass/gpu.example.com"


def device_class(expression: str = f"device.driver == '{CLASS}'") -> Json:
    return {"metadata": {"name": CLASS}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}


def slice_of(where: str, devices: int, **more: Any) -> Json:
    inside = [{"name": f"gpu-{at}", **more} for at in range(devices)]
    spec = {"driver": CLASS, "nodeName": where, "pool": {"name": where}, "devices": inside}
    return {"metadata": {"name": where}, "spec": spec}


def claiming(name: str, where: str, devices: int = 1) -> tuple[Json, Json]:
    """A pod on a node, and its claim."""
    holder = pod(name, where)
    holder["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "t"}]
    holder["status"]["resourceClaimStatuses"] = [{"name": "gpus", "resourceClaimName": f"{name}-gpus-x"}]
    requests = [{"name": "gpus", "exactly": {"deviceClassName": CLASS, "count": devices}}]
    meta = {"name": f"{name}-gpus-x", "namespace": "other"}
    return holder, {"metadata": meta, "spec": {"devices": {"requests": requests}}}


def described(gpus: int = 1, **change: Any) -> list[Json]:
    """The manifests of a job of two pods, whose GPUs are devices by claim."""
    fields = {"name": "a", "namespace": "vision", "image": "i", "command": ["true"], "workers": 1}
    fields |= {"collective": "gloo"}
    fields |= {"resources": {"cpu": "100m", "gpus": gpus}, "processes_per_node": 1, **change}
    return BACKENDS["volcano"].manifests(on_site(parse_job(fields), Gpus(allocation="dra", device_class=CLASS)))


def job(gpus: int = 1, **change: Any) -> tuple[Demand, list[Json]]:
    *templates, manifest = described(gpus, **change)
    return demand("a", "vision", BACKENDS["volcano"].objects(manifest), "default"), templates


def answer(gpus: int, slices: list[Json], held: tuple[tuple[Json, Json], ...] = (), kind: Json | None = None) -> Answer:
    asked, templates = job(gpus)
    nodes = offering((node("a"), node("b")), [kind or device_class()], slices)
    pods = holding([one for one, _ in held], [claim for _, claim in held])
    return fit(asking(asked, templates, nodes), cluster(*nodes, pods=pods))


def test_a_job_is_placed_where_devices_are() -> None:
    placed = answer(2, [slice_of("b", 4)])
    assert placed.verdict is Verdict.YES
    assert {*placed.nodes.values()} == {"b"}


def test_devices_that_other_pods_hold_are_not_free() -> None:
    held = (claiming("x", "b", 2), claiming("y", "b"))
    assert answer(1, [slice_of("b", 4)], held[1:]).verdict is Verdict.YES
    short = answer(1, [slice_of("b", 4)], held)
    assert (short.verdict, short.causes[0].code) == (Verdict.NO, "short")
    assert f"1 {NAME} free, the job needs 2 {NAME}" in short.causes[0].evidence[0]


def test_a_claim_that_pods_share_counts_once_for_a_pod_that_runs() -> None:
    first, second = claiming("x", "b", 2), claiming("y", "b", 2)
    ended, waiting = first[0] | {"status": first[0]["status"] | {"phase": "Failed"}}, claiming("z", "", 2)[0]
    for pods in ([first[0], second[0]], [ended, second[0]], [waiting, second[0]]):
        shared = [
            one | {"spec": one["spec"] | {"resourceClaims": [{"name": "gpus", "resourceClaimName": "x-gpus-x"}]}}
            for one in pods
        ]
        requests = [
            one["spec"]["containers"][0]["resources"]["requests"].get(NAME, "0") for one in holding(shared, [first[1]])
        ]
        assert sorted(requests) == ["0", "2"]
        assert requests.index("2") == (0 if pods[0] is first[0] else 1)


def test_a_job_that_asks_for_more_than_any_node_has_never_starts() -> None:
    never = answer(8, [slice_of("a", 4), slice_of("b", 4)])
    assert never.verdict is Verdict.NO
    assert NAME in str(never.causes[0])


def test_a_class_without_devices_is_named() -> None:
    assert answer(1, []).verdict is Verdict.NO


@pytest.mark.parametrize(
    "kind",
    [
        device_class("device.capacity['x'].memory.compareTo(quantity('40Gi')) >= 0"),
        {"metadata": {"name": "other"}, "spec": {}},
    ],
)
def test_what_only_the_scheduler_could_evaluate_cannot_be_told(kind: Json) -> None:
    unknown = answer(1, [slice_of("b", 4)], kind=kind)
    assert unknown.verdict is Verdict.CANNOT_TELL
    assert "devices behind resource claims" in unknown.missing[0]


@pytest.mark.parametrize("special", [{"consumesCounters": [{}]}, {"taints": [{}]}, {"allowMultipleAllocations": True}])
def test_parts_taints_and_sharing_of_devices_cannot_be_told(special: Json) -> None:
    assert answer(1, [slice_of("b", 4, **special)]).verdict is Verdict.CANNOT_TELL


def test_devices_that_have_to_match_cannot_be_told() -> None:
    asked, (template,) = job(2)
    template["spec"]["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{CLASS}/model"}]
    nodes = offering((node("a"),), [device_class()], [slice_of("a", 4)])
    assert fit(asking(asked, [template], nodes), cluster(*nodes)).verdict is Verdict.CANNOT_TELL


def test_a_claim_without_its_template_cannot_be_told() -> None:
    asked, _ = job()
    nodes = offering((node("a"),), [device_class()], [slice_of("a", 4)])
    assert fit(asking(asked, [], nodes), cluster(*nodes)).verdict is Verdict.CANNOT_TELL
