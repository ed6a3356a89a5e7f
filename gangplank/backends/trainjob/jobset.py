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
JOBSET_NAME = f"{PREFIX}/jobset-name"


def defaulted(manifest: Json) -> Json:
    """A JobSet as its mutating webhook leaves it."""
    jobset: Json = clone(manifest)
    spec = jobset["spec"]
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
    return jobset


def marks(jobset: Json, part: Json, index: int, uid: str) -> dict[str, str]:
    """What JobSet writes on every Job and pod, as labels and as annotations."""
    parts, name = jobset["spec"]["replicatedJobs"], jobset["metadata"]["name"]
    group = [other for other in parts if other["groupName"] == part["groupName"]]
    before = sum(other["replicas"] for other in parts[: parts.index(part)])
    before_in_group = sum(other["replicas"] for other in group[: group.index(part)])
    key = f"{namespace(jobset)}/{name}-{part['name']}-{index}"
    values = {
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
    return {JOBSET_NAME: name, **{f"{PREFIX}/{key}": text for key, text in values.items()}}


def job_of(jobset: Json, part: Json, index: int, site: Site) -> Json:
    """One Job of a JobSet."""
    template, written = clone(part["template"]), marks(jobset, part, index, site.uid)
    meta, spec = template.get("metadata", {}), template["spec"]
    inner = spec["template"].setdefault("metadata", {})
    for target in (meta, inner):
        for key in ("labels", "annotations"):
            target[key] = {**target.get(key, {}), **written}
    if jobset["spec"]["network"]["enableDNSHostnames"]:
        spec["template"]["spec"]["subdomain"] = jobset["spec"]["network"].get("subdomain") or jobset["metadata"]["name"]
    spec["suspend"] = jobset["spec"].get("suspend", False)
    where: Json = {"name": f"{jobset['metadata']['name']}-{part['name']}-{index}", "namespace": namespace(jobset)}
    where |= {"labels": meta["labels"], "annotations": meta["annotations"], "ownerReferences": owner(jobset, site.uid)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": where, "spec": spec}


def objects(manifest: Json, site: Site) -> list[Json]:
    """The JobSet as it is stored, its Service, its Jobs and their pods."""
    jobset = defaulted(manifest)
    items: list[Json] = [jobset]
    if jobset["spec"]["network"]["enableDNSHostnames"]:
        name = jobset["spec"]["network"].get("subdomain") or jobset["metadata"]["name"]
        where = {"name": name, "namespace": namespace(jobset), "ownerReferences": owner(jobset, site.uid)}
        service = {
            "clusterIP": "None",
            "selector": {JOBSET_NAME: jobset["metadata"]["name"]},
            "publishNotReadyAddresses": jobset["spec"]["network"]["publishNotReadyAddresses"],
        }
        items.append({"apiVersion": "v1", "kind": "Service", "metadata": where, "spec": service})
    for part in jobset["spec"]["replicatedJobs"]:
        problems = []
        if part["template"]["spec"]["completionMode"] != "Indexed":
            got = shown(part["template"]["spec"]["completionMode"])
            problems.append(Problem("replicatedJobs.template.spec.completionMode", got, "Indexed"))
        refuse(problems, jobset)
        for index in range(part["replicas"]):
            job = job_of(jobset, part, index, site)
            items.append(job)
            for pod in indexed_objects.objects(job, site):
                priority = site.priorities.get(pod["spec"].get("priorityClassName", ""), 0)
                pod["metadata"]["labels"][f"{PREFIX}/priority"] = str(priority)
                items.append(pod)
    return items
