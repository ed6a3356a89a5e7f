"""Fault F1: no failure is hidden. Results have no secrets, so no task and no module needs no_log."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HIDES = re.compile(r"""no_log["']?\s*[:=]\s*(?!["']?(?i:false|no|off|0)\b)\S""")


@pytest.mark.parametrize(
    "value", [": true", ": True", ": on", ": 1", ": y", "=True", " = yes", '": True', ': "yes"', ': "{{ x }}"']
)
def test_f1_every_way_to_hide_is_recognised(value: str) -> None:
    assert HIDES.search(f"  no_log{value}")


@pytest.mark.parametrize("value", [": false", ": No", "=off", '": False', ': "0"', "`: results have no secrets"])
def test_f1_what_hides_nothing_is_allowed(value: str) -> None:
    assert not HIDES.search(f"  no_log{value}")


def test_f1_no_task_hides_its_failure() -> None:
    command = ["git", "grep", "-nF", "no_log", "--", ".", ":!changes", ":!CHANGELOG.md"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line for line in lines if HIDES.search(line)] == []
