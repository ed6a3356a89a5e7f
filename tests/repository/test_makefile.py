"""`make` refuses a wrong argument in one message, before anything is done."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_job_that_does_not_exist_is_refused_before_setup_with_the_jobs_that_do(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs")
    command = ["make", "train", "JOB=nosuch.yml"]  # a folder without tools/setup-venv: whatever comes next would fail
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert done.stdout == ""
    refusal, *rest = done.stderr.splitlines()
    assert refusal.startswith("JOB: got nosuch.yml, expected a job file that exists. Fix: make train JOB=FILE, with")
    assert {f"jobs/{path.name}" for path in (ROOT / "jobs").glob("*.yml")} <= set(refusal.split())
    assert all(line.startswith("make: ") for line in rest)
