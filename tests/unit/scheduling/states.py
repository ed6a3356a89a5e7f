"""Small clusters and jobs for tests."""

from __future__ import annotations

from typing import Any

from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job
from gangplank.scheduling.demand import Demand, demand
from gangplank.scheduling.settings import Configuration
from gangplank.scheduling.snapshot import Pods, Snapshot

Json = dict[str, Any]
CAPACITY = Configuration(("enqueue", "allocate", "backfill"), ("priority", "gang", "capacity"), hierarchy=True)
READY = [{"type": "Ready", "status": "True"}]


def node(name: str, *, cpu: str = "4", taints: tuple[Json, ...] = (), labels: Json | None = None, **more: str) -> Json:
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    allocatable = {"cpu": cpu, "memory": "16Gi", "pods": "110", **{key.replace("_", "/"): n for key, n in more.items()}}
    status = {"allocatable": allocatable, "conditions": READY}
    return {"metadata": meta, "spec": {"taints": list(taints)}, "status": status}


def pod(name: str, where: str, *, cpu: str = "1", namespace: str = "other", group: str = "") -> Json:
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    meta = {"name": name, "namespace": namespace, "uid": name, "annotations": annotations}
    containers = [{"name": "a", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]
    return {"metadata": meta, "spec": {"nodeName": where, "containers": containers}, "status": {"phase": "Running"}}


def queue(name: str, parent: str = "root", state: str = "Open", **spec: Json) -> Json:
    above = {"parent": parent} if name != "root" else {}
    return {"metadata": {"name": name}, "spec": {**above, **spec}, "status": {"state": state}}


def group(name: str, queue_name: str, namespace: str = "other", **status: str) -> Json:
    meta = {"name": name, "namespace": namespace, "uid": f"group-{name}"}
    return {"metadata": meta, "spec": {"queue": queue_name, "minMember": 1}, "status": status}


def job(backend: str = "volcano", **change: Any) -> Demand:
    """A master and two workers of one core each, unless changed."""
    described: dict[str, Any] = {"name": "digits", "namespace": "vision", "image": "i", "command": ["true"]}
    described |= {"backend": backend, "resources": {"cpu": "1", "memory": "1Gi"}}
    manifest = BACKENDS[backend].manifests(parse_job({**described, **change}))[-1]
    objects = BACKENDS[backend].objects(manifest)
    return demand("digits", "vision", objects, BACKENDS[backend].queue(manifest).name)


def cluster(*nodes: Json, pods: tuple[Json, ...] = (), **more: Any) -> Snapshot:
    fields = {"queues": (queue("root"), queue("default")), "settings": CAPACITY, **more}
    return Snapshot(nodes=nodes or (node("a"), node("b")), pods=Pods(pods), **fields)
