"""Plugins import the library as an installed package; a Python without it gets one line that says what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import ansible
import pytest

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = sorted((ROOT / "plugins").glob("*/*.py"))
ELSEWHERE = (
    Path(ansible.__file__).parents[4] / "bin/ansible-playbook"
)  # the packages of `make setup`, not this checkout


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["lab", "lab-down", "teams", "train", "uninstall"])
def test_a_python_without_the_library_is_refused_in_one_line_before_any_change(playbook: str) -> None:
    assert ELSEWHERE.parents[1] != Path(sys.prefix)
    env = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1"}
    command = [str(ELSEWHERE), "-i", "localhost,", f"playbooks/{playbook}.yml"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "\nchanged: [" not in done.stdout
    (line,) = (line for line in done.stderr.splitlines() if line and "WARNING" not in line)
    assert line.startswith(f"[ERROR]: {ELSEWHERE.parent}/python")
    assert "got no Python module gangplank" in line
    assert f"Fix: run `make setup` in {ROOT}, then start {ROOT}/.venv/bin/ansible-playbook" in line
    assert "pip install" in line


def test_no_plugin_changes_where_python_looks() -> None:
    assert [str(path) for path in PLUGINS if "sys.path" in path.read_text()] == []


def test_only_actions_of_the_lab_load_its_code() -> None:
    users = {path.name for path in PLUGINS if re.search(r"(?m)^\s*(?:from|import) lab\b", path.read_text())}
    assert users
    assert all(name.startswith("lab_") for name in users), users
