"""Devices by claim as amounts of a resource, deviceclass/NAME: what nodes offer, pods hold and a job asks for. Pure.

Only the scheduler evaluates every expression of a class. Counted here are classes that choose by driver and by equal
attributes, of whole devices of one node. A job that asks for anything else keeps its claims, and nobody can tell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gangplank.backends.device_claims import RESOURCE, defaulted
from gangplank.k8s.build import clone
from gangplank.scheduling.demand import changed
from gangplank.scheduling.snapshot import has_ended

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangplank.scheduling.demand import Demand
    from gangplank.spec import Json

DRIVER = re.compile(r"device\.driver == (['\"])(?P<driver>[^'\"]+)\1")
ATTRIBUTE = re.compile(
    r"device\.attributes\[(['\"])(?P<domain>[^'\"]+)\1\]\.(?P<name>\w+) == (['\"])(?P<value>[^'\"]+)\4"
)
NOT_WHOLE = ("consumesCounters", "allowMultipleAllocations", "taints", "nodeName", "allNodes", "nodeSelector")


def chosen(device: Json, driver: str, device_class: Json) -> bool | None:
    """Whether a class has a device; None if its expressions are more than is understood here.

    >>> cel = {"cel": {"expression": "device.driver == 'a.b' && device.attributes['a.b'].type == 'gpu'"}}
    >>> gpu = {"attributes": {"type": {"string": "gpu"}}}
    >>> chosen(gpu, "a.b", {"spec": {"selectors": [cel]}}), chosen({}, "a.b", {"spec": {"selectors": [cel]}})
    (True, False)
    """
    selectors = (device_class.get("spec") or {}).get("selectors") or []
    for selector in selectors:
        for part in ((selector.get("cel") or {}).get("expression") or "").split("&&"):
            if match := DRIVER.fullmatch(part.strip()):
                if match["driver"] != driver:
                    return False
            elif match := ATTRIBUTE.fullmatch(part.strip()):
                attributes = device.get("attributes") or {}
                own = attributes.get(f"{match['domain']}/{match['name']}")
                own = own or (attributes.get(match["name"]) if match["domain"] == driver else None)
                if (own or {}).get("string") != match["value"]:
                    return False
            else:
                return None
    return True


def offering(nodes: Iterable[Json], classes: Iterable[Json], slices: Sequence[Json]) -> tuple[Json, ...]:
    """The nodes, each with its devices of every class that can be counted among its resources, also 0 of them."""
    counts: dict[str, dict[str, int]] = {}
    for item in classes:
        by_node: dict[str, int] | None = {}
        for one in slices:
            for device in one["spec"].get("devices") or ():
                mine = chosen(device, one["spec"]["driver"], item)
                whole = one["spec"].get("nodeName") and not any(device.get(name) for name in NOT_WHOLE)
                if mine is None or (mine and not whole):
                    by_node = None
                if mine and by_node is not None:
                    by_node[one["spec"]["nodeName"]] = by_node.get(one["spec"]["nodeName"], 0) + 1
        if by_node is not None:
            counts[f"{RESOURCE}{item['metadata']['name']}"] = by_node
    return tuple(with_devices(node, counts) for node in nodes)


def tainted(slices: Sequence[Json], rules: Iterable[Json]) -> list[Json]:
    """The slices, whose devices have the taints of the rules that select them, as if their driver said so.

    https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#device-taints-and-tolerations
    """
    acting = [one["spec"] for one in rules if (one["spec"].get("taint") or {}).get("effect") != "None"]
    return [
        {**one, "spec": {**spec, "devices": [marked(device, spec, acting) for device in spec.get("devices") or ()]}}
        for one in slices
        for spec in [one["spec"]]
    ]


def marked(device: Json, spec: Json, rules: Iterable[Json]) -> Json:
    """A device of a slice with the taints of rules; one that selects by class or expression counts as about all."""
    own = {"driver": spec["driver"], "pool": (spec.get("pool") or {}).get("name"), "device": device["name"]}
    taints = [
        one["taint"]
        for one in rules
        if (selector := one.get("deviceSelector")) is not None
        and all(own[key] == value for key, value in selector.items() if key in own)
    ]
    return {**device, "taints": [*(device.get("taints") or ()), *taints]} if taints else device


def with_devices(node: Json, counts: Mapping[str, Mapping[str, int]]) -> Json:
    """A node with its devices among its resources."""
    own = {name: str(by_node.get(node["metadata"]["name"], 0)) for name, by_node in counts.items()}
    status = node.get("status") or {}
    return {**node, "status": {**status, "allocatable": {**(status.get("allocatable") or {}), **own}}}


def holding(pods: Sequence[Json], claims: Iterable[Json]) -> tuple[Json, ...]:
    """The pods, each with the devices of its claims among its requests; of pods that share a claim, one has them."""
    by_name = {(item["metadata"]["namespace"], item["metadata"]["name"]): item["spec"] for item in claims}
    names = [claims_named(pod) for pod in pods]
    holders: dict[tuple[str, str], int] = {}
    for at, pod in enumerate(pods):
        if pod["spec"].get("nodeName") and not has_ended(pod):
            for name in names[at]:
                holders.setdefault(name, at)
    result = []
    for at, pod in enumerate(pods):
        specs = [by_name[name] for name in names[at] if name in by_name and holders.get(name, at) == at]
        result.append({**pod, "spec": requesting(pod["spec"], specs)} if specs else pod)
    return tuple(result)


def claims_named(pod: Json) -> list[tuple[str, str]]:
    """The claims of a pod by namespace and name: those that were made for it, and those that others may have too."""
    made_for_it = {
        one["name"]: one.get("resourceClaimName")
        for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    entries = pod["spec"].get("resourceClaims") or ()
    names = (entry.get("resourceClaimName") or made_for_it.get(entry["name"]) for entry in entries)
    return [(pod["metadata"]["namespace"], name) for name in names if name]


def asking(job: Demand, templates: Iterable[Json], nodes: Iterable[Json]) -> Demand:
    """The job, with the devices that its pods claim among their requests if all of these can be counted."""
    by_name = {item["metadata"]["name"]: item["spec"]["spec"] for item in templates}
    known = {name for node in nodes for name in (node.get("status") or {}).get("allocatable") or ()}
    specs = []
    for part in job.parts:
        entries = part.spec.get("resourceClaims") or ()
        claims = [by_name.get(entry.get("resourceClaimTemplateName", "")) for entry in entries]
        if claims and all(claim is not None and countable(claim, known) for claim in claims):
            spec = requesting(part.spec, [claim for claim in claims if claim is not None])
            specs.append({name: value for name, value in spec.items() if name != "resourceClaims"})
        else:
            specs.append(part.spec)
    return changed(job, specs)


def countable(claim: Json, known: Iterable[str]) -> bool:
    """Whether all that a claim asks for are numbers of whole devices of classes that can be counted."""
    return not (claim.get("devices") or {}).get("constraints") and all(
        (exactly := request.get("exactly") or {})
        and exactly.get("allocationMode") in (None, "ExactCount")
        and not any(exactly.get(name) for name in ("selectors", "adminAccess", "tolerations", "capacity"))
        and f"{RESOURCE}{exactly['deviceClassName']}" in known
        for request in (claim.get("devices") or {}).get("requests") or ()
    )


def requesting(spec: Json, claims: Iterable[Json]) -> Json:
    """A pod's spec whose first container requests the devices of claims as a resource."""
    numbers: dict[str, int] = {}
    for claim in claims:
        for request in (defaulted(claim).get("devices") or {}).get("requests") or ():
            exactly = request.get("exactly") or {}
            if exactly.get("allocationMode") == "ExactCount":
                name = f"{RESOURCE}{exactly['deviceClassName']}"
                numbers[name] = numbers.get(name, 0) + exactly["count"]
    copy: Json = clone(spec)
    requests = copy["containers"][0].setdefault("resources", {}).setdefault("requests", {})
    requests |= {name: str(number) for name, number in numbers.items()}
    return copy
