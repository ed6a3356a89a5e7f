"""Whether the volume claims of a job can be mounted, and on which nodes."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, product
from typing import TYPE_CHECKING

from gangplank.scheduling.amounts import milli
from gangplank.scheduling.cause import Cause, Removal
from gangplank.scheduling.demand import claims_of
from gangplank.site.claim_pending import lost, none_free, unbound, why_pending

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.snapshot import Snapshot
    from gangplank.spec import Json


VOLUMES, CLASSES = "persistentvolumes", "storageclasses"
# As volumezone of Kubernetes' scheduler: by a volume's label, the one that counts on a node without that label
ZONES = {f"{group}/{name}": f"topology.kubernetes.io/{name}" for name in ("zone", "region")
         for group in ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io")}  # fmt: skip
NODE_NAMES = {"matchExpressions": "kubernetes.io/hostname", "matchFields": "metadata.name"}


def names(job: Demand) -> list[str]:
    """The claims that the job's pods mount, sorted."""
    return sorted({claim for part in job.parts for claim in claims_of(part.spec)})


def unread(job: Demand, state: Snapshot) -> Iterator[str]:
    """What may not be read, and decides where the job's claims can be mounted."""
    claims = [claim for claim in state.claims if claim["metadata"]["name"] in names(job)]
    if VOLUMES in state.unread and any(claim["spec"].get("volumeName") or is_static(claim, state) for claim in claims):
        yield VOLUMES
    if CLASSES in state.unread and any(unbound(claim, ()) and not lost(claim) for claim in claims):
        yield CLASSES


def late_class(claim: Json, state: Snapshot) -> Json | None:
    """The class of a claim that gets its volume once its first pod has a node; None if it has one, or needs no pod."""
    name, phase = claim["spec"].get("storageClassName"), (claim.get("status") or {}).get("phase")
    own = next((item for item in state.classes if item["metadata"]["name"] == name), {})
    return own if phase not in {"Bound", "Lost"} and own.get("volumeBindingMode") == "WaitForFirstConsumer" else None


def is_static(claim: Json, state: Snapshot) -> bool:
    """Whether a claim gets one of the volumes that exist once its pod has a node: its class makes none."""
    return (late_class(claim, state) or {}).get("provisioner") == "kubernetes.io/no-provisioner"


def suits(volume: Json, claim: Json) -> bool:
    """Whether a volume is free, and a claim may get it, as far as class, size and access modes say."""
    spec, wanted, phase = volume["spec"], claim["spec"], (volume.get("status") or {}).get("phase")
    user = spec.get("claimRef") or {}  # also of a volume that an administrator keeps for a claim
    own = all(user.get(key) == claim["metadata"].get(key) for key in ("name", "namespace"))
    # A deleted claim may have had this name.
    own = own and (user.get("uid") or None) in {None, claim["metadata"].get("uid")}
    size = ((wanted.get("resources") or {}).get("requests") or {}).get("storage", "0")
    return (
        (own or (not user and phase not in {"Bound", "Released", "Failed"}))
        and (spec.get("storageClassName") or "") == (wanted.get("storageClassName") or "")
        and milli(str((spec.get("capacity") or {}).get("storage", "0"))) >= milli(str(size))
        and {*wanted.get("accessModes", ())} <= {*spec.get("accessModes", ())}
    )


def unplaced(job: Demand, state: Snapshot) -> Iterator[str]:
    """What the scheduler chooses when it places the pods, and is not computed here."""
    for claim in state.claims:
        name, of_class = claim["metadata"]["name"], claim["spec"].get("storageClassName")
        if name in names(job) and is_static(claim, state) and _free(claim, state):
            yield f"on which node volume claim {name} gets one of the free volumes of {of_class}"


def in_zone(key: str, values: list[str]) -> list[list[Json]]:
    """What labels of a node have to say, one list or another, for a volume with this label of a zone."""
    newer = ZONES[key]
    rule: Json = {"key": key, "operator": "In", "values": values}
    without = [] if newer == key else [[{"key": key, "operator": "DoesNotExist"}, {**rule, "key": newer}]]
    return [[rule], *without]


def pinned(job: Demand, state: Snapshot) -> dict[str, Json]:
    """The node selectors of the volumes behind the job's claims."""
    volumes = {item["metadata"]["name"]: item for item in state.volumes}
    selectors = {}
    for claim in state.claims:
        volume = volumes.get(claim["spec"].get("volumeName") or "") or {}
        required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
        labels = (volume.get("metadata") or {}).get("labels") or {}
        zones = [in_zone(key, labels[key].split("__")) for key in ZONES if key in labels]
        if zones:  # which keep a pod from no node that has none
            none = [{"key": key, "operator": "DoesNotExist"} for key in ZONES]
            required = {"nodeSelectorTerms": [
                {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *rules]}
                for term in (required or {"nodeSelectorTerms": [{}]})["nodeSelectorTerms"]
                for rules in [*(list(chain(*one)) for one in product(*zones)), none]
            ]}  # fmt: skip
        if required:
            selectors[claim["metadata"]["name"]] = required
    return {name: selectors[name] for name in names(job) if name in selectors}


