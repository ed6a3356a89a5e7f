"""`make setup`: packages once in the cache, and in each checkout a .venv that runs this checkout's code."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.release import __version__ as ansible_core

from tests.support.checkout import PYTHON

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[3]


def checkout(folder: Path, version: str) -> Path:
    """A copy of this checkout that calls itself `version`."""
    for name in ("tools", "gangplank"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "requirements.txt", folder)
    (folder / "gangplank/__init__.py").write_text(f'"""A copy."""\n\n__version__ = "{version}"\n')
    return folder


def environment() -> dict[str, str]:
    names = ("HOME", "PATH", "XDG_CACHE_HOME")
    return {name: os.environ[name] for name in names if name in os.environ}


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=environment(), capture_output=True, text=True, check=False, timeout=300)


def test_two_checkouts_run_their_own_code_with_the_same_packages(tmp_path: Path) -> None:
    one, two = checkout(tmp_path / "one clone", "1.0.1"), checkout(tmp_path / "two", "2.0.2")
    for folder, version in ((one, "1.0.1"), (two, "2.0.2")):
        done = run(folder / "tools/setup-venv", PYTHON, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(f".venv: Python {platform.python_version()}, ansible-core {ansible_core}\n")
        # From another folder, and also after the other checkout was set up.
        assert run(one / ".venv/bin/gangplank", "--version", cwd=tmp_path).stdout == "gangplank 1.0.1\n"
        assert run(folder / ".venv/bin/gangplank", "--version", cwd=Path("/")).stdout == f"gangplank {version}\n"
        shown = run(folder / ".venv/bin/python", "-c", "import yaml; print(yaml.__file__)", cwd=tmp_path).stdout
        assert "/gangplank/venv/" in shown
        assert run(folder / ".venv/bin/ansible-playbook", "--version", cwd=tmp_path).returncode == 0
    before = (one / ".venv/stamp").stat().st_mtime_ns
    assert run(one / "tools/setup-venv", cwd=tmp_path).stdout == ""
    assert (one / ".venv/stamp").stat().st_mtime_ns == before


def test_two_checkouts_that_begin_at_once_set_up_the_packages_once(tmp_path: Path) -> None:
    about, wheel = "ansible_core-9.9.dist-info", tmp_path / "ansible_core-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: ansible-core\nVersion: 9.9\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    pinned = f"ansible-core==9.9 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    # The index is this folder: nothing of another is asked.
    env = environment() | {"XDG_CACHE_HOME": f"{tmp_path}/cache", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    running = []
    for name in ("one", "two"):
        folder = checkout(tmp_path / name, "1.0.1")
        (folder / "requirements.txt").write_text(pinned)
        running.append(subprocess.Popen([folder / "tools/setup-venv", PYTHON], env=env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE))  # fmt: skip
    said = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert sorted(stdout.count("setting up packages") for stdout, _ in said) == [0, 1]
    assert all(stdout.endswith(", ansible-core 9.9\n") for stdout, _ in said)


def test_an_interrupted_run_is_repaired_by_the_next(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "clone", "1.0.1")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/unfinished").touch()
    assert run(folder / "tools/setup-venv", PYTHON, cwd=tmp_path).returncode == 0
    assert run(folder / ".venv/bin/gangplank", "--version", cwd=tmp_path).stdout == "gangplank 1.0.1\n"


def test_a_virtual_environment_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "clone", "1.0.1")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/mine").touch()
    done = run(folder / "tools/setup-venv", PYTHON, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(".venv: got a virtual environment that is not of this project's making. Fix: ")
    assert (folder / ".venv/bin/mine").exists()


def test_a_checkout_keeps_its_python_and_an_older_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkout(tmp_path / "clone", "1.0.1")
    assert run(folder / "tools/setup-venv", PYTHON, cwd=tmp_path).returncode == 0
    (tmp_path / "old").mkdir()
    (tmp_path / "old/python3").write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.12\n')
    (tmp_path / "old/python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/.venv/bin:{tmp_path}/old", prepend=os.pathsep)  # as make has it
    done = run(folder / "tools/setup-venv", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for program, version in {"python3": "Python 3.10.12", "/nonexistent/python3": "no such program"}.items():
        done = run(folder / "tools/setup-venv", program, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"{program}: got {version}, expected Python 3.11 or newer. Fix: ")
        assert done.stderr.count("\n") == 1
        assert run(folder / ".venv/bin/gangplank", "--version", cwd=tmp_path).stdout == "gangplank 1.0.1\n"
