"""The job of `make train` fits on the default lab, wherever the pods of the platform run.

Every number is read from what installs it. Node memory comes from the role's own expressions, rendered here.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible.plugins.filter.core import regex_findall

from gangplank.backends import BACKENDS
from gangplank.backends.base import Site
from gangplank.jobs.parse import parse_job
from gangplank.k8s.quantity import parse
from gangplank.site.storage import releases

ROOT = Path(__file__).resolve().parents[3]
CORES = 2
# The part of a machine's memory that MemTotal shows: 96 % is less than on any machine we have seen.
KERNEL_LEAVES = Fraction(96, 100)
VOLCANO = ("admission_resources", "controller_resources", "scheduler_resources")  # one pod each

Room = tuple[Fraction, Fraction]  # cores, bytes


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def nodes() -> list[str]:
    return list(load("inventories/lab/hosts.yml")["all"]["children"]["lab"]["hosts"])


def requested(requests: dict[str, Any]) -> Room:
    return parse(str(requests.get("cpu", "0"))), parse(str(requests.get("memory", "0")))


def kubelet_text(machine_mib: int, before: str = "", **of_inventory: Any) -> str:
    """The configuration of each kubelet, where that of an earlier run is `before`."""
    role = ROOT / "roles/lab_cluster"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(role / "templates"), trim_blocks=True, undefined=jinja2.ChainableUndefined,
        autoescape=False,  # noqa: S701  YAML, as Ansible renders it
    )  # fmt: skip
    values = load("roles/lab_cluster/defaults/main.yml") | load("inventories/lab/group_vars/all/lab.yml")
    values |= {"lab_cluster_nodes": nodes(), "__lab_cluster_machine_mib": str(machine_mib)} | of_inventory
    values["__lab_cluster_stay"] = values["lab_cluster_nodes"]  # no node has left
    values["lookup"] = lambda *_, **__: before
    environment.filters["regex_findall"] = regex_findall
    for name in ("__lab_cluster_memory_before_mib", "__lab_cluster_memory_mib", "__lab_cluster_node_memory_mib"):
        values[name] = environment.from_string(load("roles/lab_cluster/vars/main.yml")[name]).render(values)
    return environment.get_template("kubelet.yaml.j2").render(values)


def allocatable(machine_mib: int, before: str = "", **of_inventory: Any) -> Room:
    """What each kubelet offers: its capacity without what its configuration reserves and keeps free."""
    kubelet = yaml.safe_load(kubelet_text(machine_mib, before, **of_inventory))
    taken = [requested(kubelet.get(kind) or {}) for kind in ("systemReserved", "kubeReserved")]
    free = parse(kubelet["evictionHard"]["memory.available"])
    cores = CORES - sum((cpu for cpu, _ in taken), Fraction())
    return cores, machine_mib * 2**20 - sum(memory for _, memory in taken) - free


def of_volcano() -> list[Room]:
    """Volcano's chart requests nothing by default (tests/charts/test_fetched_charts.py); the role's own values do."""
    custom = load("roles/volcano/vars/main.yml")["__volcano_own_values"].get("custom", {})
    return [requested((custom.get(name) or {}).get("requests", {})) for name in VOLCANO]


def of_storage() -> list[Room]:
    inputs = {"charts": "charts", "source": "lab", "local_path_chart": "chart", "local_path_version": "1"}
    classes = load("inventories/lab/group_vars/all/site.yml")["storage_classes"]
    images = {"helper_image": "helper:1", "local_path_image": "provisioner"}
    installed = releases(classes, {**inputs, **images, "tolerations": []})
    return [requested(item["values"]["resources"]["requests"]) for item in installed if item["classes"]]


def of_dns() -> list[Room]:
    values = load("charts/lab-dns/values.yaml")
    return [requested(values["resources"]["requests"])] * values["replicas"]


COMPONENTS = {"volcano": of_volcano, "storage": of_storage}


def platform() -> list[Room]:
    """The requests of all pods that lab.yml and site.yml install; a new component must have a function above."""
    installed = load("inventories/lab/group_vars/all/site.yml")["site_components"]
    return [*of_dns(), *itertools.chain.from_iterable(COMPONENTS[name]() for name in installed)]


def of_job(path: str) -> list[Room]:
    spec = parse_job(load(path), path, {})
    backend = BACKENDS[spec.backend]
    objects = backend.objects(backend.manifests(spec)[-1], Site())
    pods = [item["spec"]["containers"] for item in objects if item["kind"] == "Pod"]
    single = [[requested(container["resources"]["requests"]) for container in containers] for containers in pods]
    return [(sum((cpu for cpu, _ in each), Fraction()), sum((ram for _, ram in each), Fraction())) for each in single]


def holds(room: Room, places: tuple[int, ...], pods: list[Room]) -> bool:
    """Whether all pods fit on nodes of this size, if pod i is on node places[i]."""
    for node in set(places):
        mine = [pod for pod, place in zip(pods, places, strict=True) if place == node]
        if any(sum((pod[axis] for pod in mine), Fraction()) > room[axis] for axis in (0, 1)):
            return False
    return True


def never_fits(room: Room, count: int, platform: list[Room], job: list[Room]) -> list[tuple[int, ...]]:
    """The placements of the platform's pods that leave no place for the whole gang."""
    before = (p for p in itertools.product(range(count), repeat=len(platform)) if holds(room, p, platform))
    gangs = list(itertools.product(range(count), repeat=len(job)))
    return [p for p in before if not any(holds(room, p + gang, platform + job) for gang in gangs)]


