"""Whether the volume claims of a job can be mounted, and on which nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gangplank.scheduling.cause import Cause, Removal
from gangplank.scheduling.demand import claims_of
from gangplank.site.claim_pending import unbound, why_pending

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.snapshot import Snapshot
    from gangplank.spec import Json


VOLUMES, CLASSES = "persistentvolumes", "storageclasses"
NODE_NAMES = {"matchExpressions": "kubernetes.io/hostname", "matchFields": "metadata.name"}


def names(job: Demand) -> list[str]:
    """The claims that the job's pods mount, sorted."""
    return sorted({claim for part in job.parts for claim in claims_of(part.spec)})


def unread(job: Demand, state: Snapshot) -> Iterator[str]:
    """What may not be read, and decides where the job's claims can be mounted."""
    claims = [claim for claim in state.claims if claim["metadata"]["name"] in names(job)]
    if VOLUMES in state.unread and any(claim["spec"].get("volumeName") for claim in claims):
        yield VOLUMES
    if CLASSES in state.unread and any(unbound(claim, ()) for claim in claims):
        yield CLASSES


def pinned(job: Demand, state: Snapshot) -> dict[str, Json]:
    """The node selectors of the volumes behind the job's claims."""
    volumes = {item["metadata"]["name"]: item for item in state.volumes}
    selectors = {}
    for claim in state.claims:
        volume = volumes.get(claim["spec"].get("volumeName") or "")
        required = ((volume or {}).get("spec") or {}).get("nodeAffinity") or {}
        if required.get("required"):
            selectors[claim["metadata"]["name"]] = required["required"]
    return {name: selectors[name] for name in names(job) if name in selectors}


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
        elif unbound(claim, state.classes) and CLASSES not in state.unread:
            reason = why_pending(claim, state.classes, state.events, state.pods.items)
            what, _, fix = reason.partition(". Fix: ")
            phase = (claim.get("status") or {}).get("phase") or "without a state"
            text = f"its volume claim {name} is {phase}"
            yield Cause("volume-unbound", text, (what,) if what else (), fix.rstrip("."), _bound(name))
        elif cause := _alone(job, claim, state):
            yield cause


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
