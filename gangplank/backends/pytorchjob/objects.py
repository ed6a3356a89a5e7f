"""What the training operator makes of any PyTorchJob, ours or third-party: pods, a Service for each, the PodGroup.

Follows github.com/kubeflow/training-operator v1.9.4: defaults in memory, then pods and Services per replica.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import yaml

from gangplank.backends import gang
from gangplank.backends.base import Site, acyclic, refuse
from gangplank.backends.pytorchjob.block import CONTAINER, PORT
from gangplank.backends.queueing import VOLCANO
from gangplank.errors import Problem, shown
from gangplank.k8s import manifest as shape
from gangplank.k8s import names, pod_resources
from gangplank.k8s.build import add_env, clone, containers, namespace, owner, value
from gangplank.k8s.manifest import Count

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangplank.reading.fields import Problems
    from gangplank.spec import Json

DEFAULT_PORT = 23456
LABEL = "training.kubeflow.org"
JOB_NAME = f"{LABEL}/job-name"
REPLICA = {"replicas": Count, "restartPolicy": str, "template": shape.TEMPLATE}
ELASTIC = {
    "minReplicas": Count,
    "maxReplicas": Count,
    "rdzvBackend": str,
    "rdzvPort": Count,
    "rdzvHost": str,
    "rdzvId": str,
    "rdzvConf": [{"key": str, "value": str}],
    "standalone": bool,
    "nProcPerNode": Count,
    "maxRestarts": Count,
    "metrics": [dict],
}
SCHEDULING = {"minAvailable": Count, "queue": str, "priorityClass": str, "minResources": shape.each(shape.Amount)}
FORM = {
    "spec": {
        "nprocPerNode": str,
        "runPolicy": {"schedulingPolicy": SCHEDULING, "suspend": bool},
        "elasticPolicy": ELASTIC,
        "pytorchReplicaSpecs": shape.each(REPLICA),
    }
}
# Upstream's own template of the container in which a worker waits until the master's name resolves.
INIT_TEMPLATE = """
- name: init-pytorch
  image: {{.InitContainerImage}}
  imagePullPolicy: IfNotPresent
  resources: {limits: {cpu: 100m, memory: 20Mi}, requests: {cpu: 50m, memory: 10Mi}}
  command: ['sh', '-c', 'err=1;for i in $(seq {{.MaxTries}}); do if nslookup {{.MasterAddr}}; then err=0 && break; fi;\
echo waiting for master; sleep 2; done; exit $err']
"""


def admitted(manifest: Json) -> Json:
    """The job as the operator defaults it in memory; refuses what its webhook refuses."""
    problems: Problems = []
    job = shape.manifest(manifest, FORM, problems)
    refuse(problems, manifest)
    _check(job, problems)
    refuse(problems, manifest)
    spec = job["spec"]
    for replica in spec["pytorchReplicaSpecs"].values():
        replica.setdefault("replicas", 1)
        replica["restartPolicy"] = replica.get("restartPolicy") or "OnFailure"
        for container in containers(replica["template"]["spec"]):
            if container["name"] == CONTAINER and all(p.get("name") != PORT for p in container.get("ports", [])):
                container.setdefault("ports", []).append({"name": PORT, "containerPort": DEFAULT_PORT})
    elastic = spec.get("elasticPolicy")
    if elastic is not None:
        workers = spec["pytorchReplicaSpecs"]["Worker"]["replicas"]
        least, most = elastic.get("minReplicas"), elastic.get("maxReplicas")
        elastic["minReplicas"] = next(n for n in (least, most, workers) if n is not None)
        elastic["maxReplicas"] = next(n for n in (most, least, workers) if n is not None)
    if "nprocPerNode" not in spec and "nProcPerNode" not in (elastic or {}):
        spec["nprocPerNode"] = "auto"
    return job


def _check(job: Json, problems: Problems) -> None:
    """Refuse what the operator's webhook refuses, and what it lets pass although no Service can have that name."""
    name, spec = job["metadata"]["name"], job["spec"]

    def bad(path: str, got: object, expected: str) -> None:
        problems.append(Problem(f"PyTorchJob.{path}", shown(got), expected))

    if not names.DNS1035.fullmatch(name):
        bad("metadata.name", name, names.DNS1035_RULE)
    replicas = spec.get("pytorchReplicaSpecs") or {}
    if not replicas:
        bad("spec.pytorchReplicaSpecs", spec.get("pytorchReplicaSpecs"), "Master, Worker or both")
    for kind, replica in replicas.items():
        _check_replica(name, kind, replica, bad)
    elastic = spec.get("elasticPolicy")
    if elastic is not None:
        if "Worker" not in replicas:
            bad("spec.pytorchReplicaSpecs.Worker", None, "workers, as there is an elasticPolicy")
        if "nprocPerNode" in spec and "nProcPerNode" in elastic:
            bad("spec.elasticPolicy.nProcPerNode", elastic["nProcPerNode"], "no number here (spec.nprocPerNode is set)")
        if elastic.get("rdzvConf") == []:
            bad("spec.elasticPolicy.rdzvConf", [], "an entry or no field (an empty list makes the operator panic)")


