"""What is accepted upstream although nobody can mean it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cli import main
from gangplank.jobs.parse import parse_job

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
MASTER: Json = {"name": "master", "replicas": 1}
WORKER: Json = {"name": "worker", "replicas": 2}
GPU: Json = {"template": {"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}

PART: Json = {
    "template": {
        "spec": {
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1, "nvidia.com/gpu": 1}}}
            ]
        }
    }
}


def volcano(*tasks: Json, plugins: Json | None = None, **spec: Any) -> Json:
    return {
        "tasks": list(tasks or (MASTER, WORKER)),
        "plugins": {"pytorch": []} if plugins is None else plugins,
        **spec,
    }


@pytest.mark.parametrize(
    ("backend", "spec", "said"),
    [
        ("volcano", volcano(plugins={"pytorch": ["--port=abc"]}), "so it becomes 0"),
        ("volcano", volcano(plugins={"pytorch": ["master=m", "--port=1"]}), "everything from"),
        ("volcano", volcano(plugins={"svc": ["--nope"]}), "not a flag of the plugin"),
        ("volcano", volcano(WORKER), "nothing is wired"),
        ("volcano", volcano(plugins={"pytorch": ["--master=boss"]}), "no task boss"),
        ("volcano", volcano({**MASTER, "replicas": 2}), "gets rank 0"),
        ("volcano", volcano(MASTER, {"name": "worker"}), "replicas is not set"),
        ("volcano", volcano(MASTER, {**WORKER, "dependsOn": {"name": ["master"]}}), "never starts"),
        ("volcano", volcano(policies=[{"event": "TaskCompleted", "action": "CompleteJob"}]), "the first task ends"),
        ("volcano", volcano({**MASTER, **GPU}), "has a limit but no request"),
        ("pytorchjob", {"pytorchReplicaSpecs": {"Worker": {}}, "nprocPerNode": "1"}, "no Master"),
        ("pytorchjob", {"pytorchReplicaSpecs": {"Master": {}}}, "one process per CPU"),
        ("pytorchjob", {"pytorchReplicaSpecs": {"Master": {}}, "nprocPerNode": "4"}, "RANK counts nodes"),
        ("pytorchjob", {"pytorchReplicaSpecs": {"Master": PART}, "nprocPerNode": "1"}, "has a limit but no request"),
        ("trainjob", {}, "no trainer stanza"),
        ("indexed", {"completions": 3, "parallelism": 2}, "never all run"),
        ("indexed", {"completions": 3, "parallelism": None}, "never all run"),
    ],
)
def test_tells(backend: str, spec: Json, said: str) -> None:
    notes = [*BACKENDS[backend].pitfalls({"spec": spec})]
    assert len(notes) == 1
    assert said in notes[0]


def test_the_operator_counts_limits_where_there_are_no_requests() -> None:
    manifest = {"spec": {"pytorchReplicaSpecs": {"Master": GPU}, "nprocPerNode": "1"}}
    assert [*BACKENDS["pytorchjob"].pitfalls(manifest)] == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_our_own_manifests_have_none(backend: str) -> None:
    job = {"name": "a", "image": "i", "script": "/a.py", "backend": backend, "resources": {"gpus": 1}}
    assert [*BACKENDS[backend].pitfalls(BACKENDS[backend].manifests(parse_job(job))[-1])] == []


def test_the_command_tells_on_standard_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    raw = tmp_path / "raw.yaml"
    raw.write_text(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: demo}\nspec:\n  plugins: {pytorch: []}\n"
        "  tasks: [{name: leader, replicas: 1, template: {spec: {containers: [{name: a, image: b}]}}}]\n"
    )
    assert main(["expand", "-f", str(raw)]) == 0
    output = capsys.readouterr()
    note = "plugin pytorch: there is no task master, so nothing is wired: no rank, no address"
    assert output.err == f"note: demo: {note}\n"
    assert "demo-leader-0" in output.out