def allowed(job: Demand, state: Snapshot) -> dict[str, Json]:
    """The node selectors of classes that have yet to make the volumes of the job's claims."""
    selectors = {}
    for claim in state.claims:
        topologies = (late_class(claim, state) or {}).get("allowedTopologies") or ()
        rules = [one.get("matchLabelExpressions") or () for one in topologies]
        terms = [{"matchExpressions": [{**one, "operator": "In"} for one in own]} for own in rules]
        if terms and claim["metadata"]["name"] in names(job):
            selectors[claim["metadata"]["name"]] = {"nodeSelectorTerms": terms}
    return selectors


def homes(selector: Json) -> list[str]:
    """The nodes that a volume's node selector names, sorted; none if it selects nodes otherwise.

    >>> homes({"nodeSelectorTerms": [{"matchExpressions": [
    ...     {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]})
    ['node-1']
    """
    terms = selector.get("nodeSelectorTerms") or ()
    rules = [(term.get(kind) or (), key) for term in terms for kind, key in NODE_NAMES.items()]
    return sorted({str(value) for own, key in rules for rule in own
                   if (rule["key"], rule["operator"]) == (key, "In") for value in rule["values"]})  # fmt: skip


def volume_causes(job: Demand, state: Snapshot) -> Iterator[Cause]:
    """Claims that do not exist, go away, are not bound, or are mounted where they cannot be shared."""
    if "persistentvolumeclaims" in state.unread:
        return
    by_name = {item["metadata"]["name"]: item for item in state.claims}
    for name in names(job):
        claim = by_name.get(name)
        if claim is None:
            fix = f"create the claim {name} in namespace {job.namespace}, or name another"
            yield Cause("volume-missing", f"its volume claim {name} does not exist", (), fix, _bound(name))
        elif claim["metadata"].get("deletionTimestamp"):
            fix = "wait until its last pod has ended, then create it again; or name another claim"
            yield Cause("volume-terminating", f"its volume claim {name} is being deleted", (), fix, _bound(name))
        elif cause := _shared(job, claim):
            yield cause
        elif is_stuck(claim, state):
            reason = why_pending(claim, state.classes, state.events, state.pods.items)
            what, _, fix = reason.partition(". Fix: ")
            phase = (claim.get("status") or {}).get("phase") or "without a state"
            text = f"its volume claim {name} is {phase}"
            yield Cause("volume-unbound", text, (what,) if what else (), fix.rstrip("."), _bound(name))
        elif is_static(claim, state) and VOLUMES not in state.unread and not _free(claim, state):
            yield _none_free(claim)
        elif cause := _alone(job, claim, state):
            yield cause


def is_stuck(claim: Json, state: Snapshot) -> bool:
    """Whether a claim should be bound and is not. One that names a free, suitable volume will be within seconds."""
    if lost(claim):
        return True
    name = claim["spec"].get("volumeName")
    soon = any(one["metadata"]["name"] == name and suits(one, claim) for one in state.volumes)
    return not soon and CLASSES not in state.unread and unbound(claim, state.classes)


def _free(claim: Json, state: Snapshot) -> bool:
    return any(suits(volume, claim) for volume in state.volumes)


def _none_free(claim: Json) -> Cause:
    name, (evidence, fix) = claim["metadata"]["name"], none_free(claim, claim["spec"]["storageClassName"])
    return Cause("volume-unbound", f"its volume claim {name} is not bound", (evidence,), fix, _bound(name))


def _shared(job: Demand, claim: Json) -> Cause | None:
    """What is wrong with a claim that only one pod may mount, and that several of the job's do."""
    name = claim["metadata"]["name"]
    number = sum(part.minimum for part in job.parts if name in claims_of(part.spec))
    if number < 2 or "ReadWriteOncePod" not in claim["spec"].get("accessModes", ()):
        return None
    text = f"its volume claim {name} is ReadWriteOncePod, and {number} of its pods mount it"
    fix = "name a claim that several pods may mount (ReadWriteMany), or mount it in one pod"
    return Cause("volume-one-pod", text, (), fix, _bound(name))


def _alone(job: Demand, claim: Json, state: Snapshot) -> Cause | None:
    """What is wrong with a claim that only one pod may mount, and that another one mounts."""
    name = claim["metadata"]["name"]
    if "ReadWriteOncePod" not in claim["spec"].get("accessModes", ()):
        return None
    users = [
        pod
        for pod in state.pods.items
        if pod["metadata"]["namespace"] == job.namespace
        and pod["spec"].get("nodeName")
        and name in claims_of(pod["spec"])
    ]
    if not users:
        return None
    text = f"its volume claim {name} is ReadWriteOncePod, and another pod mounts it"
    evidence = (f"pod {users[0]['metadata']['name']} mounts it",)

    def removal(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
        uids = {pod["metadata"]["uid"] for pod in users}
        return job, state.without(uids)

    fix = "wait until that pod has ended, or name another claim"
    return Cause("volume-in-use", text, evidence, fix, removal, passing=True)


def _bound(name: str) -> Removal:
    def removal(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
        rest = [item for item in state.claims if item["metadata"]["name"] != name]
        claim: Json = {
            "metadata": {"name": name, "namespace": job.namespace},
            "spec": {"accessModes": ["ReadWriteMany"]},
            "status": {"phase": "Bound"},
        }
        return job, replace(state, claims=(*rest, claim))

    return removal
