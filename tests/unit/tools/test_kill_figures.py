"""What the sweep over kill points keeps, and its table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tools import write_docs_tables
from tools.kill_figures import Row, keep, load, table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SITE = Row("site", 148, "end of task 3 (Install it)", converged=True)
LATER = replace(SITE, point="start of task 4 (Look at it)", converged=False)
LAB = Row("lab", 128, "alone of task 1 (Load it)", converged=True)


def test_d6_a_kill_replaces_that_of_the_same_point_and_those_of_a_playbook_with_other_tasks(tmp_path: Path) -> None:
    path = tmp_path / "kills.json"
    assert load(path) == []
    keep([LATER, LAB], path)
    keep([replace(SITE, converged=False)], path)
    keep([SITE], path)
    assert load(path) == [LAB, SITE, LATER]
    keep([replace(SITE, points=152)], path)
    assert load(path) == [LAB, replace(SITE, points=152)]


def test_d6_the_table_says_how_many_points_were_tried_and_names_those_that_did_not_converge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [("`lab`", "128", "1", "1", ""), ("`site`", "148", "2", "1", LATER.point)]
    assert list(table([LAB, SITE, LATER])) == rows
    monkeypatch.setattr("tools.kill_figures.load", lambda: [LAB, SITE, LATER])
    assert f"| `site` | 148 | 2 | 1 | {LATER.point} |" in write_docs_tables.sweeps_table().splitlines()
