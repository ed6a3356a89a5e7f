"""Why a volume claim stays Pending: one cause, with its evidence and its fix. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gangplank.site.storage import is_default
from gangplank.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gangplank.spec import Json

# Words of provisioners, in the messages of their ProvisioningFailed events.
ACCESS = re.compile(r"access ?mode|only supports ReadWrite", re.IGNORECASE)
CAPACITY = re.compile(r"no space|insufficient|not enough|capacity|quota|ResourceExhausted", re.IGNORECASE)
SHOWN = 300  # characters of an event that is shown


def lost(claim: Json) -> bool:
    """Whether a claim was bound, and its volume is gone: nothing binds it again."""
    return bool((claim.get("status") or {}).get("phase") == "Lost")


def unbound(claim: Json, classes: Iterable[Json]) -> bool:
    """Whether a claim should be bound and is not; one that waits for its first pod need not be."""
    by_name = {item["metadata"]["name"]: item for item in classes}
    storage_class = by_name.get(claim["spec"].get("storageClassName") or "") or {}
    waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    return (claim.get("status") or {}).get("phase") != "Bound" and (lost(claim) or not waits)


def none_free(claim: Json, name: str) -> tuple[str, str]:
    """Evidence and fix for a claim of this class, or of none, where nobody makes volumes and no free one suits it."""
    size, modes = claim["spec"]["resources"]["requests"]["storage"], ", ".join(claim["spec"]["accessModes"])
    fix = "create a PersistentVolume for it" + (": this class creates none" if name else " that names no class")
    return f"no free volume {f'of {name}' if name else 'without a class'} has {size} and {modes}", fix


def why_pending(claim: Json, classes: Iterable[Json], events: Sequence[Json], pods: Iterable[Json] = ()) -> str:
    """One line for a claim that is Pending or Lost, "" for any other; `pods` and `events` of others are ignored."""
    if lost(claim):
        volume = f"its volume {claim['spec'].get('volumeName')} does not exist, or is that of another claim"
        return f"{claim['metadata']['name']}: {volume}. Fix: delete the claim and create it again, or name another."
    if (claim.get("status") or {}).get("phase") != "Pending":
        return ""
    by_name = {item["metadata"]["name"]: item for item in classes}
    cause, evidence, fix = _cause(claim, by_name, events, list(pods))
    return f"{claim['metadata']['name']}: {cause}: {plain(evidence)[:SHOWN]}. Fix: {fix}."


def _cause(claim: Json, classes: dict[str, Json], events: Sequence[Json], pods: list[Json]) -> tuple[str, str, str]:
    name = claim["spec"].get("storageClassName")
    existing = ", ".join(sorted(classes)) or "no class"
    if name == "":  # written by hand, as for a volume that an administrator has made: no class makes one for it
        return "capacity", *none_free(claim, name)
    if not name and not any(is_default(item) for item in classes.values()):
        evidence = f"it names none, and no class is the default; the cluster has {existing}"
        return "no class", evidence, "name a class, or mark a default"
    if name and name not in classes:
        evidence = f"it names {name}; the cluster has {existing}"
        return "no class", evidence, "create that class, or another claim with an existing class"
    storage_class = classes.get(name or "") or next(item for item in classes.values() if is_default(item))
    name, provisioner = storage_class["metadata"]["name"], storage_class["provisioner"]
    meta = claim["metadata"]
    users = [pod for pod in pods if _uses(pod, meta["namespace"], meta["name"])]
    waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    if waits and not users:  # an earlier pod may have failed
        evidence = f"the class {name} binds when a pod uses the claim"
        return "it waits for its first pod", evidence, "run a job that uses it"
    modes = ", ".join(claim["spec"]["accessModes"])
    if provisioner == "kubernetes.io/no-provisioner":  # the controller reports ProvisioningFailed
        return "capacity", *none_free(claim, name)
    own_events = [event for event in events if _is(event["involvedObject"], meta["namespace"], meta["name"])]
    failures = [event.get("message") or "" for event in own_events if event.get("reason") == "ProvisioningFailed"]
    failed = failures[-1] if failures else ""
    if ACCESS.search(failed):
        return "access mode", f"{modes} of {name}: {failed}", "use a class that has this access mode"
    if CAPACITY.search(failed):
        return "capacity", failed, "request less, or enlarge the storage behind the class"
    if failures:
        return "provisioning failed", failed, "fix what this line names"
    unplaced = [pod for pod in users if not pod["spec"].get("nodeName")]
    reasons = [
        condition.get("message", "")
        for pod in unplaced
        for condition in (pod.get("status") or {}).get("conditions", [])
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]
    if waits and reasons:
        pod = unplaced[0]["metadata"]["name"]
        return "it waits for its first pod", f"pod {pod} is not placed: {reasons[0]}", "check why the pod is not placed"
    if not any(event.get("reason") == "Provisioning" for event in own_events):
        evidence = f"nobody answers for {provisioner}, which the class {name} names"
        return "no provisioner", evidence, "install that provisioner, or check why it does not run"
    return "provisioning is under way", own_events[-1].get("message") or "", "wait, or check the provisioner's log"


def _is(item: Json, namespace: str, name: str) -> bool:
    """Whether an event's involvedObject is this one."""
    return bool(item.get("namespace") == namespace and item.get("name") == name)


def _uses(pod: Json, namespace: str, claim: str) -> bool:
    """Whether a pod mounts a claim."""
    volumes = pod["spec"].get("volumes") or []
    names = [(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes]
    return claim in names and pod["metadata"]["namespace"] == namespace