def _check_replica(name: str, kind: str, replica: Json, bad: Callable[[str, object, str], None]) -> None:
    """Refuse one replica type that cannot be."""
    where = f"spec.pytorchReplicaSpecs.{kind}"
    if kind not in {"Master", "Worker"}:
        bad(where, kind, "Master or Worker, with this spelling")
    count = replica.get("replicas", 0 if kind == "Master" else 1)
    if kind == "Master" and count != 1:
        bad(f"{where}.replicas", replica.get("replicas"), "an explicit 1")
    elif count < 1:
        bad(f"{where}.replicas", count, "at least 1")
    own = replica.get("template", {}).get("spec", {}).get("containers") or []
    if all(container.get("name") != CONTAINER for container in own):
        bad(f"{where}.template.spec.containers", [c.get("name") for c in own], f"one named {CONTAINER}")
    if any(not container.get("image") or not container.get("name") for container in own):
        bad(f"{where}.template.spec.containers", "one without name or image", "a name and an image for each")
    longest = f"{name}-{kind.lower()}-{max(count - 1, 0)}"
    if len(longest) > names.LABEL_MAX:
        bad("metadata.name", longest, f"a Service's name of at most {names.LABEL_MAX}")


def port_of(replica: Json) -> int:
    """The port of the operator's name, which defaulting has made sure of."""
    for container in containers(replica["template"]["spec"]):
        if container["name"] == CONTAINER:
            for port in container["ports"]:
                if port.get("name") == PORT:
                    number: int = port.get("containerPort", 0)
                    return number
    return DEFAULT_PORT


def environment(job: Json, kind: str, index: int) -> list[Json]:
    """What the operator appends to every container's environment, in its order."""
    name, spec = job["metadata"]["name"], job["spec"]
    replicas, elastic = spec["pytorchReplicaSpecs"], spec.get("elasticPolicy")
    nodes = sum(replica["replicas"] for replica in replicas.values())
    processes = spec.get("nprocPerNode")
    variables = [value("PYTHONUNBUFFERED", 1)]
    if "Master" in replicas:
        port, host = port_of(replicas["Master"]), f"{name}-master-0"
        variables += [value("MASTER_PORT", port), value("PET_MASTER_PORT", port)]
        variables += [value("MASTER_ADDR", host), value("PET_MASTER_ADDR", host)]
        rank = index + (kind == "Worker")
        variables.append(value("WORLD_SIZE", nodes * _integer(processes)))
        variables += [value("RANK", rank), value("PET_NODE_RANK", rank)]
    if processes is not None:
        variables.append(value("PET_NPROC_PER_NODE", processes))
    if elastic is None:
        return [*variables, value("PET_NNODES", nodes)]
    host = elastic.get("rdzvHost", f"{name}-worker-0")
    port = elastic.get("rdzvPort", port_of(replicas["Worker"]))
    variables.append(value("PET_RDZV_ENDPOINT", f"{host}:{port}"))
    variables.append(value("PET_RDZV_BACKEND", elastic.get("rdzvBackend", "c10d")))
    variables.append(value("PET_NNODES", f"{elastic['minReplicas']}:{elastic['maxReplicas']}"))
    for field, variable in (("maxRestarts", "MAX_RESTARTS"), ("nProcPerNode", "NPROC_PER_NODE"), ("rdzvId", "RDZV_ID")):
        if field in elastic:
            variables.append(value(f"PET_{variable}", elastic[field]))
    if "rdzvConf" in elastic:
        pairs = ",".join(f"{item.get('key', '')}={item.get('value', '')}" for item in elastic["rdzvConf"])
        variables.append(value("PET_RDZV_CONF", pairs))
    return [*variables, value("PET_STANDALONE", "")] if elastic.get("standalone") else variables


def _integer(text: str | None) -> int:
    """Processes per node as Go's strconv.Atoi reads them, one when it cannot."""
    sign = text[1:] if text and text[0] in "+-" else text
    return int(text) if text and sign and sign.isascii() and sign.isdigit() else 1


@functools.lru_cache(maxsize=64)
def init_containers(name: str, image: str, tries: int, template: str) -> tuple[Json, ...]:
    """What the operator's template makes for the workers of a job; the same for all of them."""
    values = {"InitContainerImage": image, "MaxTries": str(tries), "MasterAddr": f"{name}-master-0"}
    text = re.sub(r"\{\{\s*\.(\w+)\s*\}\}", lambda hit: values[hit[1]], template)
    return tuple(yaml.safe_load(text))


def labels_of(job: Json, kind: str, index: int) -> dict[str, str]:
    """The labels that a replica and its Service share."""
    return {
        f"{LABEL}/operator-name": "pytorchjob-controller",
        JOB_NAME: job["metadata"]["name"],
        f"{LABEL}/replica-type": kind.lower(),
        f"{LABEL}/replica-index": str(index),
    }


