"""The role lab_cluster over the data of an earlier lab: older programs refuse data of newer ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
INVENTORY = (
    "all: {hosts: {node-0: {ansible_connection: local, ansible_python_interpreter: '{{ ansible_playbook_python }}'}}}"
)


def parts(etcd: str, kubernetes: str) -> dict[str, object]:
    """What the role lab_parts would have built."""
    folders = {"etcd": f"/p/etcd-v{etcd}-0a/bin", "kubernetes": f"/p/kubernetes-v{kubernetes}-1b/bin", "helm": "/p/h"}
    return {"bin": folders, "charts": {}, "images": [], "roots": {"node": "/none"}, "store": "/none"}


def check(folder: Path, /, etcd: str, kubernetes: str, **more: object) -> str:
    """The output of a check run of these versions, with more inputs, over data of etcd 3.6.8 and Kubernetes 1.35.4."""
    (folder / "lab").mkdir()
    (folder / "lab/parts.json").write_text(json.dumps(parts("3.6.8", "1.35.4")))
    (folder / "hosts.yml").write_text(INVENTORY)
    inputs = {"folder": str(folder / "lab"), "nodes": ["node-0"], "parts": parts(etcd, kubernetes), "context": ""}
    variables = {f"lab_cluster_{name}": value for name, value in (inputs | more).items()}
    play = {"hosts": "all", "gather_facts": False, "roles": ["lab_cluster"], "vars": variables}
    (folder / "play.yml").write_text(json.dumps([play]))
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "COLUMNS": "400"}
    command = [sys.executable, "-m", "ansible", "playbook", "-i", str(folder / "hosts.yml"), str(folder / "play.yml")]
    done = subprocess.run([*command, "--check"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("etcd", "kubernetes", "refusal"),
    [
        ("3.5.21", "1.35.4", "etcd: got v3.5, expected at least v3.6"),
        ("3.6.8", "1.34.9", "kubernetes: got v1.34, expected at least v1.35"),
    ],
)
def test_data_of_a_newer_version_are_refused_with_the_fix(
    tmp_path: Path, etcd: str, kubernetes: str, refusal: str
) -> None:
    output = " ".join(check(tmp_path, etcd, kubernetes).split())
    assert refusal in output
    assert f"which wrote the data in {tmp_path}/lab" in output
    assert "or delete the lab (make down)" in output
    assert "changed=0" in output


@pytest.mark.slow
@pytest.mark.parametrize(("etcd", "kubernetes"), [("3.6.1", "1.35.0"), ("3.10.0", "1.36.1")])
def test_the_same_and_a_newer_version_continue(tmp_path: Path, etcd: str, kubernetes: str) -> None:
    assert "Ensure the certificates" in check(tmp_path, etcd, kubernetes)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "refused"), [("/mnt/../usr", True), ("/mnt/pki/", True), ("/mnt/data/", False)])
def test_a_folder_at_a_path_of_the_nodes_own_is_refused_however_that_is_written(
    tmp_path: Path, target: str, *, refused: bool
) -> None:
    output = check(tmp_path, "3.6.8", "1.35.4", binds=[{"source": str(tmp_path), "target": target}])
    assert (f"got {tmp_path} at {target}, expected a folder of this machine" in " ".join(output.split())) == refused
    assert ("Ensure the certificates" in output) != refused


@pytest.mark.slow
@pytest.mark.parametrize(
    "nodes", [["node-1", "gpu-01"], ["node-0", "gpu_1"], ["node-0", "node-64"], ["Node-0"], ["a", "b1"]]
)
def test_names_that_the_nodes_cannot_have_are_refused(tmp_path: Path, nodes: list[str]) -> None:
    output = " ".join(check(tmp_path, "3.6.8", "1.35.4", nodes=nodes).split())
    assert f"got {nodes}, expected names of small letters, digits and hyphens".replace('"', "'") in output


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["lab", "/data/my lab", "/data/100%"])
def test_a_folder_that_no_program_of_the_lab_could_use_is_refused(tmp_path: Path, folder: str) -> None:
    output = " ".join(check(tmp_path, "3.6.8", "1.35.4", folder=folder).split())
    assert f"lab_cluster_folder: got {folder}, expected an absolute path" in output


@pytest.mark.slow
def test_an_image_for_no_lab_is_refused_and_makes_no_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.tar").touch()
    values = {"lab_cluster_folder": str(tmp_path / "lab"), "lab_cluster_load": str(tmp_path / "mine.tar")}
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "COLUMNS": "400"}
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "inventories/lab/hosts.yml", "playbooks/lab-load.yml"]
    command += ["-e", json.dumps(values)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert f"got {tmp_path}/lab, where no lab is" in " ".join(done.stdout.split())
    assert not (tmp_path / "lab").exists()
