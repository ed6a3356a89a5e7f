"""A folder of code that travels with its script: which files, where they lie in the pod, what an edit is."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cli.inputs import read_scripts
from gangplank.errors import SpecError, Unreadable
from gangplank.jobs import parse
from gangplank.jobs.parse import parse_job

Json = dict[str, Any]
JOB: Json = {"name": "a", "image": "img", "code": "./project", "script": "tools/train.py"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in the current folder."""
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "project"
    for name in ("tools", "lib/deep", ".git", "lib/__pycache__"):
        (project / name).mkdir(parents=True)
    (project / "tools/train.py").write_text("import lib\n")
    (project / "lib/__init__.py").write_text("")
    (project / "lib/deep/ü b.py").write_text("text = 'é'\n")
    (project / "lib/table.bin").write_bytes(b"\x00\xff")
    (project / ".git/HEAD").write_text("left out")
    (project / "lib/__pycache__/a.pyc").write_text("left out")
    return project


def manifests(backend: str = "volcano", **change: Any) -> list[Json]:
    """What is submitted."""
    job = {**JOB, "backend": backend, **change}
    return BACKENDS[backend].manifests(parse_job(job, scripts=read_scripts(job)))


def templates(value: Any) -> list[Json]:
    """Every volume with a ConfigMap."""
    if isinstance(value, dict):
        if "configMap" in value:
            return [value]
        value = list(value.values())
    return [volume for item in value for volume in templates(item)] if isinstance(value, list) else []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("backend", list(BACKENDS))
def test_every_file_lies_in_the_pod_where_it_lay_in_the_folder(backend: str) -> None:
    carried, *_ = manifests(backend)
    assert carried["immutable"] is True
    job = manifests(backend)[-1]
    volumes = templates(job)
    assert volumes
    for volume in volumes:
        assert volume["configMap"]["name"] == carried["metadata"]["name"]
        paths = {item["path"]: item["key"] for item in volume["configMap"]["items"]}
        data = {name: carried["data"][key] for name, key in paths.items() if key in carried["data"]}
        assert data == {"tools/train.py": "import lib\n", "lib/__init__.py": "", "lib/deep/ü b.py": "text = 'é'\n"}
        assert base64.b64decode(carried["binaryData"][paths["lib/table.bin"]]) == b"\x00\xff"
        assert len(paths) == 4, "what a tool has written stays here"
    text = str(job)
    assert "/opt/gangplank/script/tools/train.py" in text
    assert "{'name': 'PYTHONPATH', 'value': '/opt/gangplank/script'}" in text


def test_an_edit_of_any_file_is_another_job_and_the_same_code_the_same(folder: Path) -> None:
    names = [manifests()[0]["metadata"]["name"]]
    assert manifests()[0]["metadata"]["name"] == names[0]
    (folder / "lib/table.bin").write_bytes(b"\x00\xfe")
    names.append(manifests()[0]["metadata"]["name"])
    (folder / "lib/table.bin").rename(folder / "lib/other.bin")
    names.append(manifests()[0]["metadata"]["name"])
    (folder / "train.py").write_text("import lib\n")
    (folder / "tools/train.py").write_text("import lib\n")
    names.append(manifests()[0]["metadata"]["name"])
    names.append(manifests(script="train.py")[0]["metadata"]["name"])
    assert len(set(names)) == len(names)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("change", "message"), [
    ({"code": "./missing"}, r'training_job.code: got "./missing", expected a folder with files that can be read'),
    ({"script": "train.py"}, r'training_job.script: got "train.py", expected a file of ./project. Fix: .* lib/__in'),
    ({"script": "/a.py"}, r'training_job.script: got "/a.py", expected a file of ./project'),
    ({"script": ""}, r"training_job.script: got nothing, expected a file of `code`"),
    ({"code": "/project"}, r'training_job.code: got "/project", expected a relative path of a folder'),
    ({"code": "a/../.."}, r"training_job.code: got .*, expected a relative path of a folder"),
    ({"code": "..//project"}, r"training_job.code: got .*, expected a relative path of a folder"),
])
def test_what_cannot_travel_is_refused(change: Json, message: str) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        manifests(**change)
    assert "2 problems" not in str(refused.value)


def test_what_is_too_large_is_refused_and_not_read_to_its_end(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("weights.bin", "z.bin"):
        with (folder / name).open("wb") as file:
            file.truncate(2**40)
    with pytest.raises(SpecError, match=r'got "./project of at least 335544\d\d bytes in 5 files"'):
        manifests()
    (folder / "weights.bin").unlink()
    (folder / "z.bin").unlink()
    monkeypatch.setattr(parse, "FILES_LIMIT", 3)
    with pytest.raises(SpecError, match='in 4 files", expected at most 33554432 bytes in 3 files, as they'):
        manifests()


def test_a_link_in_the_folder_is_refused(folder: Path) -> None:
    (folder / "key").symlink_to("/etc/hostname")
    with pytest.raises(Unreadable, match="project/key: got a link, expected files and folders alone in `code`"):
        manifests()


@pytest.mark.usefixtures("folder")
def test_a_path_of_python_s_own_stays_the_user_s_choice() -> None:
    assert "{'name': 'PYTHONPATH', 'value': '/mine'}" in str(manifests(env={"PYTHONPATH": "/mine"})[-1])
    assert Path("project").is_dir()
