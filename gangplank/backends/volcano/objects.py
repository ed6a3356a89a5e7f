"""What Volcano makes of any Job, ours or third-party: pods, the plugins' objects and the PodGroup.

Follows volcano.sh/volcano v1.15.1: the mutating webhook, then createJobPod, then every plugin, and the PodGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import gang
from gangplank.backends.base import RANDOM, Site, acyclic, refuse
from gangplank.backends.queueing import JOB_NAME, VOLCANO
from gangplank.backends.volcano import plugins, policies
from gangplank.backends.volcano.block import NOT_YET
from gangplank.errors import Problem, shown
from gangplank.k8s import manifest as shape
from gangplank.k8s import names, pod_resources
from gangplank.k8s.build import add_mount, clone, containers, namespace, owner
from gangplank.k8s.manifest import Count

if TYPE_CHECKING:
    from gangplank.reading.fields import Problems
    from gangplank.spec import Json

TOPOLOGY = {"mode": str, "highestTierAllowed": Count, "highestTierName": str}
PARTITION = {"totalPartitions": Count, "partitionSize": Count, "minPartitions": Count, "networkTopology": TOPOLOGY}
TASK = {
    "name": str,
    "replicas": Count,
    "minAvailable": Count,
    "template": shape.TEMPLATE,
    "policies": [policies.FORM],
    "topologyPolicy": str,
    "partitionPolicy": PARTITION,
}
FORM = {
    "spec": {
        "schedulerName": str,
        "queue": str,
        "minAvailable": Count,
        "priorityClassName": str,
        "plugins": shape.each([str]),
        "policies": [policies.FORM],
        "tasks": [TASK],
        "volumes": [{"mountPath": str, "volumeClaimName": str, "volumeClaim": dict}],
        "networkTopology": TOPOLOGY,
    }
}
# Of the job's own metadata only these reach its pods.
FROM_ANNOTATIONS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/revocable-zone")
FROM_LABELS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")
WANT_SVC = ("tensorflow", "mpi", "pytorch", "ray")


def admitted(manifest: Json, site: Site) -> Json:
    """The job as the mutating webhook leaves it; refuses what the expansion below could not read."""
    problems: Problems = []
    job = shape.manifest(manifest, FORM, problems)
    refuse(problems, manifest)
    spec = job["spec"]
    _check(job, problems)
    refuse(problems, manifest)
    spec["queue"] = spec.get("queue") or VOLCANO.default
    spec["schedulerName"] = spec.get("schedulerName") or site.scheduler
    for index, task in enumerate(spec["tasks"]):
        task["name"] = task.get("name") or f"default{index}"
        task.setdefault("replicas", 0)  # an omitted count really means no pods
        template = task.setdefault("template", {})
        pod = template.setdefault("spec", {})
        template.setdefault("metadata", {})
        if pod.get("hostNetwork") and not pod.get("dnsPolicy"):
            pod["dnsPolicy"] = "ClusterFirstWithHostNet"
        if "minAvailable" not in task:
            part = task.get("partitionPolicy", {})
            parts = part.get("minPartitions", 0)
            task["minAvailable"] = parts * part.get("partitionSize", 0) if parts else task["replicas"]
    if not spec.get("minAvailable"):
        spec["minAvailable"] = sum(task["minAvailable"] for task in spec["tasks"])
    used = spec.get("plugins", {})
    if any(name in used for name in WANT_SVC):
        used.setdefault("svc", [])
    spec["plugins"] = used
    _check_names(job, problems)
    refuse(problems, manifest)
    return job


def _check(job: Json, problems: Problems) -> None:
    """Refuse what Volcano's own webhook refuses before it looks at names."""
    spec, tasks = job["spec"], job["spec"].get("tasks")
    if not tasks:
        problems.append(Problem("Job.spec.tasks", shown(tasks), "at least one task"))
        return
    for name in spec.get("plugins", {}):
        if name in NOT_YET:
            expected = "a plugin for PyTorch (this one is not supported yet)"
            problems.append(Problem(f"Job.spec.plugins.{name}", name, expected))
        elif name not in plugins.FLAGS:
            problems.append(Problem(f"Job.spec.plugins.{name}", name, f"one of {', '.join(plugins.FLAGS)}"))
    task_names: set[str] = set()
    for index, task in enumerate(tasks):
        name = task.get("name") or f"default{index}"
        if name in task_names:
            problems.append(Problem(f"Job.spec.tasks[{index}].name", shown(name), "a name of its own"))
        task_names.add(name)
        if task.get("minAvailable", 0) > task.get("replicas", 0):
            where = f"Job.spec.tasks[{index}].minAvailable"
            problems.append(Problem(where, shown(task["minAvailable"]), f"at most {task.get('replicas', 0)} replicas"))
        if not task.get("template", {}).get("spec", {}).get("containers"):
            problems.append(Problem(f"Job.spec.tasks[{index}].template.spec.containers", "nothing", "a container"))
        policies.check(task.get("policies"), f"Job.spec.tasks[{index}].policies", problems)
    policies.check(spec.get("policies"), "Job.spec.policies", problems)
    total = sum(task.get("replicas", 0) for task in tasks)
    if spec.get("minAvailable", 0) > total:
        problems.append(Problem("Job.spec.minAvailable", shown(spec["minAvailable"]), f"at most {total} replicas"))


