"""How soon `gangplank why` names a cause: what the sweep over causes keeps, and its table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

FIGURES = Path(__file__).resolve().parents[1] / "tests/sweeps/causes.json"
GOAL_S = 5.0
SINCE = {  # moments from which seconds are counted: the first one that there was
    "attempt": "the scheduler's first attempt",
    "sign": "the first sign of the fault, of pods with a node",
    "bound": "when the pods got a node, of a fault without a sign",
    "submitted": "the submission, of a job that no scheduler tries",
    "asked": "the question, of a job that is not submitted",
}


@dataclass(frozen=True)
class Timed:
    """A cause that was made real, and when it was named. Kubernetes notes most moments in whole seconds."""

    story: str
    code: str
    backend: str
    since: str  # of SINCE
    after_s: Mapping[str, float]  # from each moment to the end of the first answer that names it; below 0: before
    blank: int = 0  # answers without a cause after the scheduler's first attempt
    other: str = ""  # the code of another cause that was named

    @property
    def seconds(self) -> float:
        """From the moment that counts."""
        return self.after_s[self.since]


def load(path: Path = FIGURES) -> list[Timed]:
    """The causes of the last sweep; none before the first one."""
    return [Timed(**fields) for fields in json.loads(path.read_text())] if path.exists() else []


def keep(row: Timed, stories: Container[str], path: Path = FIGURES) -> None:
    """Put a cause beside those of the other stories, instead of an older row of its own: a sweep may run in parts."""
    others = (one for one in load(path) if one.story != row.story and one.story in stories)
    rows = sorted([*others, row], key=lambda one: one.story)
    path.write_text(json.dumps([asdict(one) for one in rows], indent=1) + "\n")


def summary(rows: Sequence[Timed]) -> str:
    """How many causes there were, and of how many another was named."""
    wrong = [f"`{row.story}` ({row.other})" for row in rows if row.other]
    codes = len({row.code for row in rows})
    end = f"Another cause was named of {', '.join(wrong)}." if wrong else "No answer named another cause."
    if blank := [f"`{row.story}`" for row in rows if row.blank]:
        end += f" None was named at first, after the scheduler's first attempt, of {', '.join(blank)}."
    return f"{len(rows)} causes of {codes} codes. {end}"


def table(rows: Sequence[Timed]) -> Iterator[tuple[str, ...]]:
    """For each moment: the causes, the median, how many were named in time, and the slowest."""
    for since, title in SINCE.items():
        if own := [row for row in rows if row.since == since]:
            slowest = max(own, key=lambda row: row.seconds)
            in_time = sum(row.seconds <= GOAL_S for row in own)
            middle = f"{median(row.seconds for row in own):.1f} s"
            yield title, str(len(own)), middle, str(in_time), f"`{slowest.story}`, {slowest.seconds:.1f} s"
