"""What Kubeflow Trainer and JobSet make of a TrainJob and its runtime: JobSet, Service, Job, pods, PodGroup.

Follows github.com/kubeflow/trainer/v2 v2.3.0 and sigs.k8s.io/jobset v0.12.0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gangplank.backends import gang
from gangplank.backends.base import RANDOM, Site, acyclic, refuse
from gangplank.backends.queueing import VOLCANO
from gangplank.backends.trainjob import jobset
from gangplank.backends.trainjob.block import PORT
from gangplank.errors import Problem, shown
from gangplank.k8s import manifest as shape
from gangplank.k8s import names, pod_resources
from gangplank.k8s.build import COMPLETION_INDEX, annotation, clone, namespace, owner, set_env, value
from gangplank.k8s.manifest import Count
from gangplank.k8s.strategic_merge import strategic

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangplank.reading.fields import Problems
    from gangplank.spec import Json

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
TORCH_ENV = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
TRAINER = {
    "image": str,
    "command": [str],
    "args": [str],
    "env": shape.ENV,
    "numNodes": Count,
    "numProcPerNode": Count,
    "resourcesPerNode": shape.RESOURCES,
}
REPLICATED = {
    "name": str,
    "groupName": str,
    "replicas": Count,
    "template": {
        "metadata": shape.META,
        "spec": {"parallelism": Count, "completions": Count, "template": shape.TEMPLATE},
    },
}
JOBSET = {"metadata": shape.META, "spec": {"replicatedJobs": [REPLICATED], "network": {"subdomain": str}}}
PATCH = {"manager": str, "trainingRuntimeSpec": {"template": JOBSET}}
FORM = {
    "spec": {
        "runtimeRef": {"name": str, "kind": str, "apiGroup": str},
        "trainer": TRAINER,
        "runtimePatches": [PATCH],
        "suspend": bool,
        "initializer": dict,
    }
}
TIER = {"mode": str, "highestTierAllowed": Count}
POLICY = {"volcano": {"networkTopology": TIER}}
RUNTIME = {"spec": {"mlPolicy": {"numNodes": Count, "torch": dict}, "podGroupPolicy": POLICY, "template": JOBSET}}
KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")

# Trainer's own runtime for PyTorch, as upstream ships it: assumed if no runtime of this name is given.
TORCH_DISTRIBUTED: Json = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch-distributed", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {STEP: "trainer"}},
                            "spec": {
                                "template": {
                                    "spec": {
                                        "containers": [
                                            {
                                                "name": "node",
                                                "image": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime",
                                            }
                                        ]
                                    }
                                }
                            },
                        },
                    }
                ]
            }
        },
    },
}


def runtime_of(job: Json, site: Site, problems: Problems) -> Json:
    """The runtime that a job refers to, out of the manifests that came with it or upstream's own."""
    reference = job["spec"].get("runtimeRef", {})
    kind, name = reference.get("kind") or KINDS[0], reference.get("name")
    for other in (*site.others, TORCH_DISTRIBUTED):
        if isinstance(other, dict) and other.get("kind") == kind and kind in KINDS:
            runtime = shape.manifest(other, RUNTIME, problems)
            if not problems and runtime["metadata"]["name"] == name:
                return runtime
    if not problems:
        expected = "torch-distributed, or a runtime whose manifest is in the same file"
        problems.append(Problem("TrainJob.spec.runtimeRef", shown(reference), expected))
    return {}


