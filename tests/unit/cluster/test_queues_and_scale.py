"""A queue that takes no job is refused with what to do; a job is scaled where its back-end can be, else refused."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.backends import BACKENDS, backend_of
from gangplank.cluster import queues
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job

Json = dict[str, Any]
JOB: Json = {"name": "a", "image": "b", "script": "/s.py"}


def queue(name: str, parent: str = "root", state: str = "Open") -> Json:
    return {"metadata": {"name": name}, "spec": {"parent": parent}, "status": {"state": state}}


KNOWN = [
    {"metadata": {"name": "root"}, "spec": {}, "status": {"state": "Open"}},
    queue("default"),
    queue("research"),
    queue("vision", "research"),
    queue("old", state="Closed"),
]


def manifest(backend: str = "volcano", **more: Any) -> Json:
    return BACKENDS[backend].manifests(parse_job({**JOB, "backend": backend, **more}))[-1]


def scaled(job: Json, workers: int) -> Json:
    return BACKENDS[str(backend_of(job))].scale(job, workers)


@pytest.mark.parametrize("backend", ["volcano", "pytorchjob"])
@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("visoin", "Did you mean vision?"),
        ("research", "name one of its own: vision"),
        ("old", "which is Closed, expected a queue that is Open"),
    ],
)
def test_a_queue_that_takes_no_job_is_refused(backend: str, name: str, word: str) -> None:
    (problem,) = queues.problems(manifest(backend, queue=name), KNOWN)
    assert word in str(problem)
    assert problem.path.endswith(".queue")


def test_the_root_queue_of_a_raw_manifest_is_refused() -> None:
    raw = manifest()
    raw["spec"]["queue"] = "root"
    (problem,) = queues.problems(raw, KNOWN)
    assert "expected a leaf queue (Volcano takes no job in root)" in str(problem)
    assert problem.fix == "choose one of default, old, vision"


@pytest.mark.parametrize(("backend", "name"), [("volcano", "vision"), ("pytorchjob", "vision"), ("volcano", "default")])
def test_an_open_leaf_queue_is_taken(backend: str, name: str) -> None:
    assert queues.problems(manifest(backend, queue=name), KNOWN) == []


@pytest.mark.parametrize("backend", ["trainjob", "indexed"])
def test_a_job_that_goes_to_no_queue_is_not_asked_for_one(backend: str) -> None:
    assert queues.problems(manifest(backend), []) == []


def test_a_job_without_a_gang_goes_to_no_queue() -> None:
    assert queues.problems(manifest("pytorchjob", pytorchjob={"gang": False}), []) == []


def elastic() -> Json:
    return manifest("pytorchjob", masters=0, workers=2, elastic={"min": 1, "max": 3})


def test_an_elastic_job_is_scaled_within_its_bounds() -> None:
    assert scaled(elastic(), 3) == {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}}
    for workers in (0, 4):
        with pytest.raises(SpecError, match=r"from elastic\.min 1 to elastic\.max 3 workers"):
            scaled(elastic(), workers)


def test_an_elastic_job_that_may_not_restart_is_not_scaled() -> None:
    rigid = manifest("pytorchjob", masters=0, workers=2, elastic={"min": 1, "max": 3}, max_retries=0)
    with pytest.raises(SpecError, match=r"maxRestarts of at least 1 \(without it .* would fail\)\. Fix: submit"):
        scaled(rigid, 3)


def test_an_elastic_job_without_workers_is_not_scaled() -> None:
    job = elastic()
    job["spec"]["pytorchReplicaSpecs"] = {"Master": job["spec"]["pytorchReplicaSpecs"].pop("Worker")}
    with pytest.raises(SpecError, match="a Worker among its replicas, which are Master"):
        scaled(job, 2)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (manifest("pytorchjob"), "a job with elastic"),
        (manifest("volcano"), "keep the WORLD_SIZE"),
        (manifest("trainjob"), "fixed"),
        (manifest("indexed"), "fixed"),
    ],
    ids=["pytorchjob", "volcano", "trainjob", "indexed"],
)
def test_a_job_whose_ranks_are_fixed_is_not_scaled(job: Json, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        scaled(job, 1)


def plain(*tasks: Json, least: int) -> Json:
    kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "a"}}
    return {**kind, "spec": {"tasks": list(tasks), "minAvailable": least}}


def test_volcanos_plain_workers_are_scaled_and_the_gang_with_them() -> None:
    lead = {"name": "lead", "replicas": 1, "minAvailable": 1}
    job = plain(lead, {"name": "worker", "replicas": 3, "minAvailable": 3}, least=4)
    less = {"tasks": [lead, {"name": "worker", "replicas": 1, "minAvailable": 1}], "minAvailable": 2}
    assert scaled(job, 1) == {"spec": less}
    more = {"tasks": [lead, {"name": "worker", "replicas": 5, "minAvailable": 3}], "minAvailable": 4}
    assert scaled(job, 5) == {"spec": more}


def test_without_a_task_worker_nothing_is_scaled() -> None:
    with pytest.raises(SpecError, match="a task worker among lead"):
        scaled(plain({"name": "lead", "replicas": 1, "minAvailable": 1}, least=1), 2)
