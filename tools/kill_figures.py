"""At which points the playbooks were killed, and whether the lab converged: what the sweep keeps, and its table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

FIGURES = Path(__file__).resolve().parents[1] / "tests/sweeps/playbook-kills.json"


@dataclass(frozen=True)
class Row:
    """One kill of a playbook."""

    book: str
    points: int  # of the playbook
    point: str
    converged: bool
    date: str


def load(path: Path = FIGURES) -> list[Row]:
    """The kills of the last sweep; none before the first one."""
    return [Row(**fields) for fields in json.loads(path.read_text())] if path.exists() else []


def keep(rows: Sequence[Row], points: Mapping[str, Collection[str]], path: Path = FIGURES) -> None:
    """Put kills beside those of other points, as a sweep may run in parts; those of points no more go.

    `points` has all points of each playbook.
    """
    again = {(row.book, row.point) for row in rows}
    others = [replace(row, points=len(points[row.book])) for row in load(path)
              if row.point in points.get(row.book, ()) and (row.book, row.point) not in again]  # fmt: skip
    every = sorted([*others, *rows], key=lambda row: (row.book, row.point))
    path.write_text(json.dumps([asdict(row) for row in every], indent=1) + "\n")


def table(rows: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    """For each playbook: its kill points, how many were tried, when, after how many the lab converged, the others."""
    books: dict[str, list[Row]] = {}
    for row in rows:
        books.setdefault(row.book, []).append(row)
    for book, own in books.items():
        failed = [row.point for row in own if not row.converged]
        dates = " to ".join(sorted({min(row.date for row in own), max(row.date for row in own)}))
        yield f"`{book}`", str(own[0].points), str(len(own)), dates, str(len(own) - len(failed)), ", ".join(failed)
