"""Why a claim stays Pending, by one cause with its evidence and its fix. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gangplank.site.storage import is_default

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gangplank.spec import Json

# What provisioners say, in the messages of their ProvisioningFailed events.
ACCESS = re.compile(r"access ?mode|only supports ReadWrite", re.IGNORECASE)
CAPACITY = re.compile(r"no space|insufficient|not enough|capacity|quota|ResourceExhausted", re.IGNORECASE)
SHOWN = 300  # characters of an event that is shown


def unbound(claim: Json, classes: Iterable[Json]) -> bool:
    """Whether a claim should be bound and is not: one that waits for its first pod should not."""
    known = {item["metadata"]["name"]: item for item in classes}
    given = known.get(claim["spec"].get("storageClassName") or "") or {}
    waits = given.get("volumeBindingMode") == "WaitForFirstConsumer"
    return (claim.get("status") or {}).get("phase") != "Bound" and not waits


def why_pending(claim: Json, classes: Iterable[Json], events: Sequence[Json], pods: Iterable[Json] = ()) -> str:
    """One line for a claim that is Pending; "" for any other. Of `pods` and `events` its own count."""
    if (claim.get("status") or {}).get("phase") != "Pending":
        return ""
    known = {item["metadata"]["name"]: item for item in classes}
    cause, evidence, fix = _cause(claim, known, events, list(pods))
    return f"{claim['metadata']['name']}: {cause}: {evidence[:SHOWN]}. Fix: {fix}."


def _cause(claim: Json, known: dict[str, Json], events: Sequence[Json], pods: list[Json]) -> tuple[str, str, str]:
    name = claim["spec"].get("storageClassName")
    there = ", ".join(sorted(known)) or "none"
    if not name and not any(is_default(item) for item in known.values()):
        return "no class", f"it names none, and none of {there} is the default", "name a class, or mark a default"
    if name and name not in known:
        return "no class", f"it names {name}; there are: {there}", "create that class, or make the claim with another"
    given = known.get(name or "") or next(item for item in known.values() if is_default(item))
    meta = claim["metadata"]
    users = [pod for pod in pods if _uses(pod, meta["namespace"], meta["name"])]
    if given.get("volumeBindingMode") == "WaitForFirstConsumer" and not users:  # whatever failed for an earlier pod
        return "it waits for its first pod", f"the class {name} binds when a pod uses the claim", "run a job that does"
    modes = ", ".join(claim["spec"]["accessModes"])
    if given["provisioner"] == "kubernetes.io/no-provisioner":  # of which the controller says ProvisioningFailed
        size = claim["spec"]["resources"]["requests"]["storage"]
        evidence = f"no free volume of {name} has {size} and {modes}"
        return "capacity", evidence, "create a PersistentVolume for it: this class makes none"
    own = [event for event in events if _of(event["involvedObject"], meta["namespace"], meta["name"])]
    failed = next((event["message"] for event in reversed(own) if event["reason"] == "ProvisioningFailed"), "")
    if ACCESS.search(failed):
        return "access mode", f"{modes} of {name}: {failed}", "use a class that has this access mode"
    if CAPACITY.search(failed):
        return "capacity", failed, "ask for less, or give the storage behind the class more"
    if failed:
        return "provisioning failed", failed, "mend what this line names"
    unplaced = [pod for pod in users if not pod["spec"].get("nodeName")]
    told = [
        condition.get("message", "")
        for pod in unplaced
        for condition in (pod.get("status") or {}).get("conditions", [])
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]
    if given.get("volumeBindingMode") == "WaitForFirstConsumer" and told:
        pod = unplaced[0]["metadata"]["name"]
        return "it waits for its first pod", f"pod {pod} is not placed: {told[0]}", "see why the pod is not placed"
    if not any(event["reason"] == "Provisioning" for event in own):
        evidence = f"nobody answers for {given['provisioner']}, which the class {given['metadata']['name']} names"
        return "no provisioner", evidence, "install that provisioner, or see why it does not run"
    return "provisioning goes on", own[-1]["message"], "wait, or see the provisioner's log"


def _of(given: Json, namespace: str, name: str) -> bool:
    """Whether an event's involvedObject is this one."""
    return bool(given.get("namespace") == namespace and given.get("name") == name)


def _uses(pod: Json, namespace: str, claim: str) -> bool:
    """Whether a pod mounts a claim."""
    volumes = pod["spec"].get("volumes") or []
    names = [(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes]
    return claim in names and pod["metadata"]["namespace"] == namespace
