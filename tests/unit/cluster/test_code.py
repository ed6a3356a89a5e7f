"""Pieces of code in a namespace: sent once, marked when they are needed again, removed when nothing needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS, code_pieces
from gangplank.backends.code_pieces import USED
from gangplank.cli import main
from gangplank.cli.inputs import read_scripts
from gangplank.cluster import code
from gangplank.cluster.client import Kube
from gangplank.jobs.parse import parse_job

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Api

Json = dict[str, Any]
LONG_AGO = "2020-01-01T00:00:00+00:00"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of two pieces in the current folder, and a job file beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/train.py").write_text("pass\n")
    (tmp_path / "project/table.bin").write_bytes(b"\x01" * 2**20)
    for name in ("a", "b"):
        (tmp_path / f"{name}.yml").write_text(
            f"training_job: {{name: {name}, image: img, code: project, script: train.py, backend: indexed}}\n")
    return tmp_path


def pieces(api: Api) -> dict[str, Json]:
    """What the namespace has."""
    return {key.rsplit("/", 1)[-1]: item for key, item in api.objects.items() if key.startswith(f"{MAPS}/code-")}


def sent(api: Api) -> list[str]:
    """The pieces whose bytes came, in their order; a dry run is one too."""
    return [str(body["metadata"]["name"]) for body in api.bodies if isinstance(body, dict) and "binaryData" in body]


def gangplank(api: Api, *words: str) -> int:
    """The command's exit status."""
    return main([*words, "--kubeconfig", api.kubeconfig])


@pytest.mark.usefixtures("folder")
def test_the_same_code_is_sent_once(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert gangplank(api, "submit", "a.yml") == 0
    first, bodies = pieces(api), sent(api)
    assert len(first) == 3
    assert len(bodies) == 4, "each once, and one for the dry run"
    assert "code: 3 of 3 pieces sent, 0 were in namespace default" in capsys.readouterr().out
    for item in first.values():
        item["metadata"]["annotations"][USED] = LONG_AGO
    assert gangplank(api, "submit", "b.yml") == 0
    assert sent(api)[len(bodies):] == bodies[:1], "the dry run alone"
    assert "code: 0 of 3 pieces sent, 3 were in namespace default" in capsys.readouterr().out
    assert all(item["metadata"]["annotations"][USED] > LONG_AGO for item in pieces(api).values())


def test_what_was_interrupted_continues_and_the_job_comes_last(api: Api, folder: Path) -> None:
    job = {"name": "a", "image": "img", "code": "project", "script": "train.py", "backend": "indexed"}
    items = BACKENDS["indexed"].manifests(parse_job(job, scripts=read_scripts(job)))
    kube = Kube(api.kubeconfig)
    code.send(kube, items[:1], print)  # killed after one
    before = len(sent(api))
    assert gangplank(api, "submit", "a.yml") == 0
    assert len(sent(api)) - before == 3, "two, and the dry run"
    writes = [line for line in api.seen if line.startswith(("PATCH", "POST")) and "dryRun" not in line]
    assert "jobs" in writes[-1]
    assert folder.is_dir()


@pytest.mark.usefixtures("folder")
def test_pieces_go_when_no_job_names_them_and_none_has_needed_them_for_long(api: Api) -> None:
    assert gangplank(api, "submit", "a.yml") == 0
    assert gangplank(api, "submit", "b.yml") == 0
    assert gangplank(api, "delete", "a.yml") == 0
    assert len(pieces(api)) == 3, "of the other job"
    for item in pieces(api).values():
        item["metadata"]["annotations"][USED] = LONG_AGO
        item["metadata"] |= {"resourceVersion": "7", "uid": item["metadata"]["name"]}
    kube = Kube(api.kubeconfig)
    (job,) = [item for item in api.objects.values() if code_pieces.pieces_of(item)]
    assert code.remove_unused(kube, "default", {"metadata": {"uid": "gone"}, "spec": job["spec"]}) == []
    assert gangplank(api, "delete", "b.yml") == 0
    assert pieces(api) == {}
    deletions = [body for line, body in zip(api.seen, api.bodies, strict=True)
                 if line.startswith(f"DELETE {MAPS}/code-")]
    assert [body["preconditions"]["resourceVersion"] for body in deletions] == ["7"] * 3


@pytest.mark.usefixtures("folder")
def test_pieces_that_were_needed_lately_stay_for_the_next_edit(api: Api) -> None:
    assert gangplank(api, "submit", "a.yml") == 0
    assert gangplank(api, "delete", "a.yml") == 0
    assert len(pieces(api)) == 3
