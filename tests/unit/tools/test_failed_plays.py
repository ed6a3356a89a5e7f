"""What failed in Ansible's log, of real playbooks."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tools.failed_plays import report

if TYPE_CHECKING:
    from pathlib import Path

RESCUED = """
    - block:
        - name: Fail as expected
          ansible.builtin.fail: {msg: expected}
      rescue:
        - name: Rescue it
          ansible.builtin.command: {argv: ["true"]}
"""
ANSIBLE_PLAYBOOK = (sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local")
PASSES = "- name: First\n  hosts: localhost\n  gather_facts: false\n  tasks:" + RESCUED
FAILS = (
    PASSES
    + """
    - name: Compare
      ansible.builtin.assert: {that: 1 == 2, fail_msg: one is not two}
"""
)


def run(folder: Path, playbook: str) -> str:
    """Run a playbook, whose process appends to the log of the ones before; the log."""
    (folder / "playbook.yml").write_text(playbook)
    environment = {**os.environ, "ANSIBLE_LOG_PATH": str(folder / "log"), "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"}
    interpreter = f"ansible_python_interpreter={sys.executable}"
    subprocess.run(
        [*ANSIBLE_PLAYBOOK, "-e", interpreter, folder / "playbook.yml"],
        env=environment,
        check=False,
        capture_output=True,
        timeout=60,
    )
    return (folder / "log").read_text()


@pytest.mark.slow
def test_the_failure_that_no_rescue_took_is_named(tmp_path: Path) -> None:
    """The expected failure is not; the play, the task and the message are, though another playbook passes later."""
    run(tmp_path, FAILS)
    lines = report(run(tmp_path, PASSES.replace("First", "Remove")))
    assert lines[0] == "First: failed in: Compare"
    assert "one is not two" in "\n".join(lines)
    assert "expected" not in "\n".join(lines)
    assert len(lines) < 10


@pytest.mark.slow
def test_the_item_of_a_loop_that_failed_is_named(tmp_path: Path) -> None:
    """Ansible has a word of its own for it."""
    looped = FAILS.replace("fail_msg: one is not two}", "fail_msg: '{{ item }} is not two'}\n      loop: [one]")
    lines = report(run(tmp_path, looped))
    assert lines[0] == "First: failed in: Compare"
    assert "one is not two" in "\n".join(lines)


@pytest.mark.slow
def test_what_a_second_run_changes_is_named(tmp_path: Path) -> None:
    """Molecule refuses it, and Ansible does not."""
    run(tmp_path, PASSES)
    assert report(run(tmp_path, PASSES)) == ["First: a second run changed: Rescue it"]


def test_a_log_without_a_failure() -> None:
    """Molecule's own refusals are not in it."""
    assert report("") == ["no playbook failed; what molecule itself says is above"]