def pod_of(job: Json, kind: str, index: int, site: Site) -> Json:
    """One replica's pod."""
    name, replica = job["metadata"]["name"], job["spec"]["pytorchReplicaSpecs"][kind]
    template, pod = replica["template"].get("metadata", {}), clone(replica["template"]["spec"])
    masters = "Master" in job["spec"]["pytorchReplicaSpecs"]
    labels = {**template.get("labels", {}), **labels_of(job, kind, index)}
    if kind == "Master" or (not masters and index == 0):
        labels[f"{LABEL}/job-role"] = "master"
    annotations = dict(template.get("annotations", {}))
    pod["restartPolicy"] = "Never" if replica["restartPolicy"] == "ExitCode" else replica["restartPolicy"]
    variables = environment(job, kind, index)
    for container in containers(pod):
        add_env(container, variables)
    if kind == "Worker" and masters:
        waiting = init_containers(name, site.init_image, site.init_tries, site.init_template or INIT_TEMPLATE)
        pod.setdefault("initContainers", []).extend(clone(list(waiting)))
    if site.gang:
        pod["schedulerName"] = pod.get("schedulerName") or VOLCANO.scheduler
        annotations |= {VOLCANO.group: name, "volcano.sh/task-spec": kind.lower()}
    meta = meta_of(job, f"{name}-{kind.lower()}-{index}", site)
    meta["labels"] = labels
    if annotations:
        meta["annotations"] = annotations
    if template.get("finalizers"):
        meta["finalizers"] = list(template["finalizers"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod}


def meta_of(job: Json, name: str, site: Site) -> Json:
    """The metadata of an object that the operator makes."""
    return {"name": name, "namespace": namespace(job), "ownerReferences": owner(job, site.uid)}


def service_of(job: Json, kind: str, index: int, site: Site) -> Json:
    """One replica's headless Service, under the name of its pod, with the ports of its container pytorch."""
    replica, labels = job["spec"]["pytorchReplicaSpecs"][kind], labels_of(job, kind, index)
    ports = []
    for container in containers(replica["template"]["spec"]):
        if container["name"] == CONTAINER:
            for port in container.get("ports", []):
                named = {"name": port["name"]} if port.get("name") else {}
                ports.append({**named, "port": port.get("containerPort", 0)})
            break
    meta = meta_of(job, f"{job['metadata']['name']}-{kind.lower()}-{index}", site)
    meta["labels"] = labels
    spec = {"clusterIP": "None", "selector": dict(labels), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def pod_group(job: Json, site: Site) -> Json:
    """The gang that the operator asks Volcano for: it has no tasks, and this expansion takes the Master first."""
    spec = job["spec"]
    policy = spec.get("runPolicy", {}).get("schedulingPolicy", {})
    total = sum(replica["replicas"] for replica in spec["pytorchReplicaSpecs"].values())
    least = policy.get("minAvailable", total)
    summed: pod_resources.Amounts = {}
    left = least
    for kind in sorted(spec["pytorchReplicaSpecs"]):  # upstream's order is that of a Go map: random
        replica = spec["pytorchReplicaSpecs"][kind]
        count, left = min(replica["replicas"], left), left - min(replica["replicas"], left)
        for container in containers(replica["template"]["spec"]):
            resources = container.get("resources", {})
            needs = pod_resources.amounts(resources["requests"] if "requests" in resources else resources.get("limits"))
            if count:
                summed = pod_resources.add(summed, {name: amount.times(count) for name, amount in needs.items()})
    meta = meta_of(job, job["metadata"]["name"], site)
    if job["metadata"].get("annotations"):
        meta["annotations"] = dict(job["metadata"]["annotations"])
    body: Json = {"minMember": least, "queue": policy.get("queue") or VOLCANO.default}
    body["minResources"] = policy["minResources"] if "minResources" in policy else pod_resources.written(summed)
    if policy.get("priorityClass"):
        body["priorityClassName"] = policy["priorityClass"]
    return gang.pod_group(meta, body)


def autoscaler(job: Json, site: Site) -> Json:
    """The autoscaler over the job's workers, which elasticPolicy.metrics asks for."""
    elastic = job["spec"]["elasticPolicy"]
    target = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": job["metadata"]["name"]}
    spec = {
        "scaleTargetRef": target,
        "minReplicas": elastic["minReplicas"],
        "maxReplicas": elastic["maxReplicas"],
        "metrics": clone(elastic["metrics"]),
    }
    meta = meta_of(job, job["metadata"]["name"], site)
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec}


@acyclic
def objects(manifest: Json, site: Site | None = None) -> list[Json]:
    """Everything that the operator makes of a PyTorchJob; nothing while it is suspended."""
    site = site or Site()
    job = admitted(manifest)
    if job["spec"].get("runPolicy", {}).get("suspend"):
        return []
    items: list[Json] = [pod_group(job, site)] if site.gang else []
    if "metrics" in job["spec"].get("elasticPolicy", {}):
        items.append(autoscaler(job, site))
    for kind in sorted(job["spec"]["pytorchReplicaSpecs"]):
        for index in range(job["spec"]["pytorchReplicaSpecs"][kind]["replicas"]):
            items.append(pod_of(job, kind, index, site))
            items.append(service_of(job, kind, index, site))
    return items
