"""A pod counts in a quota as Kubernetes counts it."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.k8s import pod_resources

Json = dict[str, Any]


def part(requests: Json | None = None, limits: Json | None = None, **more: Any) -> Json:
    return {"name": "a", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def counted(**pod: Any) -> Json:
    amounts = pod_resources.written(pod_resources.usage({"containers": [], **pod}))
    assert (amounts.pop("pods"), amounts.pop("count/pods")) == ("1", "1")
    return amounts


def test_containers_add_up_and_init_containers_count_where_they_need_more() -> None:
    pod = {
        "containers": [part({"cpu": "1"}), part({"cpu": "500m"})],
        "initContainers": [part({"cpu": "2", "memory": "1Gi"})],
    }
    assert counted(**pod) == {"cpu": "2", "requests.cpu": "2", "memory": "1Gi", "requests.memory": "1Gi"}


def test_sidecars_count_beside_the_containers_and_beside_later_init_containers() -> None:
    sidecar = part({"cpu": "1"}, restartPolicy="Always")
    assert counted(containers=[part({"cpu": "1"})], initContainers=[sidecar])["cpu"] == "2"
    assert counted(containers=[part({"cpu": "1"})], initContainers=[sidecar, part({"cpu": "3"})])["cpu"] == "4"
    assert counted(containers=[part({"cpu": "1"})], initContainers=[part({"cpu": "3"}), sidecar])["cpu"] == "3"


def test_devices_count_under_two_names_and_their_limits_under_none() -> None:
    amounts = counted(containers=[part({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 2, "cpu": 1})])
    assert amounts == {"nvidia.com/gpu": "2", "requests.nvidia.com/gpu": "2", "limits.cpu": "1"}


def test_a_whole_pods_own_numbers_win_and_its_overhead_is_added() -> None:
    pod = {"containers": [part({"cpu": "1", "memory": "1Gi"})], "resources": {"requests": {"cpu": "3"}}}
    assert counted(**pod)["cpu"] == "3"
    assert counted(**pod)["memory"] == "1Gi"
    assert counted(**pod, overhead={"cpu": "250m"})["cpu"] == "3250m"
    assert "limits.cpu" not in counted(**pod, overhead={"cpu": "250m"})


@pytest.mark.parametrize("name", ["hugepages-2Mi", "ephemeral-storage"])
def test_other_native_resources_count_under_both_names(name: str) -> None:
    assert counted(containers=[part({name: "4Mi"})]) == {name: "4Mi", f"requests.{name}": "4Mi"}


def test_the_first_summand_decides_how_a_sum_is_spelled() -> None:
    binary, decimal = pod_resources.amounts({"memory": "1Gi"}), pod_resources.amounts({"memory": "1G"})
    assert pod_resources.written(pod_resources.add(binary, binary)) == {"memory": "2Gi"}
    assert pod_resources.written(pod_resources.add(decimal, decimal)) == {"memory": "2G"}
    assert pod_resources.written(pod_resources.add(binary, pod_resources.amounts({"memory": "0"}))) == {"memory": "1Gi"}
