"""Submits manifests to live controllers and compares what these make with what the library predicts."""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, settings

from gangplank.backends import BACKENDS, backend_of
from gangplank.backends.base import Site
from gangplank.cli.expand import whole
from gangplank.jobs.parse import parse_job
from gangplank.reading.strict_yaml import documents
from tests.cluster.differential.live import NOWHERE, Cluster
from tests.cluster.differential.normal import key, normal
from tests.support.strategies import jobs
from tests.support.sweeps import sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Json = dict[str, Any]
IMAGE = "registry.k8s.io/pause:3.10.1"
KINDS = ("Pod", "Service", "ConfigMap", "Secret", "NetworkPolicy", "PodGroup", "PersistentVolumeClaim")


ALL = sweeping("differential")
COUNT = 60 if ALL else 8  # generated jobs of each back-end


def sample(items: Sequence[Json], step: int) -> list[Json]:
    """All of them in the sweep, else each of a few that lie apart."""
    return list(items) if ALL else list(items[::step])


def generated(backend: str, cluster: Cluster, count: int = COUNT) -> list[Json]:
    """Manifests of jobs of every shape, the same ones in every run, fit for a cluster that knows nothing of them."""
    manifests: list[Json] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(jobs(backend, most=4))
    def collect(job: Json) -> None:
        inner = job["training_job"]
        inner["name"] = f"g{len(manifests)}-{inner['name']}"[:40].rstrip("-")
        inner |= {"namespace": cluster.namespace, "image": IMAGE}
        if backend in {"volcano", "pytorchjob"}:
            inner["queue"] = "default"
        if "priority" in inner:
            inner["priority"] = cluster.namespace
        inner.pop("ttl_s", None)  # a job that is gone cannot be looked at
        if "deadline_s" in inner:
            inner["deadline_s"] += 10_000  # nor one whose time is up
        manifests.append(BACKENDS[backend].manifests(parse_job(job))[-1])

    collect()
    return manifests[:count]


def examples(module: str, folder: str, backend: str, cluster: Cluster) -> list[Json]:
    """The jobs of one kind among a Go module's own examples, under names of their own, for a cluster with one queue."""
    modules = Path(os.environ.get("GOMODCACHE") or Path.home() / "go/pkg/mod")
    manifests: list[Json] = []
    for file in sorted((modules / module / folder).rglob("*.yaml")):
        for item in documents(file.read_text(), str(file), strict=False):
            if not isinstance(item, dict) or backend_of(item) != backend or "invalid" in str(file):
                continue
            manifest = copy.deepcopy(item)
            name = manifest["metadata"].get("name") or manifest["metadata"]["generateName"].rstrip("-")
            manifest["metadata"]["name"] = f"e{len(manifests)}-{name}".lower()
            manifest["metadata"].pop("generateName", None)
            if backend == "volcano":
                manifest["spec"]["queue"] = "default"
                for task in manifest["spec"]["tasks"]:
                    task.pop("dependsOn", None)  # pods that wait for others are not made where nothing runs
            for part in (manifest["spec"], *(template["spec"] for template in templates(manifest))):
                if part.get("priorityClassName"):
                    part["priorityClassName"] = cluster.namespace
            manifests.append(manifest)
    return manifests


def templates(value: Any) -> Iterator[Json]:
    """Every pod template in a manifest."""
    if isinstance(value, dict):
        inner = value.get("template")
        if isinstance(inner, dict) and "containers" in inner.get("spec", {}):
            yield inner
        for item in value.values():
            yield from templates(item)
    elif isinstance(value, list):
        for item in value:
            yield from templates(item)


def nowhere(manifest: Json) -> Json:
    """The manifest with pods that no node takes: they are made, but nothing ever runs."""
    moved = copy.deepcopy(manifest)
    for template in templates(moved):
        template["spec"]["nodeSelector"] = {**template["spec"].get("nodeSelector", {}), **NOWHERE}
    return moved


def owned(item: Json, uids: set[str]) -> bool:
    """Whether an object belongs to one of some owners."""
    references: list[Json] = item["metadata"].get("ownerReferences", [])
    return any(reference["uid"] in uids for reference in references)


def family(uid: str, between: Sequence[Json]) -> set[str]:
    """A job and what lies between it and its pods: Trainer's JobSet, JobSet's Jobs."""
    uids = {uid}
    for item in between:
        if owned(item, uids):
            uids.add(item["metadata"]["uid"])
    return uids


def differences(backend: str, manifests: Sequence[Json], cluster: Cluster, **site: Any) -> list[str]:
    """Submit manifests and report every difference between the live objects and the predicted ones."""
    submitted = [
        nowhere({**item, "metadata": {**item["metadata"], "namespace": cluster.namespace}}) for item in manifests
    ]
    live = [cluster.create(item) for item in submitted]
    predictions = [
        whole(backend, item, Site(uid=live_job["metadata"]["uid"], **site))
        for item, live_job in zip(submitted, live, strict=True)
    ]
    wanted = Counter(item["kind"] for objects in predictions for item in objects if item["kind"] in KINDS)

    def everything() -> tuple[list[Json], list[Json]]:
        between = [*cluster.items("JobSet"), *cluster.items("Job", "batch/v1")]
        return between, [{**item, "kind": kind} for kind in wanted for item in cluster.items(kind)]

    def is_there() -> bool:
        cluster.enqueue()
        between, items = everything()
        uids = set().union(*(family(live_job["metadata"]["uid"], between) for live_job in live))
        return Counter(item["kind"] for item in items if owned(item, uids)) >= wanted

    with contextlib.suppress(TimeoutError):  # what has not come is named below
        cluster.wait(is_there, "Pod")
    wanted.update(KINDS)  # and what was not predicted
    between, items = everything()
    messages: list[str] = []
    for live_job, expected in zip(live, predictions, strict=True):
        job = live_job["metadata"]["name"]
        uids = family(live_job["metadata"]["uid"], between)
        real = {key(item, job): normal(item, job) for item in items if owned(item, uids)}
        predicted = {key(item, job): normal(item, job) for item in expected if item["kind"] in KINDS}
        messages += [f"{job}: {name}: {text}" for name, text in unequal(real, predicted)]
    return messages


def unequal(real: dict[str, Json], predicted: dict[str, Json]) -> Iterator[tuple[str, str]]:
    """Where two sets of objects differ, field by field."""
    for name in sorted(real.keys() | predicted.keys()):
        if name not in real:
            yield name, "predicted, but the controllers make none"
        elif name not in predicted:
            yield name, "made by the controllers, but not predicted"
        else:
            yield from ((name, text) for text in fields(real[name], predicted[name], ""))


def fields(real: Any, predicted: Any, path: str) -> Iterator[str]:
    """Where two values differ."""
    if isinstance(real, dict) and isinstance(predicted, dict):
        for part in sorted(real.keys() | predicted.keys()):
            yield from fields(real.get(part), predicted.get(part), f"{path}.{part}")
    elif isinstance(real, list) and isinstance(predicted, list) and len(real) == len(predicted):
        for at, (left, right) in enumerate(zip(real, predicted, strict=True)):
            yield from fields(left, right, f"{path}[{at}]")
    elif real != predicted:
        yield f"{path}: live {json.dumps(real)[:300]}, predicted {json.dumps(predicted)[:300]}"
