"""Devices by claim instead of by a device plugin: how a job asks for them, and the claims that its pods get.

https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from gangplank.backends.base import RANDOM, UID
from gangplank.k8s import names
from gangplank.k8s.build import clone, namespace, owner
from gangplank.k8s.pod_resources import is_extended

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gangplank.spec import Json, Resources

RESOURCE = (
    "deviceclass/"  # begins the name of a device class among resources: in job and team files as in Volcano's queues
)
API_VERSION, TEMPLATE = "resource.k8s.io/v1", "ResourceClaimTemplate"
CLAIM = "gpus"  # what a pod calls its claim, and the claim its only request
DIGEST_LENGTH = 10  # hexadecimal digits of its content in the name of a template, which is immutable
GENERATED = 57  # characters of a claim's name that the API server completes with five random ones
OF_POD = "resource.kubernetes.io/pod-claim-name"  # the annotation by which a claim's controller finds it again


def device_class(resource: str) -> str:
    """The device class that a resource is, "" if it is one of a device plugin.

    >>> device_class("deviceclass/gpu.nvidia.com"), device_class("nvidia.com/gpu")
    ('gpu.nvidia.com', '')
    """
    return resource.removeprefix(RESOURCE) if resource.startswith(RESOURCE) else ""


def resource_problem(resource: str) -> str:
    """What was expected of a resource of GPUs, or "" if a device plugin or a device class can have this name.

    >>> resource_problem("nvidia.com/gpu"), resource_problem("kubernetes.io/cpu")
    ('', 'a resource of a device plugin, whose domain is its own (e.g. nvidia.com/gpu)')
    """
    if resource.startswith(RESOURCE):
        fits = names.SUBDOMAIN.fullmatch(device_class(resource))
        return "" if fits else f"{RESOURCE} and a device class's name: a-z, 0-9, - and ."
    plugin = "a resource of a device plugin, whose domain is its own (e.g. nvidia.com/gpu)"
    return "" if is_extended(resource) else plugin


def claimed(replica: Resources) -> str:
    """The device class from which a replica's GPUs are claimed, "" if it has none or a device plugin gives them out."""
    return device_class(replica.gpu_resource) if replica.gpus else ""


def template_name(job: str, backend: str, replica: Resources) -> str:
    """The name of the template of a replica's claim: jobs with one name on two back-ends share nothing.

    >>> from gangplank.spec import Resources
    >>> template_name("digits", "volcano", Resources(gpus=1, gpu_resource="deviceclass/gpu.nvidia.com"))
    'digits-gpus-7936e445b9'
    """
    content = f"{backend}\n{claimed(replica)}\n{replica.gpus}"
    return f"{job}-{CLAIM}-{hashlib.sha256(content.encode()).hexdigest()[:DIGEST_LENGTH]}"


def template(metadata: Json, replica: Resources) -> Json:
    """The template of which Kubernetes makes a claim for each pod of a replica."""
    exactly = {"deviceClassName": claimed(replica), "allocationMode": "ExactCount", "count": replica.gpus}
    spec = {"spec": {"devices": {"requests": [{"name": CLAIM, "exactly": exactly}]}}}
    return {"apiVersion": API_VERSION, "kind": TEMPLATE, "metadata": metadata, "spec": spec}


def is_template(item: Mapping[str, object]) -> bool:
    """Whether an object is the template of claims."""
    return item.get("kind") == TEMPLATE


def claims_of(objects: Iterable[Json], templates: Iterable[Json]) -> Iterator[Json]:
    """The claims that Kubernetes makes for pods of templates, which must be in the same file.

    Follows k8s.io/kubernetes v1.35.4, pkg/controller/resourceclaim/controller.go.
    """
    known = {(namespace(item), item["metadata"]["name"]): item for item in templates if is_template(item)}
    for pod in objects:
        for entry in pod["spec"].get("resourceClaims", []) if pod["kind"] == "Pod" else ():
            source = known.get((namespace(pod), entry.get("resourceClaimTemplateName", "")))
            if source:
                yield claim_of(pod, entry["name"], source)


def claim_of(pod: Json, name: str, source: Json) -> Json:
    """The claim of one pod."""
    meta = clone(source["spec"].get("metadata") or {})
    start = generate_name(pod["metadata"]["name"], name)
    (reference,) = owner({"apiVersion": "v1", **pod}, UID)
    del reference["blockOwnerDeletion"]
    return {
        "apiVersion": source["apiVersion"],
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{start}{RANDOM}",
            "generateName": start,
            "namespace": namespace(pod),
            **({"labels": meta["labels"]} if meta.get("labels") else {}),
            "annotations": {**meta.get("annotations", {}), OF_POD: name},
            "ownerReferences": [reference],
        },
        "spec": defaulted(source["spec"]["spec"]),
    }


def generate_name(pod: str, claim: str) -> str:
    """The part of a claim's name before the random end: of a long name, both parts are cut in proportion.

    >>> generate_name("digits-worker-0", "gpus"), generate_name("d" * 60, "gpus")[-6:]
    ('digits-worker-0-gpus-', 'dd-gpu')
    """
    whole = f"{pod}-{claim}-"
    if len(whole) <= GENERATED:
        return whole
    return f"{pod[: len(pod) * GENERATED // len(whole)]}-{claim[: len(claim) * GENERATED // len(whole)]}"


def defaulted(spec: Json) -> Json:
    """What a claim asks for, as the API server stores it."""
    stored: Json = clone(spec)
    for request in stored.get("devices", {}).get("requests", []):
        for one in [request.get("exactly"), *request.get("firstAvailable", [])]:
            if one and one.setdefault("allocationMode", "ExactCount") == "ExactCount":
                one.setdefault("count", 1)
    return stored
