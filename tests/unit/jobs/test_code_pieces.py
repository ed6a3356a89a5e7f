"""Code above one ConfigMap, or with requirements: pieces that their content names, laid out again in the pod."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS, code_pieces, lay_out
from gangplank.cli.inputs import read_scripts
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.requirements import unlocked

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
JOB: Json = {"name": "a", "image": "img", "code": "./project", "script": "train.py"}
LOCKED = "six==1.17.0 \\\n    --hash=sha256:" + 64 * "0" + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of 3 MiB in the current folder."""
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "project"
    (project / "lib/deep").mkdir(parents=True)
    (project / "train.py").write_text("import lib\n")
    (project / "lib/__init__.py").write_text("")
    (project / "lib/deep/ü b.bin").write_bytes(bytes(range(256)) * 6000)
    for number in range(6):
        (project / f"lib/table-{number}.bin").write_bytes(bytes([number]) * 250_000)
    return project


def manifests(backend: str = "volcano", **change: Any) -> list[Json]:
    """What is submitted."""
    job = {**JOB, "backend": backend, **change}
    return BACKENDS[backend].manifests(parse_job(job, scripts=read_scripts(job)))


def pieces(items: list[Json]) -> dict[str, bytes]:
    """The pieces among them."""
    return {item["metadata"]["name"]: base64.b64decode(item["binaryData"]["piece"]) for item in items
            if code_pieces.is_piece(item)}


