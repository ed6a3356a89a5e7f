"""Storage classes and claims: what a site may ask for, and what of a claim can still change. Pure.

https://kubernetes.io/docs/concepts/storage/persistent-volumes/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, shown
from gangplank.k8s import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangplank.spec import Json

    Given = Mapping[str, Any]

LOCAL_PATH = "rancher.io/local-path"
DEFAULT = "storageclass.kubernetes.io/is-default-class"
# What local-path-provisioner can give (provisioner.go, provisionFor in v0.0.30): a folder of one node, or a shared one.
LOCAL_MODES = {
    "local": ("ReadWriteOnce", "ReadWriteOncePod"),
    "shared": ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"),
}
ANEW = "claims are never deleted for you: make one of another name so, copy the data, and let jobs name the new one"


def names(objects: Iterable[Json]) -> list[str]:
    """The names of objects."""
    return [item["metadata"]["name"] for item in objects]


def class_problems(
    classes: Sequence[Given], live: Iterable[Json] = (), drivers: Sequence[str] | None = None
) -> list[Problem]:
    """What is wrong with a site's classes; `live` are those that the cluster has, `drivers` its CSI drivers' names."""
    found = []
    given = [item["name"] for item in classes]
    for at, item in enumerate(classes):
        where = f"storage_classes[{at}]"
        if given.index(item["name"]) != at:
            found.append(Problem(f"{where}.name", shown(item["name"]), "a name of its own", "take one of the two out"))
        csi = item["kind"] == "csi"
        for key, wanted in (("folder", not csi), ("provisioner", csi)):
            if bool(item.get(key)) != wanted:
                expected = f"{'a' if wanted else 'no'} {key} for kind {item['kind']}"
                found.append(Problem(f"{where}.{key}", shown(item.get(key) or None), expected, "see the role's README"))
        for key in ("expansion", "access_modes", "parameters", "mount_options"):
            if item.get(key) and not csi:
                fix = "take it out: local-path-provisioner cannot do otherwise"
                found.append(Problem(f"{where}.{key}", shown(item[key]), f"none for kind {item['kind']}", fix))
        if csi and drivers is not None and item.get("provisioner") and item["provisioner"] not in drivers:
            expected = f"a CSI driver of the cluster, which has {', '.join(drivers) or 'none'}"
            fix = "install the driver first, by its own chart"
            found.append(Problem(f"{where}.provisioner", shown(item["provisioner"]), expected, fix))
        if item["kind"] == "local" and item.get("binding_mode") == "Immediate":
            expected = "WaitForFirstConsumer: a folder is on a node, which its first pod chooses"
            found.append(Problem(f"{where}.binding_mode", '"Immediate"', expected, "take it out"))
    defaults = [item["name"] for item in classes if item.get("default")]
    others = [item["metadata"]["name"] for item in live if is_default(item) and item["metadata"]["name"] not in given]
    if classes and len(defaults + others) != 1:
        fix = "say `default: true` at one class"
        if others:
            fix += f", or take the annotation {DEFAULT} from {', '.join(others)}, which is not of this inventory"
        found.append(Problem("storage_classes", shown(defaults + others), "exactly one default class", fix))
    return found


def is_default(live: Given) -> bool:
    """Whether a StorageClass is marked as the cluster's default."""
    return (live["metadata"].get("annotations") or {}).get(DEFAULT) == "true"


def local_class(item: Given) -> Json:
    """A class of kind local or shared, as the chart of local-path-provisioner takes it.

    >>> local_class({"name": "a", "kind": "shared", "folder": "/mnt/a"})["sharedFileSystemPath"]
    '/mnt/a'
    """
    shared = item["kind"] == "shared"
    where: Json = {"sharedFileSystemPath": item["folder"]}
    if not shared:
        where = {"nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": [item["folder"]]}]}
    given = {
        "create": True,
        "defaultClass": bool(item.get("default")),
        "defaultVolumeType": "hostPath",
        "reclaimPolicy": item.get("reclaim_policy") or "Delete",
        "volumeBindingMode": item.get("binding_mode") or ("Immediate" if shared else "WaitForFirstConsumer"),
    }
    return {"storageClass": given, **where}


def csi_class(item: Given) -> Json:
    """A class of kind csi, as charts/storage takes it.

    >>> csi_class({"name": "a", "kind": "csi", "provisioner": "a.csi", "reclaim_policy": "Retain"})
    {'name': 'a', 'provisioner': 'a.csi', 'reclaimPolicy': 'Retain'}
    """
    known = {
        "name": "name",
        "provisioner": "provisioner",
        "parameters": "parameters",
        "mount_options": "mountOptions",
        "reclaim_policy": "reclaimPolicy",
        "binding_mode": "volumeBindingMode",
        "expansion": "expansion",
        "default": "default",
    }
    return {key: item[name] for name, key in known.items() if item.get(name) is not None}


