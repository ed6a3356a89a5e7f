"""GPUs by claim: the same job on a site of either kind, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.backends.device_claims import claims_of
from gangplank.cli import tables
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site

Json = dict[str, Any]
DRA = Gpus(allocation="dra", device_class="gpu.example.com")
BY_CLAIM = [name for name, backend in BACKENDS.items() if not backend.no_claims]


def job(**fields: Any) -> Any:
    return parse_job({"name": "j", "image": "i", "script": "/a.py", "workers": 1, "resources": {"gpus": 2}, **fields})


def pods_and_templates(backend: str, gpus: Gpus, **fields: Any) -> tuple[list[Json], list[Json], list[Json]]:
    manifests = BACKENDS[backend].manifests(on_site(job(backend=backend, **fields), gpus))
    objects = BACKENDS[backend].objects(manifests[-1])
    pods = [item for item in objects if item["kind"] == "Pod"]
    templates = [item for item in manifests if item["kind"] == "ResourceClaimTemplate"]
    return pods, templates, list(claims_of(objects, manifests))


@pytest.mark.parametrize("backend", BY_CLAIM)
def test_each_pod_claims_as_many_devices_as_the_job_says_gpus(backend: str) -> None:
    pods, (template,), claims = pods_and_templates(backend, DRA)
    assert len(pods) == len(claims) == 2
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 2}
    for pod, claim in zip(pods, claims, strict=True):
        (entry,) = pod["spec"]["resourceClaims"]
        assert entry["resourceClaimTemplateName"] == template["metadata"]["name"]
        resources = pod["spec"]["containers"][0]["resources"]
        assert resources["claims"] == [{"name": entry["name"]}]
        assert "gpu" not in str({**resources, "claims": []})
        assert claim["spec"] == template["spec"]["spec"]
        assert claim["metadata"]["ownerReferences"][0]["name"] == pod["metadata"]["name"]
        assert pod["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu", "as with GPUs of a device plugin"


def test_the_table_of_pods_shows_what_each_claims() -> None:
    pods, _, claims = pods_and_templates("volcano", DRA)
    elsewhere = [item | {"metadata": item["metadata"] | {"namespace": "elsewhere"}} for item in claims]
    header, *rows = tables.pods_table([*pods, *claims, *elsewhere]).splitlines()
    assert "REQUESTS" in header
    assert [row.count("2 of gpu.example.com") for row in rows] == [1, 1]


@pytest.mark.parametrize("backend", BY_CLAIM)
def test_a_device_plugins_site_has_no_claims(backend: str) -> None:
    pods, templates, claims = pods_and_templates(backend, Gpus())
    assert (templates, claims) == ([], [])
    for pod in pods:
        assert "resourceClaims" not in pod["spec"]
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize("backend", BY_CLAIM)
def test_a_job_without_gpus_claims_nothing(backend: str) -> None:
    pods, templates, _ = pods_and_templates(backend, DRA, resources={"gpus": 0})
    assert not templates
    assert all("resourceClaims" not in pod["spec"] for pod in pods)


@pytest.mark.parametrize("backend", ["volcano", "pytorchjob"])
def test_a_master_with_another_number_has_another_template(backend: str) -> None:
    pods, templates, claims = pods_and_templates(backend, DRA, master_resources={"gpus": 4}, processes_per_node=2)
    counts = {
        item["metadata"]["name"]: item["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"]
        for item in templates
    }
    assert sorted(counts.values()) == [2, 4]
    assert len(claims) == 2
    for pod in pods:
        wanted = 4 if "master" in pod["metadata"]["name"] else 2
        assert counts[pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]] == wanted


def test_jobs_of_one_name_on_two_back_ends_share_no_template() -> None:
    names = [pods_and_templates(backend, DRA)[1][0]["metadata"]["name"] for backend in BY_CLAIM]
    assert len(set(names)) == len(BY_CLAIM)


def test_a_train_job_is_refused_with_the_reason_and_a_way_out() -> None:
    with pytest.raises(SpecError) as refused:
        on_site(job(backend="trainjob"), DRA, "jobs/mine.yml")
    assert "training_job.resources.gpus: got 2, expected no GPUs by claim on trainjob" in str(refused.value)
    assert "runtimePatches has no resourceClaims" in str(refused.value)
    assert on_site(job(backend="trainjob", resources={"gpus": 0}), DRA)


def test_a_job_file_may_name_a_class_of_its_own() -> None:
    resources = {"gpus": 1, "gpu_resource": "deviceclass/small.example.com"}
    _, (template,), _ = pods_and_templates("volcano", DRA, resources=resources)
    assert template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "small.example.com"
    with pytest.raises(SpecError, match=r"no GPUs by claim on trainjob"):
        job(backend="trainjob", resources=resources)


@pytest.mark.parametrize(
    ("gpus", "resource", "way"),
    [
        (DRA, "nvidia.com/mig-1g.5gb", "by claim"),
        (Gpus(), "deviceclass/gpu.example.com", "by a device plugin"),
    ],
)
def test_a_resource_of_the_other_way_is_refused(gpus: Gpus, resource: str, way: str) -> None:
    with pytest.raises(SpecError) as refused:
        on_site(job(resources={"gpus": 1, "gpu_resource": resource}), gpus)
    assert f'gpu_resource: got "{resource}"' in str(refused.value)
    assert f"this site gives out GPUs {way}" in str(refused.value)
