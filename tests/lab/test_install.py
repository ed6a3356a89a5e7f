"""`pip install .` into an empty environment: the command without a checkout, Ansible or a cluster's packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gangplank import __version__

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gangplank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, installed from a copy of the tracked files."""
    folder = tmp_path_factory.mktemp("install")
    source = folder / "source"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True, timeout=60)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "empty")], check=True, timeout=60)
    command = [sys.executable, "-m", "pip", "--python", str(folder / "empty/bin/python"), "install", "-q", str(source)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / "empty/bin/gangplank"


def run(gangplank: Path, *words: object) -> subprocess.CompletedProcess[str]:
    env = {"HOME": str(gangplank.parent), "PATH": os.environ["PATH"]}
    command = [str(gangplank), *map(str, words)]
    return subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, check=False, timeout=60)


def test_a_job_is_expanded(gangplank: Path) -> None:
    assert run(gangplank, "--version").stdout == f"gangplank {__version__}\n"
    done = run(gangplank, "expand", ROOT / "jobs/digits.yml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("digits in default on volcano: 3 pods, a gang of 3\n")


def test_evidence_in_a_file_is_judged(gangplank: Path, tmp_path: Path) -> None:
    (tmp_path / "evidence.jsonl").write_text("no evidence\n")
    done = run(gangplank, "proof", "--file", tmp_path)
    assert done.returncode == 1
    assert "not proven: no evidence" in done.stderr


def test_what_needs_a_cluster_names_the_missing_package(gangplank: Path) -> None:
    done = run(gangplank, "status")
    assert (done.returncode, done.stdout) == (4, "")
    expected = "gangplank: package kubernetes: got nothing, expected it installed, as status needs it. Fix: "
    pip = "-m pip install --require-hashes -r requirements-site.txt, which lies beside the wheel and in a checkout\n"
    assert re.fullmatch(rf"{re.escape(f'{expected}{gangplank.parent}')}/python\S* {re.escape(pip)}", done.stderr)
