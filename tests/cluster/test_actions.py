"""The actions over objects of a cluster, and helm_released, against a live API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster.conftest import ROOT, STATE

if TYPE_CHECKING:
    from tests.cluster.conftest import Lab

ADMIN = str(STATE / "admin.kubeconfig")
MAP: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied", "namespace": "default"}}


def apply(folder: Path, definition: list[dict[str, Any]], *words: str) -> dict[str, Any]:
    """What cluster_apply returns, or its failure."""
    return play(folder, {"gangplank.gangplank.cluster_apply": {"definition": definition, "kubeconfig": ADMIN}}, *words)


def play(folder: Path, action: dict[str, Any], *words: str) -> dict[str, Any]:
    """Run a play with the one task; its result, or its failure."""
    task = {"name": "Do it", **action}
    book = folder / "play.yml"
    book.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), str(book), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False,
                          env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"})
    played = json.loads(done.stdout[done.stdout.index("{"):])
    result: dict[str, Any] = played["plays"][0]["tasks"][-1]["hosts"]["localhost"]
    return result


def test_an_object_is_created_changed_and_left_alone(lab: Lab, tmp_path: Path) -> None:
    try:
        created = apply(tmp_path, [{**MAP, "data": {"a": "1"}}], "--check", "--diff")
        assert created["changed"]
        assert "a: '1'" in created["diff"][0]["after"]
        assert not apply(tmp_path, [])["changed"]
        assert "not found" in lab.kubectl("get", "configmap", "applied", check=False), "check mode created it"
        assert [apply(tmp_path, [{**MAP, "data": {"a": "1"}}])["changed"] for _ in range(2)] == [True, False]
        lab.kubectl("patch", "configmap", "applied", "--patch", '{"data": {"a": "2", "b": "3"}}')
        assert apply(tmp_path, [{**MAP, "data": {"a": "1"}}])["changed"], "another's change of our field stays"
        data = json.loads(lab.kubectl("get", "configmap", "applied", "-o", "json"))["data"]
        assert data == {"a": "1", "b": "3"}, "what is not ours is left alone"
    finally:
        lab.kubectl("delete", "configmap", "applied", "--ignore-not-found")


@pytest.mark.usefixtures("lab")
def test_a_refusal_names_the_object_or_the_unknown_kind(tmp_path: Path) -> None:
    bad = {**MAP, "metadata": {**MAP["metadata"], "name": "Not_A_Name"}}
    refused = apply(tmp_path, [bad])
    assert refused["failed"]
    assert refused["msg"].startswith("ConfigMap default/Not_A_Name: the cluster says: ")
    unknown = {"apiVersion": "v1", "kind": "ConfigMop", "metadata": {"name": "a", "namespace": "default"}}
    refusal = "ConfigMop of v1: got no such kind, expected one that the cluster has. Fix: check the spelling"
    assert refusal in apply(tmp_path, [unknown])["msg"]


def test_a_release_is_as_asked_until_its_values_are_others(lab: Lab, tmp_path: Path) -> None:
    helm = [f"{lab.parts['bin']['helm']}/helm", f"--kubeconfig={ADMIN}", "--namespace=kube-system"]
    get_values = [*helm, "get", "values", "lab-dns", "-o", "json"]
    live_values = json.loads(subprocess.run(get_values, capture_output=True, text=True, check=True).stdout)
    release: dict[str, Any] = {"namespace": "kube-system", "chart": str(ROOT / "charts/lab-dns"), "kubeconfig": ADMIN}
    for name, values, expected in (
        ("lab-dns", live_values, True),
        ("lab-dns", live_values | {"replicas": 2}, False),
        ("no-such-release", {}, False),
    ):
        asked = {"gangplank.gangplank.helm_released": {**release, "name": name, "values": values}}
        result = play(tmp_path, asked)
        assert (result["as_asked"], result["namespace"], result["pending"]) == (expected, True, [])


def test_remove_deletes_what_is_named_waits_until_it_is_gone_and_names_what_holds_it(lab: Lab, tmp_path: Path) -> None:
    names = ("removed", "kept", "held", "selected")
    maps: dict[str, Any] = {name: {**MAP, "metadata": {"name": name, "namespace": "default"}} for name in names}
    maps["held"]["metadata"]["finalizers"] = ["example.com/hold"]
    maps["selected"]["metadata"]["labels"] = {"gangplank-test": "selected"}
    all_maps = "/api/v1/namespaces/default/configmaps"
    named = {"definition": [maps["removed"]], "paths": [f"{all_maps}?labelSelector=gangplank-test=selected"]}

    def remove(*words: str, **arguments: Any) -> dict[str, Any]:
        return play(tmp_path, {"gangplank.gangplank.cluster_remove": {"kubeconfig": ADMIN, **arguments}}, *words)

    def live() -> set[str]:
        return {item["metadata"]["name"] for item in lab.get("configmaps")} & set(names)

    try:
        assert apply(tmp_path, list(maps.values()))["changed"]
        dry = remove("--check", timeout_s=10, **named)
        assert dry["removed"] == ["ConfigMap default/removed", "ConfigMap default/selected"]
        assert live() == set(names), "check mode removed one"
        assert "expected one object, or a selection" in remove(paths=[all_maps])["msg"]
        assert remove(timeout_s=10, **named)["removed"] == dry["removed"]
        assert live() == {"kept", "held"}
        assert not remove(timeout_s=10, **named)["changed"]
        late = remove(timeout_s=1, definition=[maps["held"]])
        assert late["msg"].startswith("ConfigMap default/held: got an object with the finalizers example.com/hold")
    finally:
        release = '--patch={"metadata": {"finalizers": null}}'
        lab.kubectl("patch", "configmap", "held", "--type=merge", release, check=False)
        lab.kubectl("delete", "configmap", "--ignore-not-found", *names)


def test_nodes_get_and_lose_labels_and_taints(lab: Lab, tmp_path: Path) -> None:
    taint = {"key": "gangplank.dev/test", "value": "x", "effect": "PreferNoSchedule"}
    arguments = {"names": ["node-1"], "labels": {"gangplank.dev/test": "1"}, "taints": [taint], "kubeconfig": ADMIN}

    def nodes(*words: str, **more: Any) -> bool:
        return bool(play(tmp_path, {"gangplank.gangplank.cluster_nodes": {**arguments, **more}}, *words)["changed"])

    def node() -> tuple[dict[str, str], list[dict[str, str]]]:
        item = lab.get("node", "node-1")
        return item["metadata"]["labels"], item["spec"].get("taints", [])

    before = node()
    try:
        assert nodes("--check")
        assert node() == before, "check mode changed the node"
        assert [nodes(), nodes()] == [True, False]
        assert node() == ({**before[0], "gangplank.dev/test": "1"}, [*before[1], taint])
    finally:
        assert [nodes(state="absent"), nodes(state="absent")] == [True, False]
    assert node() == before
    try:
        assert [nodes(owner="test"), nodes(owner="test")] == [True, False]
        assert nodes("--check", owner="test", names=[])
        assert [nodes(owner="test", names=[]), nodes(owner="test", names=[])] == [True, False]
    finally:
        nodes(owner="test", state="absent")
    assert node() == before


def test_merge_removes_a_key_and_read_waits_for_a_condition(lab: Lab, tmp_path: Path) -> None:
    def merge(definition: dict[str, Any], *words: str) -> bool:
        arguments = {"definition": [definition], "merge": True, "kubeconfig": ADMIN}
        return bool(play(tmp_path, {"gangplank.gangplank.cluster_apply": arguments}, *words)["changed"])

    def read(path: str, condition: str) -> dict[str, Any]:
        arguments = {"paths": [path], "conditions": [condition], "timeout_s": 1, "kubeconfig": ADMIN}
        return play(tmp_path, {"gangplank.gangplank.cluster_read": arguments})

    try:
        assert merge({**MAP, "data": {"a": "1", "b": "2"}}, "--check")
        assert merge({**MAP, "data": {"a": "1", "b": "2"}}), "check mode created it"
        assert [merge({**MAP, "data": {"b": None}}) for _ in range(2)] == [True, False]
        assert json.loads(lab.kubectl("get", "configmap", "applied", "-o", "json"))["data"] == {"a": "1"}
        assert read("/api/v1/nodes/node-1", "Ready")["found"][0][0]["metadata"]["name"] == "node-1"
        assert "expected the condition NoSuch within 1 s" in read("/api/v1/nodes/node-1", "NoSuch")["msg"]
    finally:
        lab.kubectl("delete", "configmap", "applied", "--ignore-not-found")