def files_of(folder: Path) -> dict[str, bytes]:
    """What lies in a folder, by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def start(tmp_path: Path, items: list[Json], target: Path) -> subprocess.CompletedProcess[str]:
    """What a container does first, and a command that says that it runs."""
    (index,) = [item for item in items if item["kind"] == "ConfigMap" and not code_pieces.is_piece(item)]
    for name, text in index["data"].items():
        (tmp_path / name).write_text(text)
    place = tmp_path / "pieces"
    place.mkdir(exist_ok=True)
    for name, content in pieces(items).items():
        (place / name).write_bytes(content)
    line = [sys.executable, "-I", str(tmp_path / "lay_out.py"), str(tmp_path / "index.json"), str(place), str(target),
            sys.executable, "-c", "print('it runs')"]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_the_pieces_fit_into_configmaps_and_every_container_lays_them_out(folder: Path, backend: str) -> None:
    items = manifests(backend)
    assert len(pieces(items)) == 4, "two of the file that is large, and two of the small ones"
    assert all(len(content) <= 2**20 for content in pieces(items).values())
    assert all(item["immutable"] is True for item in items if item["kind"] == "ConfigMap")
    job = items[-1]
    assert code_pieces.pieces_of(job) == set(pieces(items))
    text = str(job)
    assert "['python3', '-I', '/opt/gangplank/code/lay_out.py', '/opt/gangplank/code/index.json'," in text
    assert "/opt/gangplank/script/train.py" in text
    assert folder.is_dir()


def test_the_code_lies_in_the_pod_as_it_lay_here_and_a_restart_finds_it(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "left").write_text("of an attempt that was killed")
    first = start(tmp_path, manifests(), target)
    assert (first.returncode, first.stdout) == (0, "it runs\n"), first.stderr
    laid_out = files_of(target)
    del laid_out[lay_out.DONE]
    assert laid_out == files_of(folder)
    before = (target / "train.py").stat().st_mtime_ns
    assert start(tmp_path, manifests(), target).stdout == "it runs\n"
    assert (target / "train.py").stat().st_mtime_ns == before


@pytest.mark.usefixtures("folder")
def test_a_piece_with_other_bytes_is_named_and_nothing_runs(tmp_path: Path) -> None:
    items, target = manifests(), tmp_path / "target"
    target.mkdir()
    first = items[0]["binaryData"]
    content = bytearray(base64.b64decode(first["piece"]))
    content[0] ^= 1
    first["piece"] = base64.b64encode(content).decode()
    done = start(tmp_path, items, target)
    assert (done.returncode, done.stdout) == (1, "")
    assert "with other bytes than were sent, expected the code as it was submitted. Fix: delete the job" in done.stderr
    assert not (target / lay_out.DONE).exists()


@pytest.mark.slow
def test_an_edit_is_another_job_and_sends_one_piece(folder: Path) -> None:
    before = manifests()
    assert manifests() == before
    (folder / "train.py").write_text("import lib, os\n")
    after = manifests()
    assert len(set(pieces(after)) - set(pieces(before))) == 1
    assert after[-2]["metadata"]["name"] != before[-2]["metadata"]["name"], "its own ConfigMap, the index"


def wheel(folder: Path, name: str, text: str = "ANSWER = 42\n") -> Path:
    """A wheel of one module."""
    folder.mkdir(exist_ok=True)
    place = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(f"{name}.py", text)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return place


@pytest.mark.slow
def test_requirements_are_installed_from_the_wheels_beside_them_by_their_hashes(folder: Path, tmp_path: Path) -> None:
    place = wheel(folder / "wheels", "carried")
    digest = hashlib.sha256(place.read_bytes()).hexdigest()
    (folder / "requirements.txt").write_text(f"carried==1.0 --hash=sha256:{digest}\n")
    items, target = manifests(requirements="requirements.txt"), tmp_path / "target"
    target.mkdir()
    assert "'value': '/opt/gangplank/script:/opt/gangplank/script/.packages'" in str(items[-1])
    done = start(tmp_path, items, target)
    assert (done.returncode, done.stdout) == (0, "it runs\n"), done.stderr
    assert (target / ".packages/carried.py").read_text() == "ANSWER = 42\n"
    (folder / "requirements.txt").write_text(f"carried==1.0 --hash=sha256:{64 * '1'}\n")
    done = start(tmp_path, manifests(requirements="requirements.txt"), target)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gangplank: code: got requirements.txt, which pip could not install (")
    assert len(done.stderr.splitlines()) == 1
    assert not (target / lay_out.DONE).exists()


@pytest.mark.parametrize(("text", "expected"), [
    (LOCKED, []),
    ("# a comment\n\n" + LOCKED, []),
    ("six[x]==1.0 ; python_version > '3' --hash=sha256:" + 64 * "a", []),
    ("six==1.17.0\n", ["line 1: six==1.17.0"]),
    (LOCKED + "six>=1 --hash=sha256:" + 64 * "0", ["line 3: six>=1 --hash=sha256:0"]),
    ("six==1.17.0 --hash=md5:00", ["line 1: six==1.17.0 --hash=md5:00"]),
    ("-r other.txt", ["line 1: -r other.txt"]),
    ("-i https://pypi.example.org", ["line 1: -i https://pypi.example.org"]),
    ("-e .", ["line 1: -e ."]),
    ("six @ file:///six.whl", ["line 1: six @ file:///six.whl"]),
])
def test_what_is_not_locked_is_named_with_its_line(text: str, expected: list[str]) -> None:
    assert [line[:len(start)] for line, start in zip(unlocked(text), expected, strict=True)] == expected


@pytest.mark.parametrize(("text", "change", "message"), [
    ("six==1.17.0\n", {}, r"requirements: got .*with 1 line not locked \(line 1: six==1.17.0\).*Fix: pip-compile"),
    (LOCKED, {}, r"requirements: got .*and no wheels\", expected wheels in `code`, or PIP_INDEX_URL in `env`"),
    ("", {}, "requirements: got .*without a requirement"),
    (LOCKED, {"requirements": "other.txt"}, r'requirements: got "other.txt", expected a file of `code`'),
    (LOCKED, {"code": None, "script": "/a.py"}, "expected a `code` that the file is in"),
])
def test_requirements_that_cannot_be_installed_are_refused(folder: Path, text: str, change: Json, message: str) -> None:
    (folder / "requirements.txt").write_text(text)
    with pytest.raises(SpecError, match=message):
        manifests(**{"requirements": "requirements.txt", **change})
    job = {**JOB, "requirements": "requirements.txt", "env": {"PIP_INDEX_URL": "https://pypi.example.org"}}
    if text == LOCKED:
        assert parse_job(job, scripts=read_scripts(job)).requirements == "requirements.txt"
