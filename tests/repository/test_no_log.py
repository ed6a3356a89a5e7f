"""Fault F1: no failure is hidden. Results have no secrets, so no task needs no_log."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("roles", "playbooks", "molecule", "inventories", "tests/cluster")


def test_f1_no_task_hides_its_failure() -> None:
    command = ["git", "grep", "-nE", r"no_log: *[\"']?(true|yes|\{\{)", "--", *FOLDERS]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout == ""
