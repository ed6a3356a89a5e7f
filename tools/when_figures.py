"""How often the intervals of `gangplank when` were right: figures of a sweep, and their sums."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FIGURES = Path(__file__).resolve().parents[1] / "tests/sweeps/when.json"
EPOCHS, JOBS = (16, 24, 32), 10  # of the trainings of a sweep, and of a round
LEAST_S = 1.0  # times below are not compared with one another


@dataclass(frozen=True)
class Guess:
    """One answer, in seconds from when it was asked for, and what came."""

    job: str
    kind: str  # start or end
    low: float
    likely: float
    high: float
    real: float

    @property
    def inside(self) -> bool:
        """Whether the interval holds what came; times in Kubernetes are whole seconds."""
        return self.low - 1 <= self.real <= self.high + 1

    @property
    def error(self) -> float:
        """How far the guess was off, of the time that passed."""
        return abs(self.likely - self.real) / max(self.real, LEAST_S)


def lengths(number: int, jobs: int = JOBS, epochs: Sequence[int] = EPOCHS) -> list[int]:
    """The epochs of each training of a round."""
    chance = random.Random(22 + number)  # noqa: S311  not a secret
    return [chance.choice(epochs) for _ in range(jobs)]


def load() -> list[Guess]:
    """The figures of the last sweep."""
    return [Guess(**fields) for fields in json.loads(FIGURES.read_text())]


def summary(guesses: Iterable[Guess]) -> dict[str, Any]:
    """By start and end: how many, median errors, and the share of intervals that held."""
    result: dict[str, Any] = {}
    for kind in ("start", "end"):
        own = [one for one in guesses if one.kind == kind]
        if own:
            result[kind] = {
                "jobs": len(own),
                "error": round(median(one.error for one in own), 2),
                "error_s": round(median(abs(one.likely - one.real) for one in own)),
                "inside": round(sum(one.inside for one in own) / len(own), 2),
            }
    return result
