"""The actions cluster_apply and helm_released against a live API server: what they change, tell, and leave alone."""

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
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied", "namespace": "default"}}


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
    found: dict[str, Any] = played["plays"][0]["tasks"][-1]["hosts"]["localhost"]
    return found


def test_an_object_is_made_changed_and_left_alone(lab: Lab, tmp_path: Path) -> None:
    try:
        made = apply(tmp_path, [{**MAP, "data": {"a": "1"}}], "--check", "--diff")
        assert made["changed"]
        assert "a: '1'" in made["diff"][0]["after"]
        assert not apply(tmp_path, [])["changed"]
        assert "not found" in lab.kubectl("get", "configmap", "applied", check=False), "a check run made it"
        assert [apply(tmp_path, [{**MAP, "data": {"a": "1"}}])["changed"] for _ in range(2)] == [True, False]
        lab.kubectl("patch", "configmap", "applied", "--patch", '{"data": {"a": "2", "b": "3"}}')
        assert apply(tmp_path, [{**MAP, "data": {"a": "1"}}])["changed"], "another's change of our field stays"
        data = json.loads(lab.kubectl("get", "configmap", "applied", "-o", "json"))["data"]
        assert data == {"a": "1", "b": "3"}, "what is not ours is left alone"
    finally:
        lab.kubectl("delete", "configmap", "applied", "--ignore-not-found")


@pytest.mark.usefixtures("lab")
def test_a_refusal_names_the_object_and_an_unknown_kind_is_told(tmp_path: Path) -> None:
    bad = {**MAP, "metadata": {**MAP["metadata"], "name": "Not_A_Name"}}
    refused = apply(tmp_path, [bad])
    assert refused["failed"]
    assert refused["msg"].startswith("ConfigMap Not_A_Name: the cluster says: ")
    unknown = {"apiVersion": "v1", "kind": "ConfigMop", "metadata": {"name": "a", "namespace": "default"}}
    assert "has no kind ConfigMop in v1; is its CRD installed?" in apply(tmp_path, [unknown])["msg"]


def test_a_release_is_as_asked_until_its_values_are_others(lab: Lab, tmp_path: Path) -> None:
    helm = [f"{lab.parts['bin']['helm']}/helm", f"--kubeconfig={ADMIN}", "--namespace=kube-system"]
    told = subprocess.run([*helm, "get", "values", "lab-dns", "-o", "json"], capture_output=True, text=True, check=True)
    release = {"namespace": "kube-system", "chart": str(ROOT / "charts/lab-dns"), "kubeconfig": ADMIN}
    for name, values, expected in (
        ("lab-dns", json.loads(told.stdout), True),
        ("lab-dns", json.loads(told.stdout) | {"replicas": 2}, False),
        ("no-such-release", {}, False),
    ):
        found = play(tmp_path, {"gangplank.gangplank.helm_released": {**release, "name": name, "values": values}})
        assert (found["as_asked"], found["namespace"], found["pending"]) == (expected, True, [])
