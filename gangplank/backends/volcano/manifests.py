"""Volcano: a Job (batch.volcano.sh/v1alpha1) whose pytorch plugin wires the ranks together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import pod_template
from gangplank.backends.base import block
from gangplank.backends.queueing import VOLCANO
from gangplank.backends.volcano.block import VolcanoBlock
from gangplank.k8s.build import clone

if TYPE_CHECKING:
    from gangplank.spec import JobSpec, Json

# A lost pod restarts the gang: without these, an evicted pod stays Failed and its peers wait forever.
GANG_POLICIES: tuple[Json, ...] = (
    {"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"},
    {"event": "TaskFailed", "action": "TerminateJob"},  # containers that keep failing under restartPolicy OnFailure
)
# On the master task alone: at job level it would fire for whichever task finishes first.
MASTER_POLICIES: tuple[Json, ...] = ({"event": "TaskCompleted", "action": "CompleteJob"},)


def plugins(spec: JobSpec) -> dict[str, list[str]]:
    """The plugins and their arguments; the rendezvous needs the master's address before the master is ready."""
    own = block(spec, VolcanoBlock)
    wiring = ["--master=master", "--worker=worker", f"--port={spec.port}"]
    arguments_of = {"pytorch": wiring, "svc": ["--publish-not-ready-addresses"]}
    for name, arguments in own.plugins.items():
        arguments_of[name] = [*arguments_of.get(name, []), *arguments]
    return arguments_of


def task(spec: JobSpec, role: str, replicas: int) -> Json:
    """One task of the job; its maxRetry counts container restarts over all its pods."""
    own = block(spec, VolcanoBlock)
    body: Json = {
        "name": role,
        "replicas": replicas,
        "maxRetry": spec.max_retries * max(replicas, 1) + 1,
        "template": pod_template.template(spec, role, role, own.restart_policy),
    }
    if role == "master":
        body["policies"] = [dict(policy) for policy in MASTER_POLICIES]
    if role in own.min_task_member:
        body["minAvailable"] = own.min_task_member[role]
    if role in own.depends_on:
        body["dependsOn"] = {"name": list(own.depends_on[role])}
    return body


def manifests(spec: JobSpec) -> list[Json]:
    """What we submit: what the job needs beside it, and the Job."""
    own = block(spec, VolcanoBlock)
    policies = GANG_POLICIES if own.policies is None else own.policies
    body: Json = {
        "schedulerName": VOLCANO.scheduler,
        "queue": spec.queue or VOLCANO.default,
        "minAvailable": spec.replicas if spec.min_available is None else spec.min_available,
        "maxRetry": spec.max_retries + 1,  # Volcano gives up when the count of restarts *reaches* maxRetry
        "plugins": plugins(spec),
        "policies": [clone(policy) for policy in policies],
        "tasks": [task(spec, "master", spec.masters)] + ([task(spec, "worker", spec.workers)] if spec.workers else []),
    }
    optional = {
        "priorityClassName": spec.priority or None,
        "ttlSecondsAfterFinished": spec.ttl_s,
        "networkTopology": own.network_topology,
        "volumes": [dict(volume) for volume in own.volumes] or None,
    }
    body.update({name: value for name, value in optional.items() if value is not None})
    about = pod_template.metadata(spec)
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": about, "spec": body}
    return [*pod_template.beside(spec), job]
