"""The Kubeflow training operator v1: a PyTorchJob (kubeflow.org/v1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import pod_template
from gangplank.backends.base import block
from gangplank.backends.pytorchjob.block import CONTAINER, PORT, PyTorchJobBlock
from gangplank.backends.queueing import VOLCANO

if TYPE_CHECKING:
    from gangplank.spec import JobSpec, Json

JOB_NAME = "job-name"  # by which guides select a job's pods: kubectl get pods -l job-name=digits


def replica_spec(spec: JobSpec, role: str, replicas: int) -> Json:
    """One replica type of the job."""
    own = block(spec, PyTorchJobBlock)
    template = pod_template.template(spec, role, CONTAINER, "Never")
    pod = template["spec"]
    del pod["restartPolicy"]  # the replica's own is what counts
    pod["containers"][0]["ports"] = [{"name": PORT, "containerPort": spec.port}]
    if own.gang:
        pod["schedulerName"] = VOLCANO.scheduler
    if spec.priority:
        pod["priorityClassName"] = spec.priority  # the operator would set it on the PodGroup alone
    template["metadata"]["labels"][JOB_NAME] = spec.name
    policy = own.restart_policy or ("OnFailure" if spec.max_retries else "Never")
    return {"replicas": replicas, "restartPolicy": policy, "template": template}


def scheduling(spec: JobSpec) -> Json:
    """The gang that the operator asks Volcano for."""
    least = spec.elastic.minimum if spec.elastic else spec.replicas
    policy: Json = {"minAvailable": least if spec.min_available is None else spec.min_available}
    policy["queue"] = spec.queue or VOLCANO.default
    return {**policy, "priorityClass": spec.priority} if spec.priority else policy


def manifests(spec: JobSpec) -> list[Json]:
    """What we submit: what the job needs beside it, and the PyTorchJob."""
    own = block(spec, PyTorchJobBlock)
    policy: Json = {"cleanPodPolicy": own.clean_pod_policy, "backoffLimit": spec.max_retries}
    optional = {
        "activeDeadlineSeconds": spec.deadline_s,
        "ttlSecondsAfterFinished": spec.ttl_s,
        "schedulingPolicy": scheduling(spec) if own.gang else None,
        "suspend": own.suspend or None,
    }
    policy.update({name: value for name, value in optional.items() if value is not None})
    counts = {"Master": spec.masters, "Worker": spec.workers}
    body: Json = {
        "nprocPerNode": own.nproc or str(spec.processes_per_node),
        "runPolicy": policy,
        "pytorchReplicaSpecs": {
            kind: replica_spec(spec, kind.lower(), count) for kind, count in counts.items() if count
        },
    }
    if spec.elastic:
        body["elasticPolicy"] = {
            "minReplicas": spec.elastic.minimum,
            "maxReplicas": spec.elastic.maximum,
            "rdzvBackend": "c10d",
            "maxRestarts": spec.max_retries,
        }
        if spec.elastic.metrics:
            body["elasticPolicy"]["metrics"] = list(spec.elastic.metrics)
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": pod_template.metadata(spec), "spec": body}
    return [*pod_template.beside(spec), job]
