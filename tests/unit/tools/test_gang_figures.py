"""What a sweep over gangs keeps, and the table of its medians."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tools.gang_figures import WAYS, Row, keep, load, table

if TYPE_CHECKING:
    from pathlib import Path

OURS = Row(10, 100, 1000, 0, "ours", 12.0, 14.0, 0, 0, {"etcd": 1.5})
PLAIN = replace(OURS, way="kubernetes", bound_s=50.0, running_s=50.0, partial=10)
SECOND = [replace(row, round=1, bound_s=row.bound_s + 4) for row in (OURS, PLAIN)]


def test_the_rows_of_a_case_replace_its_older_ones_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "gangs.json"
    assert load(path) == []
    keep(SECOND, path)
    keep([replace(PLAIN, bound_s=99.0), OURS], path)
    keep([PLAIN, OURS], path)
    assert load(path) == [OURS, PLAIN, *SECOND]


def test_a_shape_has_a_line_for_each_way_with_medians_and_sums() -> None:
    assert list(table([OURS, PLAIN, *SECOND])) == [
        ("10 × 100", "1,000", WAYS["ours"], "2", "14 s (12 to 16)", "14 s (14 to 14)", "71.4", "0", "0"),
        ("10 × 100", "1,000", WAYS["kubernetes"], "2", "52 s (50 to 54)", "50 s (50 to 50)", "19.2", "0", "20"),
    ]


def test_no_create_failed_and_no_gang_began_in_part_in_the_last_sweep() -> None:
    assert [row for row in load() if row.way == "ours" and (row.failed or row.partial)] == []
