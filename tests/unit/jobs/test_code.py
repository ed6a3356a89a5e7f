"""A folder of code that travels with its script: which files, where they lie in the pod, what an edit is."""

from __future__ import annotations

import base64
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS, code_pieces
from gangplank.cli.inputs import read_scripts
from gangplank.errors import SpecError, Unreadable
from gangplank.jobs.parse import parse_job

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_what_is_too_large_is_refused_unread_and_its_largest_file_named(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (folder / "a.bin").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(Unreadable, match=r"^project: got 5 files with \d{13} bytes, of which a.bin has 1099511627776, "
                                         "expected at most 5000 files with 33554432 bytes, as they lie"):
        manifests()
    (folder / "a.bin").unlink()
    monkeypatch.setattr(code_pieces, "MOST_FILES", 3)
    with pytest.raises(Unreadable, match=r"got at least 4 files with .* expected at most 3 files with 33554432 bytes,"):
        manifests()


def test_a_script_that_is_too_large_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Path("train.py").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(Unreadable, match=r"train\.py: got 1099511627776 bytes, expected at most 1044480 bytes"):
        manifests(code=None, script="train.py")


def test_a_script_that_is_not_utf_8_is_named_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_bytes(b"# caf\xe9")
    with pytest.raises(Unreadable, match=r"train\.py: got a byte that is not UTF-8, at 5, expected UTF-8 text"):
        manifests(code=None, script="train.py")


def test_all_that_cannot_travel_is_named_at_once(folder: Path) -> None:
    (folder / "key").symlink_to("/etc/hostname")
    (folder / "lib/etc").symlink_to("/etc")
    (folder / "gone").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).write_text("")
    with pytest.raises(Unreadable) as refused:
        manifests()
    assert sorted(line.strip().partition(", expected files and folders alone in `code`. Fix: ")[0]
                  for line in str(refused.value).splitlines()) == [
        "project/\\udcff.txt: got a name that is not UTF-8", "project/gone: got a link", "project/key: got a link",
        "project/lib/etc: got a link", "project/pipe: got neither a file nor a folder"]


@pytest.mark.parametrize("name", ["lib", "lib/table.bin"])
def test_what_cannot_be_read_is_not_left_out(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user without the right; root may read everything."""
    def refused(original: Callable[..., Any]) -> Callable[..., Any]:
        def act(place: Any, *args: Any) -> Any:
            if str(place).endswith(f"project/{name}"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
            return original(place, *args)

        return act

    monkeypatch.setattr(os, "scandir", refused(os.scandir))
    monkeypatch.setattr(Path, "read_bytes", refused(Path.read_bytes))
    with pytest.raises(Unreadable, match=f"project/{name}: got Permission denied, expected what can be read"):
        manifests()
    assert folder.is_dir()


@pytest.mark.usefixtures("folder")
def test_a_path_of_python_s_own_stays_the_user_s_choice() -> None:
    assert "{'name': 'PYTHONPATH', 'value': '/mine'}" in str(manifests(env={"PYTHONPATH": "/mine"})[-1])
    assert Path("project").is_dir()