def _check_names(job: Json, problems: Problems) -> None:
    """Refuse names that the webhook lets pass and that no pod can have."""
    for index, task in enumerate(job["spec"]["tasks"]):
        where = f"Job.spec.tasks[{index}].name"
        if not names.DNS1123.fullmatch(task["name"]):
            problems.append(Problem(where, shown(task["name"]), "a-z, 0-9 and -, at most 63"))
        longest = f"{job['metadata']['name']}-{task['name']}-{max(task['replicas'] - 1, 0)}"
        if task["replicas"] and "svc" in job["spec"]["plugins"] and not names.DNS1123.fullmatch(longest):
            problems.append(Problem(where, shown(longest), "a pod's name that is a host name: at most 63, no dots"))


def pod_of(job: Json, task: Json, index: int, site: Site) -> Json:
    """One pod as createJobPod makes it, before the plugins."""
    name, spec, template = job["metadata"]["name"], job["spec"], task["template"]
    meta, pod = clone(template["metadata"]), clone(template["spec"])
    pod["schedulerName"] = pod.get("schedulerName") or spec["schedulerName"]
    if not pod.get("priorityClassName") and spec.get("priorityClassName"):
        pod["priorityClassName"] = spec["priorityClassName"]
    for volume, claim in claims(job):
        pod.setdefault("volumes", []).append({"name": volume, "persistentVolumeClaim": {"claimName": claim["name"]}})
        for container in containers(pod):
            add_mount(container, {"name": volume, "mountPath": claim["mount"]})
    annotations, labels = meta.get("annotations", {}), meta.get("labels", {})
    annotations |= {
        "volcano.sh/task-index": str(index),
        "volcano.sh/task-spec": task["name"],
        VOLCANO.group: f"{name}-{site.uid}",
        JOB_NAME: name,
        "volcano.sh/queue-name": spec["queue"],
        "volcano.sh/job-version": "0",
        "volcano.sh/job-retry-count": "0",
        "volcano.sh/template-uid": f"{name}-{task['name']}",
    }
    if task.get("topologyPolicy"):
        annotations["volcano.sh/numa-topology-policy"] = task["topologyPolicy"]
    own = job["metadata"].get("annotations", {})
    annotations |= {key: own[key] for key in FROM_ANNOTATIONS if key in own}
    budget = [key for key in ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable") if key in own]
    annotations |= {key: own[key] for key in budget[:1]}
    labels |= {
        "volcano.sh/task-index": str(index),
        JOB_NAME: name,
        "volcano.sh/task-spec": task["name"],
        "volcano.sh/job-namespace": namespace(job),
        "volcano.sh/queue-name": spec["queue"],
    }
    job_labels = job["metadata"].get("labels", {})
    labels |= {key: job_labels[key] for key in FROM_LABELS if key in job_labels}
    if "partitionPolicy" in task:
        size = task["partitionPolicy"].get("partitionSize", 0)
        labels["volcano.sh/partition-id"] = str(index // size if size else 0)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{task['name']}-{index}",
            "namespace": namespace(job),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owner(job, site.uid),
        },
        "spec": pod,
    }


def claims(job: Json) -> list[tuple[str, Json]]:
    """The job's own volumes, one per claim, by the name that its pods give them; claims to be made have no name yet."""
    by_name: dict[str, Json] = {}
    for index, volume in enumerate(job["spec"].get("volumes", [])):
        claim = volume.get("volumeClaimName") or f"{job['metadata']['name']}-pvc-{RANDOM}{index}"
        by_name.setdefault(claim, {"name": claim, "mount": volume.get("mountPath", ""), **volume})
    return [(f"{job['metadata']['name']}-{RANDOM}{index}", claim) for index, claim in enumerate(by_name.values())]


