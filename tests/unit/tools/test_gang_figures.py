"""What a sweep over gangs keeps, and the table of its medians."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tools import sweeps, write_docs_tables
from tools.gang_figures import WAYS, Row, keep, load, table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

OURS = Row(10, 100, 1000, 0, "ours", 12.0, 14.0, 0, 0, {"etcd": 1.5, "kubelet": 1.0}, 1)
PLAIN = replace(OURS, way="kubernetes", bound_s=50.0, running_s=50.0, partial=10)
SECOND = [replace(row, round=1, bound_s=row.bound_s + 4, refused=2) for row in (OURS, PLAIN)]


def test_the_rows_of_a_case_replace_its_older_ones_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "gangs.json"
    assert load(path) == []
    keep(SECOND, path)
    keep([replace(PLAIN, bound_s=99.0), OURS], path)
    keep([PLAIN, OURS], path)
    assert load(path) == [OURS, PLAIN, *SECOND]


def test_a_shape_has_a_line_for_each_way_with_medians_and_sums() -> None:
    alike, right = ("10 × 100", "1,000"), ("", "", "2.5 s", "0", "3")
    assert list(table([OURS, PLAIN, *SECOND])) == [
        (*alike, WAYS["ours"], "2", "14 s (12 to 16)", "14 s (14 to 14)", "71.4", *right, "0"),
        (*alike, WAYS["kubernetes"], "2", "52 s (50 to 54)", "50 s (50 to 50)", "19.2", *right, "20"),
    ]


def test_each_way_is_compared_with_upstream_and_with_the_floor_but_not_with_itself() -> None:
    upstream, floor = replace(OURS, way="upstream", bound_s=24.0), replace(OURS, way="floor", bound_s=6.0)
    ratios = {row[2]: row[7:9] for row in table([OURS, upstream, PLAIN, floor])}
    assert ratios == {
        WAYS["ours"]: ("2", "0.5"), WAYS["upstream"]: ("", "0.25"), WAYS["kubernetes"]: ("0.48", "0.12"),
        WAYS["floor"]: ("4", ""),
    }  # fmt: skip


def test_refused_creates_that_an_older_sweep_did_not_count_are_not_shown_as_none(tmp_path: Path) -> None:
    path = tmp_path / "gangs.json"
    older = {key: value for key, value in asdict(OURS).items() if key != "refused"}
    path.write_text(json.dumps([older | {"cpu_s": {}}]))
    ((*_, cpu, failed, refused, partial),) = table(load(path))
    assert (cpu, failed, refused, partial) == ("", "0", "", "0")


def test_the_table_names_the_run_of_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    result = sweeps.Result("abc", "2026-11-28", "2 cores, Linux 6", 4, 4, [], 90.0)
    monkeypatch.setattr("tools.gang_figures.load", lambda: [OURS])
    monkeypatch.setattr("tools.sweeps.read", lambda name: {"1/3": result} if name == "gangs" else {})
    about, _, head, *_ = write_docs_tables.gangs_table().splitlines()
    assert about == "Part 1/3: 2026-11-28 at `abc`, on 2 cores, Linux 6."
    assert head.count("|") == len(next(table([OURS]))) + 1


def test_no_create_failed_and_no_gang_began_in_part_in_the_last_sweep() -> None:
    assert [row for row in load() if row.way == "ours" and (row.failed or row.partial)] == []
