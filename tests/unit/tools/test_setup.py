"""`make setup`: packages once in the cache, and in each checkout a .venv that runs this checkout's code."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def checkout(folder: Path, version: str) -> Path:
    """A copy of this checkout that calls itself `version`."""
    for name in ("tools", "gangplank"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "requirements.txt", folder)
    (folder / "gangplank/__init__.py").write_text(f'"""A copy."""\n\n__version__ = "{version}"\n')
    return folder


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    names = ("HOME", "PATH", "XDG_CACHE_HOME")
    env = {name: os.environ[name] for name in names if name in os.environ}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300)


def test_two_checkouts_run_their_own_code_with_the_same_packages(tmp_path: Path) -> None:
    one, two = checkout(tmp_path / "one clone", "1.0.1"), checkout(tmp_path / "two", "2.0.2")
    for folder, version in ((one, "1.0.1"), (two, "2.0.2")):
        done = run(folder / "tools/setup-venv", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        # From another folder, and also after the other checkout was set up.
        assert run(one / ".venv/bin/gangplank", "--version", cwd=tmp_path).stdout == "gangplank 1.0.1\n"
        assert run(folder / ".venv/bin/gangplank", "--version", cwd=Path("/")).stdout == f"gangplank {version}\n"
        shown = run(folder / ".venv/bin/python", "-c", "import yaml; print(yaml.__file__)", cwd=tmp_path).stdout
        assert "/gangplank/venv/" in shown
        assert run(folder / ".venv/bin/ansible-playbook", "--version", cwd=tmp_path).returncode == 0
    before = (one / ".venv/stamp").stat().st_mtime_ns
    assert run(one / "tools/setup-venv", cwd=tmp_path).stdout == ""
    assert (one / ".venv/stamp").stat().st_mtime_ns == before


def test_an_interrupted_run_is_repaired_by_the_next(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "clone", "1.0.1")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/unfinished").touch()
    assert run(folder / "tools/setup-venv", cwd=tmp_path).returncode == 0
    assert run(folder / ".venv/bin/gangplank", "--version", cwd=tmp_path).stdout == "gangplank 1.0.1\n"


def test_a_virtual_environment_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "clone", "1.0.1")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/mine").touch()
    done = run(folder / "tools/setup-venv", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(".venv: got a virtual environment that is not of this project's making. Fix: ")
    assert (folder / ".venv/bin/mine").exists()
