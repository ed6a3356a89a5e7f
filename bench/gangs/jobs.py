"""The same pods as a gang of Volcano's and as a plain Job."""

from __future__ import annotations

from typing import Any

from bench.gangs.place import HOME, LABELS
from gangplank.backends import BACKENDS
from gangplank.backends.pod_template import JOB_LABEL
from gangplank.jobs.parse import parse_job
from lab import simulated

Json = dict[str, Any]
# On two busy cores, heartbeats of simulated nodes can be late: no pod is evicted for that
STAYS = {"operator": "Exists", "effect": "NoExecute"}


def described(name: str, size: int, kind: str, cpu: str = "100m") -> Json:
    """A job file of a job that the simulated nodes take."""
    job = {
        "name": name, "namespace": HOME, "backend": kind, "workers": size - 1,
        "image": "registry.k8s.io/pause:3.10.1", "command": ["/pause"],
        "resources": {"cpu": cpu, "memory": "64Mi"}, "node_selector": LABELS,
        "tolerations": [simulated.TOLERATION, STAYS],
    }  # fmt: skip
    return {"training_job": job}


def template(name: str, size: int, kind: str, cpu: str = "100m") -> Json:
    """The same job, as a user submits it."""
    return BACKENDS[kind].manifests(parse_job(described(name, size, kind, cpu)))[-1]


def volcano_job(name: str, size: int) -> Json:
    """A gang."""
    return template(name, size, "volcano")


def plain_job(name: str, size: int) -> Json:
    """As many pods of the same template from a plain Job, for Kubernetes' own scheduler."""
    pod = template(name, size, "volcano")["spec"]["tasks"][-1]["template"]
    meta = {"name": name, "namespace": HOME, "labels": {JOB_LABEL: name}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta,
            "spec": {"parallelism": size, "completions": size, "template": pod}}  # fmt: skip
