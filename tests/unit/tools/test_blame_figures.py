"""What the sweep over jobs that nothing is wrong with keeps, and its table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS
from tools import write_docs_tables
from tools.blame_figures import MOMENTS, Ordinary, keep, load, summary, table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

JOBS = 100  # at least
CALM = Ordinary("ordinary-1", "indexed", {"starts": 3, "runs": 5, "has ended": 1})
LATE = Ordinary("ordinary-2", "volcano", {"starts": 1, "waits": 9, "runs": 2, "has ended": 1}, unsure=2)
BLAMED = replace(CALM, blamed="ordinary-1 does not run: its image cannot be had")


def test_a_row_replaces_the_one_of_its_job(tmp_path: Path) -> None:
    path = tmp_path / "nobody-blamed.json"
    assert load(path) == []
    keep([LATE, BLAMED], path)
    keep([CALM], path)
    assert load(path) == [CALM, LATE]


def test_who_is_blamed_is_named_and_unsure_answers_are_counted() -> None:
    assert summary([CALM]).endswith(" None was blamed.")
    assert summary([LATE]).endswith(" 2 answers named no cause, and left something open.")
    assert "1 were blamed: `ordinary-1` (ordinary-1 does not run: its image cannot be had)." in summary([BLAMED, LATE])


def test_the_table_has_every_moment() -> None:
    assert list(table([CALM, LATE])) == [
        ("starts", "2", "4"), ("waits", "1", "9"), ("runs", "2", "7"), ("has ended", "2", "2"),
    ]  # fmt: skip


def test_the_page_has_the_sums_and_without_a_result_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.blame_figures.load", list)
    assert write_docs_tables.blame_table() == "No result is committed."
    monkeypatch.setattr("tools.blame_figures.load", lambda: [CALM, LATE])
    assert "| waits | 1 | 9 |" in write_docs_tables.why_tables().splitlines()


def test_the_last_sweep_blamed_nobody_at_any_moment() -> None:
    rows = load()
    assert len(rows) >= JOBS
    assert {row.backend for row in rows} == {*BACKENDS}
    assert [row for row in rows if row.blamed] == []
    assert all(row.answers.get("has ended") for row in rows)
    assert all(any(row.answers.get(moment) for row in rows) for moment in MOMENTS)
