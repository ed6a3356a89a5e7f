"""What the sweep over kill points keeps, and its table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tools import write_docs_tables
from tools.kill_figures import Row, keep, load, table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SITE = Row("site", 2, "end of task 3 (Install it)", converged=True, date="2026-11-29")
LATER = replace(SITE, point="start of task 4 (Look at it)", converged=False, date="2026-11-28")
LAB = Row("lab", 128, "alone of task 1 (Load it)", converged=True, date="2026-11-28")
POINTS = {"site": [SITE.point, LATER.point], "lab": [LAB.point, *map(str, range(127))]}


def test_d6_a_kill_replaces_that_of_the_same_point_and_points_that_are_no_more_go(tmp_path: Path) -> None:
    path = tmp_path / "kills.json"
    assert load(path) == []
    keep([LATER, LAB], POINTS, path)
    keep([replace(SITE, converged=False)], POINTS, path)
    keep([SITE], POINTS, path)
    assert load(path) == [LAB, SITE, LATER]
    keep([], POINTS | {"site": [SITE.point, "end of task 4 (Look)", "end of task 5"]}, path)
    assert load(path) == [LAB, replace(SITE, points=3)]


def test_d6_the_table_says_how_many_points_were_tried_and_names_those_that_did_not_converge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dates = "2026-11-28 to 2026-11-29"
    rows = [("`lab`", "128", "1", "2026-11-28", "1", ""), ("`site`", "2", "2", dates, "1", LATER.point)]
    assert list(table([LAB, SITE, LATER])) == rows
    monkeypatch.setattr("tools.kill_figures.load", lambda: [LAB, SITE, LATER])
    assert f"| `site` | 2 | 2 | {dates} | 1 | {LATER.point} |" in write_docs_tables.sweeps_table().splitlines()
