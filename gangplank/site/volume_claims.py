"""Volume claims (PersistentVolumeClaims): how one is written, what of one can change, and what a job may mount. Pure.

https://kubernetes.io/docs/concepts/storage/persistent-volumes/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, shown
from gangplank.k8s import quantity
from gangplank.k8s.names import ACCESS_MODE
from gangplank.site.storage import KINDS, is_default, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from fractions import Fraction

    from gangplank.spec import Json

    Fields = Mapping[str, Any]  # of a claim or a class in an inventory, or a volume of a job

KEPT = "give it another name, copy the data and let jobs name the new one; claims are never deleted for you"


def volume_claim(
    metadata: Json, size: str, access_modes: Sequence[str] = (ACCESS_MODE,), storage_class: str = ""
) -> Json:
    """A PersistentVolumeClaim; without a storage class it gets the cluster's default.

    >>> volume_claim({"name": "data"}, "1Gi")["spec"]
    {'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': '1Gi'}}}
    """
    spec: Json = {
        "accessModes": [*access_modes],
        "resources": {"requests": {"storage": size}},
        **({"storageClassName": storage_class} if storage_class else {}),
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def inventory_claim(claim: Fields) -> Json:
    """The PersistentVolumeClaim of an entry of `storage_claims`."""
    labels = claim.get("labels") or {}
    metadata = {"name": claim["name"], "namespace": claim["namespace"], "labels": labels}
    return volume_claim(metadata, claim["size"], _modes(claim), claim.get("class") or "")


def _modes(claim: Fields) -> list[str]:
    """The access modes that a claim asks for."""
    return list(claim.get("access_modes") or [ACCESS_MODE])


def claim_problems(
    claims: Sequence[Fields], classes: Sequence[Fields], live: Iterable[Json] = (), live_classes: Iterable[Json] = ()
) -> list[Problem]:
    """What is wrong with claims, given the classes of the inventory, the claims and the classes of the cluster."""
    live_claims = {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in live}
    cluster = {item["metadata"]["name"]: item for item in live_classes}
    own = {item["name"]: item for item in classes if item["kind"] in KINDS}
    defaults = [item["name"] for item in classes if item.get("default")]
    defaults += names(filter(is_default, cluster.values()))
    problems: list[Problem] = []
    for at, claim in enumerate(claims):
        where = f"storage_claims[{at}]"
        try:
            size = quantity.parse(claim["size"])
        except ValueError:
            expected = "a quantity, e.g. 10Gi"
            problems.append(Problem(f"{where}.size", shown(claim["size"]), expected, "write a number with a unit"))
            continue
        if current := live_claims.get((claim["namespace"], claim["name"])):
            problems += _changes(where, claim, size, current, cluster)
        else:
            name = claim.get("class") or next(iter(defaults), "")
            problems += _new(where, claim, name, own, cluster)
    return problems


def _new(where: str, claim: Fields, name: str, own: Mapping[str, Fields], cluster: Fields) -> Iterator[Problem]:
    """What is wrong with a claim that does not exist yet, in the class with this name."""
    if name not in own and name not in cluster:
        choices = ", ".join(sorted({*own, *cluster}))
        fix = f"use one of {choices}" if choices else "add a class to storage_classes"
        yield Problem(f"{where}.class", shown(name or None), "a storage class that exists", fix)
    if name not in own:
        return
    modes, supported = _modes(claim), {key: KINDS[item["kind"]].modes(item) for key, item in own.items()}
    if wrong := [mode for mode in modes if mode not in supported[name]]:
        suitable = [key for key in own if set(modes) <= set(supported[key])]
        fix = f"use the class {' or '.join(suitable)}" if suitable else "add a class that supports it"
        expected = f"access modes of {name}, which has {', '.join(supported[name])}"
        yield Problem(f"{where}.access_modes", shown(wrong), expected, fix)


def _changes(where: str, claim: Fields, size: Fraction, live: Json, cluster: Fields) -> Iterator[Problem]:
    """Which of the requested changes an existing claim cannot take."""
    spec, name = live["spec"], live["spec"].get("storageClassName") or ""
    if claim.get("class") and claim["class"] != name:
        yield Problem(f"{where}.class", shown(claim["class"]), f"{name or 'none'}, as the claim has it", KEPT)
    if _modes(claim) != spec["accessModes"]:
        expected = f"{', '.join(spec['accessModes'])}, as the claim has it"
        yield Problem(f"{where}.access_modes", shown(_modes(claim)), expected, KEPT)
    current = spec["resources"]["requests"]["storage"]
    path, got = f"{where}.size", shown(claim["size"])
    if size < quantity.parse(current):
        yield Problem(path, got, f"at least {current}: a claim cannot shrink", KEPT)
    if size > quantity.parse(current):
        if not _grows(cluster.get(name) or {}):
            yield Problem(path, got, f"{current}: the class {name} cannot enlarge volumes", KEPT)
        elif (live.get("status") or {}).get("phase") != "Bound":
            fix = "start the pod that uses it, then enlarge it"
            yield Problem(path, got, f"{current} until the claim is bound", fix)


def _grows(live_class: Fields) -> bool:
    """Whether volumes of a class of the cluster can be enlarged: some provisioners cannot, whatever the class says."""
    fixed = {kind.provisioner for kind in KINDS.values() if "expansion" not in kind.takes}
    return bool(live_class.get("allowVolumeExpansion")) and live_class["provisioner"] not in fixed


def mount_problems(volumes: Sequence[Fields], live: Iterable[Json]) -> list[Problem]:
    """What is wrong with a job's volumes (see gangplank.spec.Volume), given the claims of its namespace."""
    modes_by_name = {item["metadata"]["name"]: item["spec"]["accessModes"] for item in live}
    problems = []
    for at, volume in enumerate(volumes):
        where, claim = f"training_job.volumes[{at}]", volume["claim"]
        modes = modes_by_name.get(claim)
        if modes is None:
            fix = "create it (storage_claims, or team_claims), or name an existing one"
            expected = f"a claim of the job's namespace, which has {', '.join(sorted(modes_by_name)) or 'none'}"
            problems.append(Problem(f"{where}.claim", shown(claim), expected, fix))
        elif volume["access"] and volume["access"] not in modes:
            expected = f"{', '.join(modes)}, as the claim {claim} has it"
            fix = "use a claim of a ReadWriteMany class, or mount it `on: master` without access"
            problems.append(Problem(f"{where}.access", shown(volume["access"]), expected, fix))
    return problems