def min_resources(job: Json, site: Site) -> dict[str, str]:
    """What the gang needs in all, as the scheduler's enqueue action will weigh it."""
    tasks = sorted(
        job["spec"]["tasks"],
        key=lambda task: -site.priorities.get(task["template"]["spec"].get("priorityClassName", ""), 0),
    )
    members = job["spec"]["minAvailable"]
    counts = [0] * len(tasks)
    if members < sum(task["minAvailable"] for task in tasks):
        for at, task in enumerate(tasks):
            counts[at] = min(task["replicas"], members - sum(counts))
    else:
        for at, task in enumerate(tasks):
            counts[at] = min(task["minAvailable"], members - sum(counts))
        for at, task in enumerate(tasks):
            counts[at] += min(task["replicas"] - task["minAvailable"], max(members - sum(counts), 0))
    total: pod_resources.Amounts = {}
    for count, task in zip(counts, tasks, strict=True):
        if count > 0:
            one = pod_resources.usage(task["template"]["spec"])
            total = pod_resources.add(total, {name: amount.times(count) for name, amount in one.items()})
    return pod_resources.written(total)


def pod_group(job: Json, site: Site) -> Json:
    """The gang: how many pods, of which tasks, must fit before any starts."""
    meta, spec = job["metadata"], job["spec"]
    name = f"{meta['name']}-{site.uid}"
    where: Json = {"name": name, "namespace": namespace(job), "ownerReferences": owner(job, site.uid)}
    where.update({key: clone(meta[key]) for key in ("labels", "annotations") if meta.get(key)})
    body: Json = {
        "minMember": spec["minAvailable"],
        "minTaskMember": {task["name"]: task["minAvailable"] for task in spec["tasks"]},
        "queue": spec["queue"],
        "minResources": min_resources(job, site),
    }
    if spec.get("priorityClassName"):
        body["priorityClassName"] = spec["priorityClassName"]
    if "networkTopology" in spec:
        body["networkTopology"] = topology(spec["networkTopology"])
    groups = [sub_group(task) for task in spec["tasks"] if "partitionPolicy" in task]
    if groups:
        body["subGroupPolicy"] = groups
    return gang.pod_group(where, body)


def topology(limits: Json) -> Json:
    """Network limits as the PodGroup has them: a tier's number wins over its name."""
    kept: Json = {"mode": limits.get("mode", "hard")}
    if "highestTierAllowed" in limits:
        kept["highestTierAllowed"] = limits["highestTierAllowed"]
    elif limits.get("highestTierName"):
        kept["highestTierName"] = limits["highestTierName"]
    return kept


def sub_group(task: Json) -> Json:
    """The part of a PodGroup that keeps a task's partitions together."""
    part = task["partitionPolicy"]
    group: Json = {
        "name": task["name"],
        "subGroupSize": part.get("partitionSize", 0),
        "minSubGroups": part.get("minPartitions", 0),
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": task["name"]}},
        "matchLabelKeys": ["volcano.sh/partition-id"],
    }
    if "networkTopology" in part:
        group["networkTopology"] = {"mode": "hard", **part["networkTopology"]}
    return group


@acyclic
def objects(manifest: Json, site: Site | None = None) -> list[Json]:
    """Everything that Volcano makes of a Job; tasks that wait for others (dependsOn) are there too, as they will be."""
    site = site or Site()
    job = admitted(manifest, site)
    used = job["spec"]["plugins"]
    items: list[Json] = []
    for volume in job["spec"].get("volumes", []):
        if not volume.get("volumeClaimName") and volume.get("volumeClaim"):
            at = job["spec"]["volumes"].index(volume)
            name = f"{job['metadata']['name']}-pvc-{RANDOM}{at}"
            where = plugins.meta(job, name, site.uid)
            items.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": where,
                    "spec": clone(volume["volumeClaim"]),
                }
            )
    items += plugins.svc_objects(job, site.uid) if "svc" in used else []
    items += plugins.ssh_objects(job, site.uid) if "ssh" in used else []
    items.append(pod_group(job, site))
    for task in job["spec"]["tasks"]:
        for index in range(task["replicas"]):
            pod = pod_of(job, task, index, site)
            if "pytorch" in used:
                plugins.pytorch_pod(job, pod, task, index)
            if "svc" in used:
                plugins.svc_pod(job, pod)
            if "env" in used:
                plugins.env_pod(pod, index)
            if "ssh" in used:
                plugins.ssh_pod(job, pod)
            items.append(pod)
    return items
