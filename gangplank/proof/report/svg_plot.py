"""Where the parts of a chart are: scales, ticks and polylines in SVG's units. Pure geometry; page.html.j2 draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Points = tuple[tuple[float, float], ...]
WIDTH, HEIGHT = 640.0, 240.0  # of the plot itself, in SVG units
MOST_POINTS = 400  # of one line: more cannot be distinguished on this width

SAME = 1e-11  # of two numbers: nearer ones have no ticks of their own


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: its place and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Line:
    """One curve: SVG's `points`, and each point with its text."""

    name: str
    points: str
    marks: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class Chart:
    """Curves over common axes."""

    title: str
    x_title: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]
    width: float = WIDTH
    height: float = HEIGHT


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) from at or below `low` to at or above `high`.

    >>> ticks(0, 2.3)
    [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    >>> ticks(10, 60, count=2)
    [0.0, 50.0, 100.0]
    """
    size = max(1.0, abs(low), abs(high))
    span = high - low if high - low > SAME * size else max(1.0, size * 1e-6)
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil((low + span) / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def thinned(points: Points) -> Points:
    """At most MOST_POINTS of a line, the first and the last among them."""
    stride = math.ceil(len(points) / MOST_POINTS) or 1
    return (*points[:-1:stride], *points[-1:])


def chart(title: str, x_title: str, lines: Mapping[str, Sequence[tuple[float, float]]], *, zero: bool) -> Chart | None:
    """Curves by name, over axes that hold them all (and 0, where `zero`); None without a finite point.

    >>> plot = chart("loss", "step", {"rank 0": [(0, 2.0), (10, 1.0)]}, zero=True)
    >>> plot.lines[0].points
    '0,0 640,120'
    """
    finite = {
        name: tuple((float(x), float(y)) for x, y in points if math.isfinite(y)) for name, points in lines.items()
    }
    every = [point for points in finite.values() for point in points]
    if not every:
        return None
    xs = ticks(min(x for x, _ in every), max(x for x, _ in every))
    ys = ticks(min([0.0] if zero else [y for _, y in every]), max(y for _, y in every))
    low_x, low_y, wide, high = xs[0], ys[0], xs[-1] - xs[0], ys[-1] - ys[0]

    def place(x: float, y: float) -> tuple[float, float]:
        return round((x - low_x) / wide * WIDTH, 2), round(HEIGHT - (y - low_y) / high * HEIGHT, 2)

    drawn = []
    for name, points in finite.items():
        kept = thinned(points)
        marks = tuple((*place(x, y), f"{name}: {y:.4g} at {x_title} {x:g}") for x, y in kept)
        drawn.append(Line(name, " ".join(f"{x:g},{y:g}" for x, y, _ in marks), marks))
    return Chart(
        title,
        x_title,
        tuple(Tick(place(x, low_y)[0], f"{x:g}") for x in xs),
        tuple(Tick(place(low_x, y)[1], f"{y:g}") for y in ys),
        tuple(drawn),
    )