def modes_of(item: Given) -> Sequence[str]:
    """The access modes that a class of the inventory can give.

    >>> modes_of({"kind": "local"}), modes_of({"kind": "csi"})
    (('ReadWriteOnce', 'ReadWriteOncePod'), ('ReadWriteOnce',))
    """
    return LOCAL_MODES.get(item["kind"]) or item.get("access_modes") or ("ReadWriteOnce",)


def claim_problems(
    claims: Sequence[Given], classes: Sequence[Given], live: Iterable[Json] = (), live_classes: Iterable[Json] = ()
) -> list[Problem]:
    """What is wrong with claims, given the classes of the inventory, the claims and the classes of the cluster."""
    there = {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in live}
    known = {item["metadata"]["name"]: item for item in live_classes}
    ours = {item["name"]: item for item in classes}
    default = next((item["name"] for item in classes if item.get("default")), "")
    default = default or next((name for name, item in known.items() if is_default(item)), "")
    found: list[Problem] = []
    for at, claim in enumerate(claims):
        where = f"storage_claims[{at}]"
        try:
            size = quantity.parse(claim["size"])
        except ValueError:
            found.append(Problem(f"{where}.size", shown(claim["size"]), "a quantity, e.g. 10Gi"))
            continue
        name, modes = claim.get("class") or default, list(claim.get("access_modes") or ["ReadWriteOnce"])
        if (claim["namespace"], claim["name"]) in there:
            found += _changes(where, claim, size, modes, there[claim["namespace"], claim["name"]], known)
        elif name not in ours and name not in known:
            fix = f"one of {', '.join(sorted({*ours, *known})) or 'none: give storage_classes one'}"
            found.append(Problem(f"{where}.class", shown(name or None), "a storage class that there is", fix))
        elif name in ours and (wrong := [mode for mode in modes if mode not in modes_of(ours[name])]):
            can = [item["name"] for item in classes if set(modes) <= set(modes_of(item))]
            fix = f"use the class {' or '.join(can)}" if can else "give the site a class that can"
            expected = f"of {', '.join(modes_of(ours[name]))}, which {name} has"
            found.append(Problem(f"{where}.access_modes", shown(wrong), expected, fix))
    return found


def _changes(where: str, claim: Given, size: Any, modes: list[str], live: Json, known: Given) -> list[Problem]:
    """What of a claim that is there can not be changed as it is asked for."""
    found = []
    spec, name = live["spec"], live["spec"].get("storageClassName") or ""
    if claim.get("class") and claim["class"] != name:
        found.append(Problem(f"{where}.class", shown(claim["class"]), f"{name or 'none'}, as the claim has it", ANEW))
    if modes != spec["accessModes"]:
        expected = f"{', '.join(spec['accessModes'])}, as the claim has it"
        found.append(Problem(f"{where}.access_modes", shown(modes), expected, ANEW))
    has = spec["resources"]["requests"]["storage"]
    if size < quantity.parse(has):
        found.append(Problem(f"{where}.size", shown(claim["size"]), f"at least {has}: no claim shrinks", ANEW))
    if size > quantity.parse(has):
        given = known.get(name) or {}
        if not given.get("allowVolumeExpansion") or given.get("provisioner") == LOCAL_PATH:
            found.append(
                Problem(f"{where}.size", shown(claim["size"]), f"{has}: the class {name} grows no volume", ANEW)
            )
        elif (live.get("status") or {}).get("phase") != "Bound":
            fix = "start the pod that uses it, then grow it"
            found.append(Problem(f"{where}.size", shown(claim["size"]), f"{has} until the claim is bound", fix))
    return found


def mount_problems(volumes: Sequence[Given], live: Iterable[Json]) -> list[Problem]:
    """What speaks against a job's volumes (see gangplank.spec.Volume) in the claims that its namespace really has."""
    there = {item["metadata"]["name"]: item["spec"]["accessModes"] for item in live}
    found = []
    for at, volume in enumerate(volumes):
        where, claim = f"training_job.volumes[{at}]", volume["claim"]
        if claim not in there:
            fix = "create it (storage_claims, or the team's file), or name one that there is"
            expected = f"a claim of the job's namespace, which has {', '.join(sorted(there)) or 'none'}"
            found.append(Problem(f"{where}.claim", shown(claim), expected, fix))
        elif volume["access"] and volume["access"] not in there[claim]:
            expected = f"{', '.join(there[claim])}, as the claim {claim} has it"
            fix = "use a claim of a ReadWriteMany class, or mount it `on: master` without access"
            found.append(Problem(f"{where}.access", shown(volume["access"]), expected, fix))
    return found
