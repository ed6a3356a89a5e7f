"""A3: a cap is the most a team may have, of everything: what it does not name is 0 unless the file says `unlimited`."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site
from gangplank.k8s import quantity
from gangplank.teams.access import rows
from gangplank.teams.job_defaults import with_team
from gangplank.teams.objects import MADE, PER_JOB, team_objects
from gangplank.teams.parse import parse_team, parse_teams

Json = dict[str, Any]
CAP: Json = {"cpu": 4, "memory": "16Gi", "ephemeral_storage": "50Gi"}
DEVICES = ("hugepages-2Mi", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb")  # what the nodes advertise


def team(**fields: Any) -> Json:
    return {"team": {"name": "vision", "members": [{"user": "ada"}], "cap": CAP} | fields}


def made(kind: str, site: object = None, **fields: Any) -> Json:
    site_spec, teams = parse_teams({"a.yml": team(**fields)}, site)
    return next(item for item in team_objects(teams, site_spec, DEVICES) if item["kind"] == kind)


def hard(**fields: Any) -> Json:
    quota: Json = made("ResourceQuota", **fields)["spec"]["hard"]
    return quota


def problems(**fields: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_team(team(**fields), "vision.yml")
    return [str(item) for item in caught.value.problems]


def test_a3_every_resource_is_limited_by_requests_and_by_limits() -> None:
    limits = hard()
    for name, text in (("cpu", "4"), ("memory", "16Gi"), ("ephemeral-storage", "50Gi")):
        assert limits[f"requests.{name}"] == limits[f"limits.{name}"] == text


def test_a3_gpus_and_other_devices_are_0_unless_the_cap_names_them() -> None:
    limits, capability = hard(), made("Queue")["spec"]["capability"]
    for name in ("nvidia.com/gpu", *DEVICES):
        assert limits[f"requests.{name}"] == capability[name] == "0"
    devices = {"gpus": 8, "nvidia.com/mig-1g.10gb": 2, "nvidia.com/gpu.shared": "unlimited", "hugepages-2Mi": "4Mi"}
    cap = CAP | devices
    limits, capability = hard(cap=cap), made("Queue", cap=cap)["spec"]["capability"]
    for name, text in (("nvidia.com/gpu", "8"), ("nvidia.com/mig-1g.10gb", "2"), ("hugepages-2Mi", "4Mi")):
        assert limits[f"requests.{name}"] == capability[name] == text
    assert not any("gpu.shared" in name for name in (*limits, *capability))


def test_a3_a_device_that_the_cap_names_is_limited_before_a_node_has_it() -> None:
    assert hard(cap=CAP | {"example.com/fpga": 1})["requests.example.com/fpga"] == "1"


def test_a3_only_what_the_file_calls_unlimited_has_no_limit() -> None:
    cap: Json = dict.fromkeys((*CAP, "gpus", "pods", "configmaps", "services", "secrets"), "unlimited")
    limits, capability = hard(cap=cap, max_jobs="unlimited"), made("Queue", cap=cap)["spec"]["capability"]
    closed = {name for name, text in limits.items() if text == "0"}
    assert {*limits} == closed
    assert {f"requests.{name}" for name in DEVICES} <= closed
    assert {*capability} == {*DEVICES}
    (item,) = made("LimitRange", cap=cap)["spec"]["limits"]
    assert "default" not in item
    assert item["min"]["cpu"]


def test_a3_a_container_cannot_request_nothing_and_has_a_limit() -> None:
    (item,) = made("LimitRange", default_requests={"memory": "1Gi"})["spec"]["limits"]
    assert {*item["min"]} == {"cpu", "memory", "ephemeral-storage"}
    assert all(quantity.parse(text) > 0 for text in item["min"].values())
    assert item["default"] == item["defaultRequest"] == {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "2Gi"}


def test_a3_a_quota_counts_every_kind_that_a_member_may_create() -> None:
    limits = hard()
    kinds = {
        f"{resource}.{group}".strip(".")
        for _, group, resources, verbs in rows()
        for resource in resources
        if "create" in verbs and "/" not in resource
    }
    assert len(kinds) >= 11
    assert {f"count/{kind}" for kind in kinds} <= {*limits}
    assert "pods" in limits
    assert limits["count/resourceclaims.resource.k8s.io"] == "0"
    assert limits["count/leases.coordination.k8s.io"] == hard(max_jobs=50)["count/leases.coordination.k8s.io"] == "50"


def test_a3_a_quota_counts_every_kind_that_controllers_make_of_jobs() -> None:
    """A member may delete a job and orphan what was made of it."""
    counted = {name.removeprefix("count/").partition(".")[0] for name in hard()}
    plurals = {
        f"{kind.lower()}s".replace("policys", "policies") for backend in BACKENDS.values() for kind in backend.makes
    }
    assert {"podgroups", "jobsets", "networkpolicies", "horizontalpodautoscalers"} <= plurals
    assert plurals <= counted
    small = hard(max_jobs=5, cap=CAP | {"pods": 8})
    assert small["count/podgroups.scheduling.volcano.sh"] == "135", "one for each pod and for each job of any kind"
    assert {small[f"count/{name}"] for name in MADE} == {"15"}


def test_a3_devices_of_a_class_are_limited_in_queue_and_quota_as_the_cap_says() -> None:
    name, counted = "deviceclass/gpu.example.com", "gpu.example.com.deviceclass.resource.k8s.io/devices"
    for site, cap in (({"site": {"gpu_resource": name}}, {"gpus": 8}), (None, {name: 8})):
        limits = made("ResourceQuota", site, cap=CAP | cap)["spec"]["hard"]
        assert (limits[counted], made("Queue", site, cap=CAP | cap)["spec"]["capability"][name]) == ("8", "8")
        assert limits["count/resourceclaimtemplates.resource.k8s.io"] == "100", "two for each job, as below"
        assert "count/resourceclaims.resource.k8s.io" not in limits, "one for each pod, and its devices are counted"
        annotations = made("Namespace", site, cap=CAP | cap)["metadata"]["annotations"]
        assert annotations["gangplank.dev/device-classes"] == "gpu.example.com"
        assert name not in annotations["gangplank.dev/resources"], "no container may request it by name"


def test_a_job_whose_master_claims_another_number_of_devices_has_as_many_templates_as_the_quota_allows_it() -> None:
    parts: Any = {"resources": {"gpus": 2}, "master_resources": {"gpus": 1}, "processes_per_node": 1}
    job = parse_job({"name": "a", "namespace": "a", "image": "a", "command": ["a"], "workers": 1, **parts})
    spec = on_site(job, Gpus(allocation="dra"))
    for name in ("volcano", "pytorchjob"):
        templates = [item for item in BACKENDS[name].manifests(spec) if item["kind"] == "ResourceClaimTemplate"]
        assert len(templates) == PER_JOB["resourceclaimtemplates"]


def test_a3_a_class_that_the_cap_does_not_name_is_0_and_no_claim_can_be_made() -> None:
    site_spec, teams = parse_teams({"a.yml": team()})
    objects = team_objects(teams, site_spec, ["deviceclass/gpu.example.com"])
    limits = next(item for item in objects if item["kind"] == "ResourceQuota")["spec"]["hard"]
    assert limits["gpu.example.com.deviceclass.resource.k8s.io/devices"] == "0"
    assert {limits[f"count/{kind}.resource.k8s.io"] for kind in ("resourceclaims", "resourceclaimtemplates")} == {"0"}
    annotations = made("Namespace")["metadata"]["annotations"]
    assert annotations["gangplank.dev/device-classes"] == ""


def test_a3_a_guarantee_of_devices_is_not_compared_with_what_nodes_advertise() -> None:
    share = {"guaranteed": {"gpus": 4}, "cap": CAP | {"gpus": 8}}
    site = {"site": {"gpu_resource": "deviceclass/gpu.example.com", "capacity": {"cpu": 64, "memory": "64Gi"}}}
    assert parse_teams({"a.yml": team(**share)}, site)[1]


def test_a3_counts_follow_max_jobs_or_the_cap() -> None:
    by_default, small = hard(), hard(max_jobs=5, cap=CAP | {"services": 100, "pods": 8})
    names = ("count/jobs.batch.volcano.sh", "pods", "count/configmaps", "count/services", "count/secrets")
    assert [by_default[name] for name in names] == ["50", "510", "110", "60", "60"]
    assert [small[name] for name in names] == ["5", "8", "20", "100", "15"]
    assert (by_default["count/pods"], small["count/pods"]) == ("5100", "80")
    assert hard(max_jobs=99)["pods"] == "1k", "the API server's own spelling, or every run would change it"


@pytest.mark.parametrize("missing", [*CAP])
def test_a3_a_cap_without_what_every_pod_needs_is_refused(missing: str) -> None:
    cap = {name: amount for name, amount in CAP.items() if name != missing}
    (problem,) = problems(cap=cap)
    assert problem.startswith(f"team.cap: got no {missing}, expected an amount or unlimited: ")
    assert f"Fix: add {missing}: " in problem


@pytest.mark.parametrize(
    ("cap", "path"),
    [
        ({"cpu": 0}, "team.cap.cpu"),
        ({"cpu": "none"}, "team.cap.cpu"),
        ({"gpus": -1}, "team.cap.gpus"),
        ({"nvidia.com/gpu": 1}, "team.cap.nvidia.com/gpu"),  # its name here is gpus
        ({"nvidia.com/mig-1g.10gb": "half"}, "team.cap.nvidia.com/mig-1g.10gb"),
        ({"requests.cpu": 1}, "team.cap.requests.cpu"),
        ({"kubernetes.io/batch-cpu": 1}, "team.cap.kubernetes.io/batch-cpu"),
        ({"pods": 0}, "team.cap.pods"),
        ({"pods": "many"}, "team.cap.pods"),
        ({"jobs": 1}, "team.cap.jobs"),
    ],
)
def test_a3_refuses_a_cap_that_is_no_amount(cap: Json, path: str) -> None:
    assert [text.partition(": ")[0] for text in problems(cap=CAP | cap)] == [path]


def test_a3_only_a_cap_is_unlimited_and_only_a_team_s_cap_counts_objects() -> None:
    (problem,) = problems(deserved={"cpu": "unlimited"})
    assert problem.startswith("team.deserved.cpu")
    (problem,) = problems(queues=[{"name": "x", "cap": CAP | {"pods": 1}}])
    assert problem.startswith("team.queues[0].cap.pods")


def test_a3_default_requests_are_not_below_the_least_that_a_container_may_request() -> None:
    (problem,) = problems(default_requests={"cpu": "1m"})
    assert problem.startswith('team.default_requests.cpu: got "1m", expected at least 10m')


def refused(site: object, **fields: Any) -> str:
    with pytest.raises(SpecError) as caught:
        parse_teams({"a.yml": team(**fields)}, site)
    return str(caught.value)


def test_a3_what_a_cap_does_not_name_can_be_neither_deserved_nor_below_it() -> None:
    text = refused(None, deserved={"gpus": 1}, queues=[{"name": "x", "cap": CAP | {"example.com/fpga": 1}}])
    assert "team.deserved.nvidia.com/gpu: got 1, expected at most 0, its team_cap" in text
    assert "team.queues[0].cap.example.com/fpga: got 1, expected at most 0, team_cap of vision above it" in text


def test_a3_without_a_cap_of_its_own_a_queue_has_that_of_the_queue_above_it() -> None:
    site = {"site": {"queues": [{"name": "research", "cap": CAP}]}}
    text = refused(site, parent="research", cap=CAP | {"gpus": 1})
    assert "team.cap.nvidia.com/gpu: got 1, expected at most 0, team_site_queues[0].cap of research above it" in text
    assert parse_teams({"a.yml": team(parent="research", queues=[{"name": "x"}])}, site)
    free = {"site": {"queues": [{"name": "research"}]}}
    assert "capability" not in made("Queue", free, parent="research", cap=CAP)["spec"]  # research itself comes first


def test_a3_a_team_s_job_is_limited_to_what_it_requests_unless_it_has_limits() -> None:
    """A quota of limits refuses a container without one."""
    spec = parse_team(team(job_defaults={"resources": {"cpu": 2}}))
    job: Json = {
        "team": "vision",
        "resources": {"memory": {"request": "1Gi", "limit": "2Gi"}, "gpus": 1},
        "master_resources": {"cpu": "1"},
    }
    done = with_team(job, [spec])
    assert done["resources"] == {
        "cpu": {"request": 2, "limit": 2},
        "memory": {"request": "1Gi", "limit": "2Gi"},
        "gpus": 1,
    }
    assert done["master_resources"]["cpu"] == {"request": "1", "limit": "1"}
    bare = with_team({"team": "vision"}, [parse_team(team())])["resources"]
    assert bare == {"cpu": {"request": "500m", "limit": "500m"}, "memory": {"request": "1Gi", "limit": "1Gi"}}
    free = parse_team(team(cap=CAP | {"cpu": "unlimited"}))
    assert with_team({"team": "vision"}, [free])["resources"] == {"memory": {"request": "1Gi", "limit": "1Gi"}}
