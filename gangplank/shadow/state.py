"""Copies what a scheduler of a site sees, each object under the key that it has in the API server's store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.snapshot import DENIED, items

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

# Path in the API: kind, and first part of the key. Secrets and ConfigMaps are not among them
KINDS = {
    "/api/v1/namespaces": ("Namespace", "namespaces"),
    "/api/v1/nodes": ("Node", "minions"),
    "/api/v1/pods": ("Pod", "pods"),
    "/api/v1/persistentvolumes": ("PersistentVolume", "persistentvolumes"),
    "/api/v1/persistentvolumeclaims": ("PersistentVolumeClaim", "persistentvolumeclaims"),
    "/api/v1/resourcequotas": ("ResourceQuota", "resourcequotas"),
    "/api/v1/limitranges": ("LimitRange", "limitranges"),
    "/api/v1/serviceaccounts": ("ServiceAccount", "serviceaccounts"),
    "/apis/scheduling.k8s.io/v1/priorityclasses": ("PriorityClass", "priorityclasses"),
    "/apis/node.k8s.io/v1/runtimeclasses": ("RuntimeClass", "runtimeclasses"),
    "/apis/policy/v1/poddisruptionbudgets": ("PodDisruptionBudget", "poddisruptionbudgets"),
    "/apis/storage.k8s.io/v1/storageclasses": ("StorageClass", "storageclasses"),
    "/apis/storage.k8s.io/v1/csinodes": ("CSINode", "csinodes"),
    "/apis/storage.k8s.io/v1/csidrivers": ("CSIDriver", "csidrivers"),
    "/apis/storage.k8s.io/v1/csistoragecapacities": ("CSIStorageCapacity", "csistoragecapacities"),
    "/apis/storage.k8s.io/v1/volumeattachments": ("VolumeAttachment", "volumeattachments"),
    "/apis/resource.k8s.io/v1/deviceclasses": ("DeviceClass", "deviceclasses"),
    "/apis/resource.k8s.io/v1/resourceslices": ("ResourceSlice", "resourceslices"),
    "/apis/resource.k8s.io/v1/resourceclaims": ("ResourceClaim", "resourceclaims"),
}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KEPT = ("name", "image", "resources", "ports", "restartPolicy")  # of a container


@dataclass
class Copy:
    """Objects by their keys, and what could not be read."""

    objects: list[tuple[str, Json]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def count(self, prefix: str) -> int:
        """How many objects there are of a kind."""
        return sum(key.startswith(f"{prefix}/") for key, _ in self.objects)


def copied(kube: Kube, without: Collection[str] = ()) -> Copy:
    """A copy of the state, without the objects of some uids."""
    copy = Copy()
    crds = items(kube, CRDS)
    if crds is None:
        copy.missing.append(f"customresourcedefinitions ({DENIED})")
    own = [crd for crd in crds or () if crd["spec"]["group"] in QUEUE_SYSTEM.groups]
    for crd in own:
        key = f"apiextensions.k8s.io/customresourcedefinitions/{crd['metadata']['name']}"
        version = "apiextensions.k8s.io/v1"
        copy.objects.append((key, clean({**crd, "apiVersion": version, "kind": "CustomResourceDefinition"})))
    for where, kind, prefix in [*((where, *names) for where, names in KINDS.items()), *custom(own)]:
        listed = items(kube, where)
        if listed is None:
            copy.missing.append(f"{where.rpartition('/')[2]} of all namespaces ({DENIED})")
        for item in listed or ():
            meta = item["metadata"]
            if meta["uid"] in without:
                continue
            place = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
            version = where.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
            copy.objects.append((f"{prefix}/{place}", clean({**item, "apiVersion": version, "kind": kind})))
    return copy


def custom(crds: list[Json]) -> Iterator[tuple[str, str, str]]:
    """Path, kind and key of custom resources that a scheduler reads."""
    for crd in crds:
        spec = crd["spec"]
        version = next(one["name"] for one in spec["versions"] if one["storage"])
        group, plural = spec["group"], spec["names"]["plural"]
        yield f"/apis/{group}/{version}/{plural}", spec["names"]["kind"], f"{group}/{plural}"


def clean(item: Json) -> Json:
    """An object as it is stored. A pod loses what its containers run, which no scheduler reads."""
    meta = {key: value for key, value in item["metadata"].items() if key not in {"resourceVersion", "managedFields"}}
    item = {**item, "metadata": meta}
    if item["kind"] != "Pod":
        return item
    spec = dict(item["spec"])
    for kind in ("containers", "initContainers"):
        if kind in spec:
            spec[kind] = [{key: one[key] for key in KEPT if key in one} for one in spec[kind]]
    status = dict(item.get("status") or {})
    if not spec.get("nodeName"):  # what the site's scheduler said of it; the shadow's is to look again
        status["conditions"] = [one for one in status.get("conditions") or () if one["type"] != "PodScheduled"]
    return {**item, "spec": spec, "status": status}
