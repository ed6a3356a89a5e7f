"""What a part measures, how it is kept, and what became slower.

A figure is the median of some rounds, with the lowest and the highest as its spread. What it stands beside was
measured in turns with it, in the same run: a peer does the same work in another way, a floor is the least that any
program needs.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

Better = Literal["less", "more"]
WORSE = 0.1  # of a figure: less is no news


@dataclass(frozen=True)
class Measured:
    """The median of some rounds, from the lowest to the highest."""

    value: float
    spread: tuple[float, float]
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Measured:
        """Sum up the rounds.

        >>> Measured.of([3, 1, 2])
        Measured(value=2, spread=(1, 3), rounds=3)
        """
        return cls(statistics.median(values), (min(values), max(values)), len(values))


@dataclass(frozen=True)
class Beside:
    """A peer or a floor: what it is, and the same figure of it."""

    name: str
    value: float
    spread: tuple[float, float]

    @classmethod
    def of(cls, name: str, values: Sequence[float]) -> Beside:
        """Sum up its rounds."""
        measured = Measured.of(values)
        return cls(name, measured.value, measured.spread)


@dataclass(frozen=True)
class Figure:
    """One figure of a part."""

    id: str
    """Unique among all parts, and the same in every run: part, what, how large."""
    title: str
    unit: str
    value: float
    spread: tuple[float, float]
    rounds: int
    better: Better = "less"
    peer: Beside | None = None
    floor: Beside | None = None
    goal: float | None = None
    """In the same unit; at most this if less is better, else at least."""
    why: str = ""
    """Where the goal comes from, if it is not a plain number."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What a page of its own says besides; with the run that made it, in a result of several runs."""

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without a goal. What must not happen may not happen in any round."""
        if self.goal is None:
            return None
        if self.goal == 0:
            return self.spread[1] <= 0
        return self.value <= self.goal if self.better == "less" else self.value >= self.goal


def figure(id_: str, title: str, unit: str, values: Sequence[float], **more: Any) -> Figure:
    """A figure from its rounds; `more` as the fields of Figure."""
    measured = Measured.of(values)
    return Figure(id_, title, unit, measured.value, measured.spread, measured.rounds, **more)


@dataclass(frozen=True)
class Result:
    """What a run of a part measured: when, of which commit, on which machine."""

    date: str
    commit: str
    machine: dict[str, Any]
    minutes: float
    figures: tuple[Figure, ...]


def alternate(
    rounds: int, works: Mapping[str, Callable[[], float]], say: Callable[[str], None] = lambda _: None
) -> dict[str, list[float]]:
    """The figure of each work, measured in turns: A B A B.

    >>> alternate(2, {"a": lambda: 1.0, "b": lambda: 2.0})
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    """
    values: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        for name, work in works.items():
            values[name].append(work())
        say(f"round {number + 1} of {rounds}: " + ", ".join(f"{name} {row[-1]:.4g}" for name, row in values.items()))
    return values


def merged(rounds: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    """The values of each name over all rounds.

    >>> merged([{"a": 1.0}, {"a": 2.0, "b": 3.0}])
    {'a': [1.0, 2.0], 'b': [3.0]}
    """
    values: dict[str, list[float]] = {}
    for one in rounds:
        for name, value in one.items():
            values.setdefault(name, []).append(value)
    return values


def exponent(small: tuple[float, float], large: tuple[float, float]) -> float:
    """The exponent of growth between two sizes: 1 if the time grows as the size does.

    >>> round(exponent((10, 2.0), (1000, 200.0)), 3)
    1.0
    """
    from math import log

    return log(large[1] / small[1]) / log(large[0] / small[0])


def of_json(text: str) -> Result:
    """A result as it is kept."""
    value = json.loads(text)

    def beside(one: dict[str, Any] | None) -> Beside | None:
        return Beside(one["name"], one["value"], tuple(one["spread"])) if one else None

    rows = (
        Figure(**row | {"spread": tuple(row["spread"]), "peer": beside(row["peer"]), "floor": beside(row["floor"])})
        for row in value["figures"]
    )
    return Result(**value | {"figures": tuple(rows)})


def rounded(value: Any) -> Any:
    """Five digits of every number: more are noise.

    >>> rounded({"a": [123456.7, 3]})
    {'a': [123460.0, 3]}
    """
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def to_json(result: Result) -> str:
    """A result to keep: a line per figure would hide what changed, so each field has its own."""
    value = rounded(dataclasses.asdict(result))
    for row in value["figures"]:
        if not row["facts"]:
            del row["facts"]
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def read(folder: Path) -> dict[str, Result]:
    """The results in a folder, by part; the GPUs' have a form of their own (tools/gpu_check.py)."""
    files = sorted(path for path in folder.glob("*.json") if not path.name.startswith("gpu-"))
    return {path.stem: of_json(path.read_text()) for path in files}


def is_worse(old: Figure, new: Figure) -> bool:
    """Whether a figure became worse by a tenth, and by more than both spreads explain.

    Of three rounds each, one figure in twenty has spreads that do not meet by chance alone. A single round has no
    spread to explain anything.

    >>> before = figure("a", "", "s", [1.0, 1.1, 1.2])
    >>> [is_worse(before, figure("a", "", "s", after)) for after in ([1.15, 1.3, 1.4], [1.3, 1.4, 1.5], [1.21] * 3)]
    [False, True, False]
    >>> is_worse(figure("a", "", "s", [1.0]), figure("a", "", "s", [1.3, 1.4]))
    False
    """
    if min(old.rounds, new.rounds) < 2 or abs(new.value - old.value) <= abs(old.value) * WORSE:
        return False
    if new.better == "less":
        return new.spread[0] > old.spread[1]
    return new.spread[1] < old.spread[0]


def compare(old: Result, new: Result) -> list[str]:
    """What became slower than the committed result says, a line each; results of two machines are not compared."""
    if not same_machine(old.machine, new.machine):
        return []
    before = {one.id: one for one in old.figures}
    return [
        f"{one.id}: {number(before[one.id].value)} {one.unit} ({old.commit}) became {number(one.value)} {one.unit}; "
        f"the spreads {ranged(before[one.id].spread)} and {ranged(one.spread)} do not meet"
        for one in new.figures
        if one.id in before and is_worse(before[one.id], one)
    ]


def not_compared(old: Result, new: Result) -> str:
    """Why two results are not compared; "" if they are."""
    if same_machine(old.machine, new.machine):
        return ""
    return f"not compared: made on another machine ({old.machine['cores']} cores, {old.machine['processor']})"


def same_machine(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the figures of two machines can be compared: cores and processor are the same."""
    return all(one.get(key) == other.get(key) for key in ("cores", "processor"))


def number(value: float) -> str:
    """As a table shows it: three digits, more before the point.

    >>> [number(value) for value in (0.01234, 1.234, 12.34, 1234.5, 0, 3)]
    ['0.0123', '1.23', '12.3', '1,234', '0', '3']
    """
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ranged(spread: tuple[float, float]) -> str:
    """A spread.

    >>> ranged((1.0, 2.5))
    '1 to 2.5'
    """
    return f"{number(spread[0])} to {number(spread[1])}"
