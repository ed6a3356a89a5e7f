"""What JobSet makes of a JobSet: a headless Service, Jobs, and through these the pods.

Follows sigs.k8s.io/jobset v0.12.0, pkg/webhooks and pkg/controllers/jobset_controller.go.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from gangplank.backends.base import Site, refuse
from gangplank.backends.indexed import objects as indexed_objects
from gangplank.errors import Problem, shown
from gangplank.k8s.build import clone, namespace, owner

if TYPE_CHECKING:
    from gangplank.spec import Json

PREFIX = "jobset.sigs.k8s.io"


def defaulted(given: Json) -> Json:
    """A JobSet as its mutating webhook leaves it."""
    made: Json = clone(given)
    spec = made["spec"]
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    for part in spec["replicatedJobs"]:
        part.setdefault("replicas", 1)
        part.setdefault("groupName", "default")
        inner = part["template"]["spec"]
        inner.setdefault("completionMode", "Indexed")
        pod = inner["template"]["spec"]
        pod["restartPolicy"] = pod.get("restartPolicy") or "OnFailure"
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    return made


def marks(made: Json, part: Json, index: int, uid: str) -> dict[str, str]:
    """What JobSet writes on every Job and pod, as labels and as annotations."""
    parts, name = made["spec"]["replicatedJobs"], made["metadata"]["name"]
    group = [other for other in parts if other["groupName"] == part["groupName"]]
    before = sum(other["replicas"] for other in parts[: parts.index(part)])
    before_in_group = sum(other["replicas"] for other in group[: group.index(part)])
    key = f"{namespace(made)}/{name}-{part['name']}-{index}"
    found = {
        "jobset-name": name,
        "jobset-uid": uid,
        "replicatedjob-name": part["name"],
        "restart-attempt": "0",
        "replicatedjob-replicas": str(part["replicas"]),
        "global-replicas": str(sum(other["replicas"] for other in parts)),
        "job-index": str(index),
        "job-key": hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest(),
        "job-global-index": str(before + index),
        "group-name": part["groupName"],
        "group-replicas": str(sum(other["replicas"] for other in group)),
        "job-group-index": str(before_in_group + index),
    }
    return {f"{PREFIX}/{name}": text for name, text in found.items()}


def job_of(made: Json, part: Json, index: int, site: Site) -> Json:
    """One Job of a JobSet."""
    template, written = clone(part["template"]), marks(made, part, index, site.uid)
    meta, spec = template.get("metadata", {}), template["spec"]
    inner = spec["template"].setdefault("metadata", {})
    for target in (meta, inner):
        for key in ("labels", "annotations"):
            target[key] = {**target.get(key, {}), **written}
    if made["spec"]["network"]["enableDNSHostnames"]:
        spec["template"]["spec"]["subdomain"] = made["spec"]["network"].get("subdomain") or made["metadata"]["name"]
    spec["suspend"] = made["spec"].get("suspend", False)
    where: Json = {"name": f"{made['metadata']['name']}-{part['name']}-{index}", "namespace": namespace(made)}
    where |= {"labels": meta["labels"], "annotations": meta["annotations"], "ownerReferences": owner(made, site.uid)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": where, "spec": spec}


def objects(given: Json, site: Site) -> list[Json]:
    """The JobSet as it is stored, its Service, its Jobs and their pods."""
    made = defaulted(given)
    found: list[Json] = [made]
    if made["spec"]["network"]["enableDNSHostnames"]:
        name = made["spec"]["network"].get("subdomain") or made["metadata"]["name"]
        where = {"name": name, "namespace": namespace(made), "ownerReferences": owner(made, site.uid)}
        service = {
            "clusterIP": "None",
            "selector": {f"{PREFIX}/jobset-name": made["metadata"]["name"]},
            "publishNotReadyAddresses": made["spec"]["network"]["publishNotReadyAddresses"],
        }
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": where, "spec": service})
    for part in made["spec"]["replicatedJobs"]:
        problems = []
        if part["template"]["spec"]["completionMode"] != "Indexed":
            got = shown(part["template"]["spec"]["completionMode"])
            problems.append(Problem("replicatedJobs.template.spec.completionMode", got, "Indexed"))
        refuse(problems, made)
        for index in range(part["replicas"]):
            job = job_of(made, part, index, site)
            found.append(job)
            for pod in indexed_objects.objects(job, site):
                priority = site.priorities.get(pod["spec"].get("priorityClassName", ""), 0)
                pod["metadata"]["labels"][f"{PREFIX}/priority"] = str(priority)
                found.append(pod)
    return found
