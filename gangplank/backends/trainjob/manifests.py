"""Kubeflow Trainer v2: a TrainJob (trainer.kubeflow.org/v1alpha1) that refers to one of the platform's runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import pod_template, wiring
from gangplank.backends.base import block
from gangplank.backends.trainjob.block import PORT, TrainJobBlock
from gangplank.k8s.build import COMPLETION_INDEX, annotation, clone, value

if TYPE_CHECKING:
    from gangplank.spec import JobSpec, Json

MANAGER = "gangplank.dev/job"  # whose patches these are


def environment(spec: JobSpec, variables: list[Json]) -> list[Json]:
    """The environment of every node: Trainer sets PET_ names alone, so other commands get the usual four here."""
    return [
        *variables,
        value("MASTER_ADDR", wiring.master_addr(spec)),
        value("MASTER_PORT", PORT),
        value("WORLD_SIZE", spec.replicas),
        pod_template.field("RANK", annotation(COMPLETION_INDEX)),
    ]


def patch(template: Json) -> Json:
    """What the runtime's pod template lacks, as far as Trainer lets a job patch it."""
    pod, container = template["spec"], template["spec"]["containers"][0]
    inner: Json = {"name": "node", "securityContext": container["securityContext"]}
    if "volumeMounts" in container:
        inner["volumeMounts"] = container["volumeMounts"]
    allowed = ("securityContext", "affinity", "tolerations", "nodeSelector", "imagePullSecrets", "volumes")
    body = {**{key: pod[key] for key in allowed if key in pod}, "containers": [inner]}
    job = {"name": "node", "template": {"spec": {"template": {"metadata": template["metadata"], "spec": body}}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def manifests(spec: JobSpec) -> list[Json]:
    """What we submit: what the job needs beside it, and the TrainJob, which always has a trainer stanza."""
    template = pod_template.template(spec, "worker", "node")
    del template["metadata"]["labels"][pod_template.ROLE_LABEL]  # one template for all
    container = template["spec"]["containers"][0]
    trainer: Json = {
        "image": spec.image,
        **{key: container[key] for key in ("command", "args") if key in container},
        "env": environment(spec, container["env"]),
        "numNodes": spec.replicas,
        "numProcPerNode": spec.processes_per_node,
        "resourcesPerNode": container["resources"],
    }
    own = block(spec, TrainJobBlock)
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": own.runtime_kind, "name": own.runtime}
    body: Json = {
        "runtimeRef": reference,
        "trainer": trainer,
        "runtimePatches": [patch(template), *(clone(item) for item in own.patches)],
    }
    if spec.deadline_s is not None:
        body["activeDeadlineSeconds"] = spec.deadline_s
    meta = pod_template.metadata(spec)
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": body}
    return [*pod_template.beside(spec), job]
