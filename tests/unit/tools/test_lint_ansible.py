"""ansible-lint checks the syntax of all files together, and each alone if one of them has an error."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansiblelint import runner

from tools.lint_ansible import Runner, unless_passed

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "- name: Play\n  hosts: localhost\n  tasks: []\n"
BAD = "- name: Play\n  hosts: localhost\n  task: []\n"
TASKS = "- name: Nothing\n  ansible.builtin.meta: noop\n"


def checked_alone(folder: Path, *plays: str, tasks: str = TASKS) -> list[str]:
    """The files that are checked alone, of these playbooks and a role."""
    (folder / "role/tasks").mkdir(parents=True)
    (folder / "role/tasks/main.yml").write_text(tasks)
    files: list[Any] = [SimpleNamespace(kind="role", path=folder / "role")]
    for number, text in enumerate(plays):
        (folder / f"{number}.yml").write_text(text)
        files.append(SimpleNamespace(kind="playbook", path=folder / f"{number}.yml"))
    alone: list[str] = []
    Runner.__new__(Runner)._map_syntax_check_workers(lambda file: alone.append(file.path.name), files)
    return sorted(alone)


def test_files_without_an_error_are_not_checked_again(tmp_path: Path) -> None:
    assert checked_alone(tmp_path, GOOD, GOOD) == []


@pytest.mark.parametrize(("plays", "tasks"), [((GOOD, BAD), TASKS), ((GOOD, GOOD), "- nosuch: 1\n  name: A\n")],
                         ids=["playbook", "role"])  # fmt: skip
def test_an_error_in_one_file_has_each_checked_alone(tmp_path: Path, plays: tuple[str, ...], tasks: str) -> None:
    assert checked_alone(tmp_path, *plays, tasks=tasks) == ["0.yml", "1.yml", "role"]


def test_ansible_lint_has_the_step_that_is_replaced() -> None:
    assert hasattr(runner.Runner, "_map_syntax_check_workers")
    assert hasattr(runner.Runner, "_run_syntax_check_phase")


def test_it_runs_again_once_something_that_it_reads_has_changed_or_it_has_failed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "plugins").mkdir()
    (tmp_path / ".gitignore").write_text("passed\n")
    runs: list[int] = []

    def lint(status: int) -> int:
        runs.append(status)
        return status

    def ran(status: int) -> bool:
        before = len(runs)
        got = unless_passed(lambda: lint(status), tmp_path, tmp_path / "passed")
        assert got == (status if len(runs) > before else 0)
        return len(runs) > before

    assert (ran(1), ran(0), ran(1)) == (True, True, False)
    for name, counts in (("a.yml", True), ("plugins/b.py", True), ("c.py", False), ("d.md", False)):
        (tmp_path / name).write_text("1")
        assert ran(0) == counts, name
    (tmp_path / "a.yml").write_text("2")
    assert (ran(1), ran(1), ran(0), ran(0)) == (True, True, True, False)
    (tmp_path / "a.yml").unlink()
    assert ran(0)
