"""What the two roles that give out GPUs refuse before they change anything."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.site.gpu_devices import LABELS
from tests.unit.plugins.test_cluster_ready import play

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Api

PLUGIN, DRIVER = "gpu_device_plugin", "gpu_dra_driver"
NODES = "expected names among the cluster's nodes"
# The role, the tasks that refuse, the inputs, and what is said
CASES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "an old plugin": (PLUGIN, "main", {f"{PLUGIN}_version": "0.17.4"}, f"{PLUGIN}_version: got 0.17.4, expected 0.18"),
    "no chart of the plugin": (PLUGIN, "main", {f"{PLUGIN}_source": "lab"}, f'{PLUGIN}_chart: got "", expected'),
    "shared GPUs that are simulated": (
        PLUGIN, "main", {f"{PLUGIN}_source": "simulated", f"{PLUGIN}_time_slices": 4},
        f"{PLUGIN}_time_slices: got 4, expected 1 on simulated GPUs",
    ),
    "a node that is not there": (PLUGIN, "nodes", {f"{PLUGIN}_nodes": ["b"]}, f"{PLUGIN}_nodes: got ['b'], {NODES}"),
    "no GPU node": (PLUGIN, "nodes", {f"{PLUGIN}_nodes": []}, f"{PLUGIN}_nodes: got [], {NODES}"),
    "an old driver": (DRIVER, "main", {f"{DRIVER}_version": "0.3.0"}, f"{DRIVER}_version: got 0.3.0, expected 0.4.0"),
    "no chart of the driver": (DRIVER, "main", {f"{DRIVER}_source": "lab"}, f'{DRIVER}_chart: got "", expected'),
    "no node of a driver": (DRIVER, "nodes", {f"{DRIVER}_nodes": []}, f"{DRIVER}_nodes: got [], {NODES}"),
}  # fmt: skip


def refusals(api: Api, folder: Path, *cases: tuple[str, str, dict[str, Any]], version: str = "v1") -> list[str]:
    """What roles say that refuse a cluster of one node, with a version of the API of claims; one start of Ansible."""
    api.objects["/api/v1/nodes/a"] = {"metadata": {"name": "a", "labels": {}}, "spec": {}, "status": {}}
    versions = [{"groupVersion": f"resource.k8s.io/{version}", "version": version}]
    api.objects["/apis/resource.k8s.io"] = {"kind": "APIGroup", "name": "resource.k8s.io", "versions": versions}
    blocks = []
    for role, tasks, inputs in cases:
        step = {"name": "Include it", "ansible.builtin.include_role": {"name": role, "tasks_from": tasks}}
        after = {"name": "Refused", "ansible.builtin.meta": "noop"}
        blocks.append({"block": [step], "rescue": [after], "vars": inputs})
    book = folder / "play.yml"
    book.write_text(json.dumps([{"name": "Play", "hosts": "localhost", "gather_facts": False, "tasks": blocks}]))
    done = play(folder, book, K8S_AUTH_KUBECONFIG=api.kubeconfig)
    assert f" rescued={len(cases)} " in done.stdout, done.stdout + done.stderr
    assert {line.split()[0] for line in api.seen} <= {"GET"}, api.seen
    return " ".join(done.stdout.replace('\\"', '"').split()).split("TASK [Include it]")[1:]


@pytest.mark.slow
def test_what_cannot_be_installed_is_refused_by_its_input(api: Api, tmp_path: Path) -> None:
    said = refusals(api, tmp_path, *(case[:3] for case in CASES.values()))
    assert [name for name, text in zip(CASES, said, strict=True) if CASES[name][3] not in text] == []


def test_a_cluster_without_claims_of_devices_is_refused(api: Api, tmp_path: Path) -> None:
    """Before Kubernetes 1.34 it has beta versions alone."""
    (said,) = refusals(api, tmp_path, (DRIVER, "nodes", {f"{DRIVER}_nodes": ["a"]}), version="v1beta2")
    assert "resource.k8s.io: got no version v1, expected a cluster with Dynamic Resource Allocation" in said


@pytest.mark.slow
@pytest.mark.parametrize("role", [PLUGIN, DRIVER])
def test_a_node_that_leaves_the_list_loses_what_the_role_has_set(api: Api, tmp_path: Path, role: str) -> None:
    """And one that stays loses the labels of simulated devices, once they are real."""
    api.objects["/apis/resource.k8s.io"] = {"kind": "APIGroup", "versions": [{"groupVersion": "resource.k8s.io/v1"}]}
    for name in "ab":
        meta = {"name": name, "resourceVersion": "1", "labels": {"other": "1"}}
        api.objects[f"/api/v1/nodes/{name}"] = {"metadata": meta, "spec": {}, "status": {}}
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    step = {"name": "Include it", "ansible.builtin.include_role": {"name": role, "tasks_from": "nodes"}}
    variables = {f"{role}_taints": taints, f"{PLUGIN}_runtime_class": ""}
    runs = (("simulated", ["a", "b"]), ("release", ["b"]))
    tasks = [
        step | {"vars": variables | {f"{PLUGIN}_source": source, f"{role}_nodes": names}} for source, names in runs
    ]
    book = tmp_path / "play.yml"
    book.write_text(json.dumps([{"name": "Play", "hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    done = play(tmp_path, book, K8S_AUTH_KUBECONFIG=api.kubeconfig)
    assert done.returncode == 0, done.stdout + done.stderr
    left, kept = (api.objects[f"/api/v1/nodes/{name}"] for name in "ab")
    assert (left["metadata"]["labels"], left["spec"]["taints"]) == ({"other": "1"}, [])
    assert [taint["key"] for taint in kept["spec"]["taints"]] == ["gpu"]
    assert len(kept["metadata"]["labels"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("role", [PLUGIN, DRIVER])
def test_a_node_that_an_earlier_version_has_labelled_is_named_where_the_role_fails(
    api: Api, tmp_path: Path, role: str
) -> None:
    label = LABELS[role]
    down = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    for name, status in (("a", down), ("b", {})):
        meta = {"name": name, "labels": {label: "true"}}
        api.objects[f"/api/v1/nodes/{name}"] = {"metadata": meta, "spec": {}, "status": status}
    step = {"name": "Include it", "ansible.builtin.include_role": {"name": role, "tasks_from": "why"}}
    tasks = [step | {"vars": {f"{role}_nodes": ["b"]}}]
    book = tmp_path / "play.yml"
    book.write_text(json.dumps([{"name": "Play", "hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    said = " ".join(play(tmp_path, book, K8S_AUTH_KUBECONFIG=api.kubeconfig).stdout.split())
    assert f"a: node not ready: its condition Ready is Unknown. Fix: kubectl label node a {label}-, since" in said
    assert "b: no plugin: its DaemonSet does not exist. Fix: run the role" in said
