"""What the sweep over causes keeps, and its table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.why_causes import ONE_BY_ONE, STORIES
from tools import write_docs_tables
from tools.cause_figures import GOAL_S, Timed, keep, load, summary, table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CODES = 25  # at least
LATE: dict[str, str] = {}  # stories that take longer than GOAL_S, and the reason of each
IMAGE = Timed("image", "image", "volcano", "sign", {"bound": 3.0, "sign": 6.2})
SPREAD = Timed("spread", "topology", "volcano", "attempt", {"attempt": 0.4, "submitted": 2.0})
SELECTOR = Timed("selector", "selector", "volcano", "attempt", {"attempt": -0.2, "submitted": 0.5})
AFFINITY = replace(SELECTOR, story="by-hand", after_s={"attempt": 0.0, "submitted": 1.0})
ROWS = [AFFINITY, IMAGE, SELECTOR, SPREAD]


def test_a_row_replaces_the_one_of_its_story(tmp_path: Path) -> None:
    path = tmp_path / "causes.json"
    assert load(path) == []
    for row in (SPREAD, replace(IMAGE, other="mount"), SELECTOR, IMAGE, AFFINITY):
        keep(row, {one.story for one in ROWS}, path)
    assert load(path) == ROWS
    keep(IMAGE, {"image", "spread"}, path)
    assert load(path) == [IMAGE, SPREAD], "rows of stories that were removed"


def test_the_table_counts_from_the_moment_of_each_and_names_the_slowest() -> None:
    assert list(table(ROWS)) == [
        ("the scheduler's first attempt", "3", "0.0 s", "3", "`spread`, 0.4 s"),
        ("the first sign of the fault, of pods with a node", "1", "6.2 s", "0", "`image`, 6.2 s"),
    ]
    assert list(table([])) == []


def test_another_cause_is_named_in_the_summary() -> None:
    assert summary(ROWS) == "4 causes of 3 codes. No answer named another cause."
    wrong = [replace(IMAGE, other="mount"), SPREAD]
    assert summary(wrong) == "2 causes of 2 codes. Another cause was named of `image` (mount)."
    assert summary([replace(SPREAD, blank=2)]).endswith(" after the scheduler's first attempt, of `spread`.")


def test_the_page_has_the_sums_and_without_a_result_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.cause_figures.load", list)
    assert write_docs_tables.causes_table() == "No result is committed."
    monkeypatch.setattr("tools.cause_figures.load", lambda: ROWS)
    text = write_docs_tables.causes_table()
    assert text.startswith("4 causes of 3 codes. ")
    assert "| the scheduler's first attempt | 3 | 0.0 s | 3 | `spread`, 0.4 s |" in text.splitlines()


def test_the_last_sweep_has_every_story_and_names_in_time_what_a_scheduler_has_tried() -> None:
    rows = load()
    late = {row.story for row in rows if row.since == "attempt" and row.seconds > GOAL_S}
    assert {row.story for row in rows} == {*STORIES, *ONE_BY_ONE}
    assert len({row.code for row in rows}) >= CODES
    assert [row for row in rows if row.other or row.blank] == []
    assert late == set(LATE)
