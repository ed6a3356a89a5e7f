"""What `gangplank why` says of jobs that nothing is wrong with: what its sweep keeps, and its table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FIGURES = Path(__file__).resolve().parents[1] / "tests/sweeps/nobody-blamed.json"
MOMENTS = ("starts", "waits", "runs", "has ended")
UNSURE = "cannot tell"


@dataclass(frozen=True)
class Ordinary:
    """A healthy job that was asked about until it ended. The first line of an answer decides what the answer says."""

    job: str
    backend: str
    answers: Mapping[str, int]  # by moment of the job's life
    blamed: str = ""  # the first line that blames it, or that cannot tell
    unsure: int = 0  # answers that name no cause, and leave something open


def load(path: Path = FIGURES) -> list[Ordinary]:
    """The jobs of the last sweep; none before the first one."""
    return [Ordinary(**fields) for fields in json.loads(path.read_text())] if path.exists() else []


def keep(rows: Sequence[Ordinary], path: Path = FIGURES) -> None:
    """Put jobs beside the others, instead of older rows of their names: a sweep may run in parts."""
    names = {row.job for row in rows}
    every = sorted([*rows, *(one for one in load(path) if one.job not in names)], key=lambda one: one.job)
    path.write_text(json.dumps([asdict(one) for one in every], indent=1) + "\n")


def summary(rows: Sequence[Ordinary]) -> str:
    """How many jobs there were, and which of them were blamed."""
    blamed = [f"`{row.job}` ({row.blamed})" for row in rows if row.blamed]
    end = f"{len(blamed)} were blamed: {', '.join(blamed)}." if blamed else "None was blamed."
    unsure = sum(row.unsure for row in rows)
    end += f" {unsure} answers named no cause, and left something open." if unsure else ""
    return f"{len(rows)} healthy jobs, some of which had to wait for the others. {end}"


def table(rows: Sequence[Ordinary]) -> Iterator[tuple[str, ...]]:
    """For each moment of a job's life: how many jobs were asked about then, and how often."""
    for moment in MOMENTS:
        counts = [row.answers[moment] for row in rows if row.answers.get(moment)]
        yield moment, str(len(counts)), str(sum(counts))