def admitted(manifest: Json, site: Site) -> tuple[Json, Json]:
    """The job and its runtime; refuses what Trainer's webhook refuses and what is not known here."""
    problems: Problems = []
    job = shape.manifest(manifest, FORM, problems)
    refuse(problems, manifest)
    runtime = runtime_of(job, site, problems)
    refuse(problems, manifest)
    name, spec = job["metadata"]["name"], job["spec"]

    def bad(path: str, got: object, expected: str) -> None:
        problems.append(Problem(f"TrainJob.{path}", shown(got), expected))

    if not names.DNS1035.fullmatch(name):
        bad("metadata.name", name, names.DNS1035_RULE)
    last = f"{name}-node-0-{max(spec.get('trainer', {}).get('numNodes', 1) - 1, 0)}-12345"
    if len(last) > names.LABEL_MAX:
        bad("metadata.name", last, f"a pod name of at most {names.LABEL_MAX}, its random end included")
    if "initializer" in spec:
        bad("spec.initializer", spec["initializer"], "no initializer (it is not supported yet)")
    reserved = [item.get("name") for item in spec.get("trainer", {}).get("env", []) if item.get("name") in TORCH_ENV]
    if reserved:
        bad("spec.trainer.env", reserved, "no variable that torchrun reads (Trainer sets them)")
    if spec.get("trainer", {}).get("command") == ["tune", "run"]:
        bad("spec.trainer.command", ["tune", "run"], "another command (torchtune is not supported yet)")
    other = set(runtime["spec"].get("mlPolicy", {})) - {"numNodes", "torch"}
    if other:
        bad("spec.runtimeRef", sorted(other), "a runtime for torch or for plain pods")
    replicated = runtime["spec"].get("template", {}).get("spec", {}).get("replicatedJobs") or []
    if not replicated:
        bad("spec.runtimeRef", None, "a runtime with a replicatedJob")
    _check_patches(spec, [part.get("name") for part in replicated], bad)
    refuse(problems, manifest)
    return job, runtime


def _check_patches(spec: Json, replicated: list[object], bad: Callable[[str, object, str], None]) -> None:
    """Refuse patches of parts that the runtime does not have, and two patches of one manager."""
    managers: set[str] = set()
    for at, item in enumerate(spec.get("runtimePatches", [])):
        manager = item.get("manager", "")
        if manager in managers:
            bad(f"spec.runtimePatches[{at}].manager", manager, "a manager of its own, which identifies the patch")
        managers.add(manager)
        inner = item.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", [])
        for part in inner:
            if part.get("name") not in replicated:
                bad(f"spec.runtimePatches[{at}]", part.get("name"), f"a replicatedJob of the runtime: {replicated}")


def nodes_of(part: Json, job: Json, runtime: Json) -> int:
    """Pods of one replicatedJob: the job's own number for its trainer, else the runtime's."""
    policy, spec = runtime["spec"].get("mlPolicy"), part["template"].get("spec", {})
    count: int = spec.get("parallelism", 1)
    if is_trainer(part) and policy is not None:
        count = policy.get("numNodes", 1)
    count = max(count, 1)
    if is_trainer(part) and "numNodes" in job["spec"].get("trainer", {}):
        count = job["spec"]["trainer"]["numNodes"]
    return count


def is_trainer(part: Json) -> bool:
    """Whether a replicatedJob is the one that trains."""
    return bool(part["template"].get("metadata", {}).get("labels", {}).get(STEP) == "trainer")


def processes(trainer: Json, container: Json) -> str:
    """Processes per node: the job's number, else one per CPU, or torchrun's own choice if it asks for GPUs."""
    if "numProcPerNode" in trainer:
        return str(trainer["numProcPerNode"])
    resources = container.get("resources", {})
    sides = [pod_resources.amounts(resources.get(side)) for side in ("requests", "limits")]
    if any("gpu" in name.lower() and amount.value > 0 for side in sides for name, amount in side.items()):
        return "auto"
    zero = pod_resources.Sum()
    cpus = next((side.get("cpu", zero).value for side in sides if side.get("cpu", zero).value), zero.value)
    return str(max(1, math.ceil(cpus)))


def torch_env(name: str, nodes: int, per_node: str) -> list[Json]:
    """The variables that Trainer sets for torchrun."""
    return [
        value("PET_NNODES", nodes),
        value("PET_NPROC_PER_NODE", per_node),
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": annotation(COMPLETION_INDEX)}}},
        value("PET_MASTER_ADDR", f"{name}-node-0-0.{name}"),
        value("PET_MASTER_PORT", PORT),
    ]