@pytest.mark.parametrize("machine_gib", [8, 24])
def test_digits_fits_beside_all_that_is_installed(machine_gib: int) -> None:
    room = allocatable(int(machine_gib * 1024 * KERNEL_LEAVES))
    assert never_fits(room, len(nodes()), platform(), of_job("jobs/digits.yml")) == []


@pytest.mark.parametrize("machine_mib", [7999, 8000, 8031, 8032])
def test_a_few_mib_more_or_less_change_no_kubelet(machine_mib: int) -> None:
    first = kubelet_text(machine_mib)
    for more in (-32, -1, 0, 1, 31):
        assert kubelet_text(machine_mib + more, first) == first
    for more in (-33, 32):
        assert yaml.safe_load(kubelet_text(machine_mib + more, first)) != yaml.safe_load(first)


@pytest.mark.parametrize("machine_mib", [7864, 8000, 8063, 23592])
@pytest.mark.parametrize("more", [-33, -32, 31, 32])
def test_nodes_together_offer_no_more_than_the_machine_has(machine_mib: int, more: int) -> None:
    reserved_mib = load("roles/lab_cluster/defaults/main.yml")["lab_cluster_reserved_memory_mib"]
    for before in ("", kubelet_text(machine_mib - more)):
        assert 0 < allocatable(machine_mib, before)[1] * len(nodes()) <= (machine_mib - reserved_mib) * 2**20


def test_a_node_that_joins_takes_a_share_to_spare() -> None:
    two, three = ["node-0", "node-1"], ["node-0", "node-1", "node-2"]
    before = allocatable(16384, lab_cluster_nodes=two, lab_cluster_shares="3")  # as -e lab_cluster_shares=3 says it
    after = allocatable(16384, lab_cluster_nodes=three, lab_cluster_shares=3)
    assert before == after == allocatable(16384, lab_cluster_nodes=three)
    assert allocatable(16384, lab_cluster_nodes=[*three, "node-3"], lab_cluster_shares=3) < after


def test_the_job_has_three_pods_with_requests() -> None:
    job = of_job("jobs/digits.yml")
    assert len(job) == 3
    assert all(cpu > 0 and memory > 0 for cpu, memory in job)


def test_a_gang_that_is_too_large_does_not_fit() -> None:
    room = allocatable(int(8 * 1024 * KERNEL_LEAVES))
    assert never_fits(room, len(nodes()), platform(), of_job("jobs/digits.yml") * 3) != []
