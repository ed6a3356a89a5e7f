"""A site's GPUs: a job that asks for one tolerates the site's taints, no other does; nccl needs real GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.backends.pod_template import LOST_NODE
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site

FLYTE = {"key": "flyte/gpu", "value": "dedicated", "effect": "NoSchedule"}
TOLERATION = {"key": "flyte/gpu", "operator": "Equal", "value": "dedicated", "effect": "NoSchedule"}


def job(**fields: Any) -> Any:
    return parse_job({"name": "j", "image": "i", "script": "/a.py", **fields})


def tolerations(backend: str, gpus: Gpus, **fields: Any) -> list[Any]:
    """What each pod of the job tolerates besides a lost node, in the order of its ranks."""
    spec = on_site(job(backend=backend, **fields), gpus)
    pods = [
        item
        for manifest in BACKENDS[backend].manifests(spec)
        for item in (BACKENDS[backend].objects(manifest) if manifest["kind"].endswith("Job") else [])
        if item["kind"] == "Pod"
    ]
    assert pods
    assert all(pod["spec"]["tolerations"][-2:] == list(LOST_NODE) for pod in pods)
    return [pod["spec"]["tolerations"][:-2] for pod in pods]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gpu_job_tolerates_the_sites_taint_and_only_that(backend: str) -> None:
    per_pod = tolerations(backend, Gpus((FLYTE,)), resources={"gpus": 1}, workers=1)
    assert per_pod == [[TOLERATION], [TOLERATION]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cpu_job_tolerates_nothing(backend: str) -> None:
    assert tolerations(backend, Gpus((FLYTE,)), workers=1) == [[], []]


@pytest.mark.parametrize("backend", ["volcano", "pytorchjob"])
def test_a_master_without_gpus_stays_off_the_gpu_nodes(backend: str) -> None:
    changes = {"resources": {"gpus": 1}, "master_resources": {"gpus": 0}, "collective": "gloo", "workers": 1}
    assert tolerations(backend, Gpus((FLYTE,)), **changes) == [[], [TOLERATION]]


def test_what_a_job_says_of_its_gpus_itself_wins() -> None:
    own = {"key": "other", "operator": "Exists"}
    assert on_site(job(resources={"gpus": 1}, gpu_tolerations=[own]), Gpus((FLYTE,))).gpu_tolerations == (own,)


def test_a_site_without_taints_changes_nothing() -> None:
    assert on_site(job(resources={"gpus": 1}), Gpus()) == job(resources={"gpus": 1})


def test_nccl_on_simulated_gpus_is_refused_with_both_ways_out() -> None:
    with pytest.raises(SpecError) as refused:
        on_site(job(resources={"gpus": 1}), Gpus(simulated=True), "jobs/mine.yml")
    assert str(refused.value).startswith('jobs/mine.yml: 1 problem\n  training_job.collective: got "nccl"')
    assert "CUDA does not run" in str(refused.value)
    assert "collective_fallback: gloo" in str(refused.value)


def test_a_job_that_allows_it_falls_back_to_gloo_on_simulated_gpus_alone() -> None:
    spec = job(resources={"gpus": 1}, collective_fallback="gloo")
    assert on_site(spec, Gpus()).collective == "nccl"
    assert on_site(spec, Gpus(simulated=True)).collective == "gloo"


def test_the_trainer_is_told_of_the_fallback() -> None:
    spec = job(resources={"gpus": 1}, collective_fallback="gloo", hyperparameters={"epochs": 1})
    (manifest,) = BACKENDS["volcano"].manifests(on_site(spec, Gpus(simulated=True)))
    args = manifest["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["args"]
    assert args[:2] == ["--backend", "gloo"]


def test_gloo_runs_beside_simulated_gpus() -> None:
    spec = job(resources={"gpus": 1}, collective="gloo")
    assert on_site(spec, Gpus(simulated=True)) == spec


def test_a_fallback_without_nccl_is_refused() -> None:
    with pytest.raises(SpecError, match="no fallback for a job that uses gloo anyway"):
        job(collective_fallback="gloo")
