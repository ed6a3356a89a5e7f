"""A plain Indexed Job and a headless Service: the manifest carries the whole wiring, so no operator is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import pod_template, wiring
from gangplank.backends.base import block
from gangplank.backends.indexed.block import IndexedBlock
from gangplank.k8s.build import COMPLETION_INDEX, annotation, value

if TYPE_CHECKING:
    from gangplank.spec import JobSpec, Json


def backoff(spec: JobSpec) -> Json:
    """How often the job may fail: per index with new pods, else by restarts of containers in their pods.

    With restartPolicy OnFailure the Job fails when the restarts of all its containers together *reach* backoffLimit,
    and one failure of the gang restarts every rank. Without retries no container restarts, and the failed pod stays.
    """
    per_index = block(spec, IndexedBlock).backoff
    if per_index is not None:
        return {"backoffLimitPerIndex": per_index, "maxFailedIndexes": 0}
    return {"backoffLimit": spec.max_retries * spec.replicas + 1 if spec.max_retries else 0}


def manifests(spec: JobSpec) -> list[Json]:
    """What we submit: what the job needs beside it, the Service under which the pods find each other, and the Job."""
    in_place = block(spec, IndexedBlock).backoff is None and spec.max_retries  # kubelets restart before a Job counts
    restart = "OnFailure" if in_place else "Never"
    template = pod_template.template(spec, "worker", "trainer", restart)
    del template["metadata"]["labels"][pod_template.ROLE_LABEL]  # one template for all
    pod = template["spec"]
    pod["subdomain"] = spec.name
    if spec.priority:
        pod["priorityClassName"] = spec.priority
    pod["containers"][0]["ports"] = [{"name": "rendezvous", "containerPort": spec.port}]
    pod["containers"][0]["env"] += [
        value("MASTER_ADDR", wiring.master_addr(spec)),
        value("MASTER_PORT", spec.port),
        value("WORLD_SIZE", spec.replicas),
        pod_template.field("RANK", annotation(COMPLETION_INDEX)),
    ]
    body: Json = {
        "completionMode": "Indexed",
        "completions": spec.replicas,
        "parallelism": spec.replicas,
        **backoff(spec),
    }
    if spec.deadline_s is not None:
        body["activeDeadlineSeconds"] = spec.deadline_s
    if spec.ttl_s is not None:
        body["ttlSecondsAfterFinished"] = spec.ttl_s
    body["template"] = template
    service = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # ranks meet before any of them is ready
        "selector": {pod_template.JOB_LABEL: spec.name},
        "ports": [{"name": "rendezvous", "port": spec.port}],
    }
    return [
        *pod_template.beside(spec),
        {"apiVersion": "v1", "kind": "Service", "metadata": pod_template.metadata(spec), "spec": service},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": pod_template.metadata(spec), "spec": body},
    ]
