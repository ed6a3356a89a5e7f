"""How fast gangs of other shapes, and on more nodes, start: figures of a sweep, and their table."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Measured, number, ranged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FIGURES = Path(__file__).resolve().parents[1] / "tests/sweeps/gangs.json"
WAYS = {
    "ours": "Volcano, ours",
    "upstream": "Volcano, upstream's values",
    "kubernetes": "plain Jobs, no gang, at Kubernetes' own 20 requests a second",  # its default of --kube-api-qps
    "floor": "bare client",
}


@dataclass(frozen=True)
class Row:
    """One start of all gangs of a shape."""

    gangs: int
    size: int  # pods of each gang
    nodes: int
    round: int
    way: str  # of WAYS
    bound_s: float
    running_s: float
    failed: int
    partial: int
    cpu_s: Mapping[str, float] = field(default_factory=dict)  # of the lab's programs that used a second or more
    refused: int | None = None  # creates of pods that the API server refused; None of a sweep that did not count them

    @property
    def case(self) -> tuple[int, int, int, int]:
        """Which rows belong to the same case of the sweep."""
        return self.nodes, self.gangs, self.size, self.round


def load(path: Path = FIGURES) -> list[Row]:
    """The rows of the last sweep; none before the first one."""
    return [Row(**fields) for fields in json.loads(path.read_text())] if path.exists() else []


def keep(rows: Sequence[Row], path: Path = FIGURES) -> None:
    """Put the rows of a case beside those of others, instead of older ones of the same: a sweep may run in parts."""
    others = [one for one in load(path) if one.case not in {row.case for row in rows}]
    every = sorted([*others, *rows], key=lambda one: (one.case, [*WAYS].index(one.way)))
    path.write_text(json.dumps([asdict(one) for one in every], indent=1) + "\n")


def table(rows: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    """For each shape and each way: medians with the lowest and the highest, and the sums of what went wrong."""
    groups: dict[tuple[int, int, int, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.gangs, row.size, row.nodes, row.way].append(row)
    bound_s = {key: Measured.of([one.bound_s for one in own]) for key, own in groups.items()}
    for (gangs, size, nodes, way), own in groups.items():
        bound, running = bound_s[gangs, size, nodes, way], Measured.of([one.running_s for one in own])
        other = {name: bound_s.get((gangs, size, nodes, name)) for name in ("upstream", "floor")}
        cpu_s = Measured.of([sum(one.cpu_s.values()) for one in own]).value
        refused = [one.refused for one in own if one.refused is not None]
        yield (
            f"{gangs:,} × {size:,}", f"{nodes:,}", WAYS[way], str(len(own)),
            *(f"{number(one.value)} s ({ranged(one.spread)})" for one in (bound, running)),
            number(gangs * size / bound.value),
            *(number(it.value / bound.value) if it and name != way else "" for name, it in other.items()),
            f"{number(cpu_s)} s" if cpu_s else "", str(sum(one.failed for one in own)),
            str(sum(refused)) if refused else "", str(sum(one.partial for one in own)),
        )  # fmt: skip