def wire(container: Json, job: Json, runtime: Json, nodes: int) -> None:
    """Overrides and wires the trainer's container, in place; without a trainer stanza nothing is wired at all."""
    trainer = job["spec"].get("trainer")
    if trainer is None:
        return
    for key in ("image", "command", "args"):
        if key in trainer:
            container[key] = clone(trainer[key])
    if "resourcesPerNode" in trainer and runtime["spec"].get("mlPolicy") is not None:
        container["resources"] = strategic(container.get("resources", {}), trainer["resourcesPerNode"])
    set_env(container, trainer.get("env", []))
    if "torch" in runtime["spec"].get("mlPolicy", {}):
        set_env(container, torch_env(job["metadata"]["name"], nodes, processes(trainer, container)))
        ports = container.setdefault("ports", [])
        ports[:] = [port for port in ports if port.get("containerPort") != PORT and port.get("name")]
        ports.append({"containerPort": PORT})


def jobset_of(job: Json, runtime: Json, site: Site) -> Json:
    """The JobSet that Trainer makes: the runtime's template, patched by the job, with the trainer wired."""
    template = runtime["spec"]["template"]
    meta: Json = {key: dict(template.get("metadata", {}).get(key, {})) for key in ("labels", "annotations")}
    spec = clone(template["spec"])
    for item in job["spec"].get("runtimePatches", []):
        change = item.get("trainingRuntimeSpec", {}).get("template", {})
        for key in ("labels", "annotations"):
            meta[key] |= change.get("metadata", {}).get(key, {})
        spec = strategic(spec, change.get("spec", {}))
    in_gang = "volcano" in runtime["spec"].get("podGroupPolicy", {})
    for part in spec["replicatedJobs"]:
        inner = part["template"].setdefault("spec", {})
        count = nodes_of(part, job, runtime)
        inner["parallelism"] = inner["completions"] = count
        pod = inner.setdefault("template", {}).setdefault("spec", {})
        if in_gang:
            annotations = inner["template"].setdefault("metadata", {}).setdefault("annotations", {})
            annotations[VOLCANO.group] = job["metadata"]["name"]
        if is_trainer(part):
            part["replicas"] = 1
            for container in pod.get("containers", []):
                if container.get("name") == "node":
                    wire(container, job, runtime, count)
    spec["suspend"] = job["spec"].get("suspend", False)
    where: Json = {"name": job["metadata"]["name"], "namespace": namespace(job)}
    where.update({key: text for key, text in meta.items() if text})
    where["ownerReferences"] = owner(job, site.uid)
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": where, "spec": spec}


def pod_group(job: Json, runtime: Json, job_set: Json, site: Site) -> Json:
    """The gang that the runtime's podGroupPolicy asks Volcano for: all pods of all parts."""
    total: pod_resources.Amounts = {}
    members = 0
    body: Json = {}
    for part in job_set["spec"]["replicatedJobs"]:
        count, pod = part["template"]["spec"]["parallelism"], part["template"]["spec"]["template"]["spec"]
        members += count
        one = pod_resources.pod_sum(pod, "requests")  # a limit without a request does not count
        total = pod_resources.add(total, {name: amount.times(count) for name, amount in one.items()})
        if pod.get("priorityClassName"):
            body["priorityClassName"] = pod["priorityClassName"]
    queue = job_set["metadata"].get("annotations", {}).get(VOLCANO.annotations[0])
    body |= {"minMember": members, "minResources": pod_resources.written(total), **({"queue": queue} if queue else {})}
    tier = runtime["spec"]["podGroupPolicy"]["volcano"].get("networkTopology")
    if tier:
        body["networkTopology"] = dict(tier)
    where = {"name": job["metadata"]["name"], "namespace": namespace(job), "ownerReferences": owner(job, site.uid)}
    return gang.pod_group(where, body)


def snapshot(job: Json, site: Site) -> Json:
    """The ConfigMap in which Trainer keeps the runtime as it was when the job was submitted."""
    name = f"{job['metadata']['name']}-runtime-snapshot"
    where = {"name": name, "namespace": namespace(job), "ownerReferences": owner(job, site.uid)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": {"runtime": RANDOM}}


@acyclic
def objects(manifest: Json, site: Site | None = None) -> list[Json]:
    """Everything that Trainer, JobSet and the Job controller make of a TrainJob."""
    site = site or Site()
    job, runtime = admitted(manifest, site)
    job_set = jobset_of(job, runtime, site)
    in_gang = "volcano" in runtime["spec"].get("podGroupPolicy", {})
    group = [pod_group(job, runtime, job_set, site)] if in_gang else []
    return [snapshot(job, site), *group, *jobset.objects(job_set, site)]
