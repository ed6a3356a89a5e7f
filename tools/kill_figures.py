"""At which points the playbooks were killed, and whether the lab converged: what the sweep keeps, and its table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FIGURES = Path(__file__).resolve().parents[1] / "tests/sweeps/playbook-kills.json"


@dataclass(frozen=True)
class Row:
    """One kill of a playbook."""

    book: str
    points: int  # of the playbook
    point: str
    converged: bool


def load(path: Path = FIGURES) -> list[Row]:
    """The kills of the last sweep; none before the first one."""
    return [Row(**fields) for fields in json.loads(path.read_text())] if path.exists() else []


def keep(rows: Sequence[Row], path: Path = FIGURES) -> None:
    """Put kills beside those of other points, as a sweep may run in parts.

    A playbook with another number of points has other tasks: what was kept of it counts no more.
    """
    points = {row.book: row.points for row in rows}
    again = {(row.book, row.point) for row in rows}
    others = [row for row in load(path)
              if points.get(row.book, row.points) == row.points and (row.book, row.point) not in again]  # fmt: skip
    every = sorted([*others, *rows], key=lambda row: (row.book, row.point))
    path.write_text(json.dumps([asdict(row) for row in every], indent=1) + "\n")


def table(rows: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    """For each playbook: its kill points, how many were tried, after how many the lab converged, and the others."""
    books: dict[str, list[Row]] = {}
    for row in rows:
        books.setdefault(row.book, []).append(row)
    for book, own in books.items():
        failed = [row.point for row in own if not row.converged]
        yield f"`{book}`", str(own[0].points), str(len(own)), str(len(own) - len(failed)), ", ".join(failed)
