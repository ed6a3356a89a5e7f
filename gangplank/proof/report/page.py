"""A job's evidence as one page that needs nothing else: curves, samples, where the time went, wiring, verdict."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from gangplank.proof.log_lines import amount
from gangplank.proof.records import Record, select
from gangplank.proof.report.svg_plot import chart
from gangplank.proof.verdict import prove
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangplank.proof.claims import Expected
    from gangplank.proof.records import Run

# What the trainer's clock measures, as a reader calls it; its all-reduce is a part of `compute` there.
KINDS = {
    "data": "data",
    "compute": "forward and backward",
    "allreduce": "all-reduce",
    "update": "update",
    "evaluate": "evaluation",
    "checkpoint": "checkpoint",
}
COLUMNS = ("rank", "local_rank", "world_size", "master", "pod", "pod_uid", "node", "host")


@dataclass(frozen=True)
class Spent:
    """Where one rank's time went: seconds by kind, and per step."""

    rank: int
    seconds: dict[str, float]
    steps: int

    @property
    def total(self) -> float:
        """Seconds of all kinds."""
        return sum(self.seconds.values())

    def share(self, kind: str) -> float:
        """A kind's part of the whole, 0 to 1."""
        return self.seconds[kind] / self.total if self.total else 0.0


@dataclass(frozen=True)
class Start:
    """One time that all ranks began or resumed."""

    attempt: str
    time: float  # seconds since 1970
    ranks: int
    where: str  # from which checkpoint


def number(record: Mapping[str, object], key: str) -> float:
    """A number of a record, 0 if it is missing: a report shows all it can, and the proof names what is wrong."""
    value = record.get(key)
    return float(value) if amount(value) else 0.0


def losses(run: Run) -> dict[int, list[tuple[float, float]]]:
    """(step, loss) by rank: every --log-interval steps if the trainer recorded these, else at the end of each epoch."""
    curves: dict[int, list[tuple[float, float]]] = {}
    for rank in sorted(run.chains):
        points: list[tuple[float, float]] = []
        steps = 0.0
        for record in run.of("epoch", rank):
            steps += number(record, "steps")
            points += recorded_losses(record) or [(steps, number(record, "loss"))]
        curves[rank] = points
    return curves


def recorded_losses(record: Record) -> list[tuple[float, float]]:
    """The [step, loss] pairs of an epoch's record; anything but a pair of numbers is left out."""
    rows = record.get("losses")
    pairs = [row for row in rows if isinstance(row, list) and len(row) == 2] if isinstance(rows, list) else []
    return [(x, y) for x, y in pairs if amount(x) and amount(y)]


def last_begin(run: Run, rank: int) -> Record:
    """How a rank's last process began; empty if its evidence does not say."""
    return next(reversed(run.of("begin", rank)), Record())


def accuracies(run: Run) -> dict[int, list[tuple[float, float]]]:
    """(epoch, accuracy on the held-out split) by rank."""
    return {
        rank: [(number(record, "epoch"), number(record, "accuracy")) for record in run.of("epoch", rank)]
        for rank in sorted(run.chains)
    }


def samples(run: Run) -> dict[int, dict[int, int]]:
    """Samples that each rank saw, by rank and epoch."""
    counts: dict[int, dict[int, int]] = {rank: {} for rank in sorted(run.chains)}
    for record in run.of("samples"):
        row, epoch = counts.setdefault(int(number(record, "rank")), {}), int(number(record, "epoch"))
        row[epoch] = row.get(epoch, 0) + int(number(record, "count"))
    return counts


def spent(run: Run) -> list[Spent]:
    """Where each rank's time went, without restarts: their epochs count from the checkpoint on."""
    times = []
    for rank in sorted(run.chains):
        seconds = dict.fromkeys(KINDS, 0.0)
        for record in [*run.of("epoch", rank), *run.of("end", rank)]:
            for kind, value in clocked(record).items():
                seconds[kind] += value
        seconds["compute"] = max(0.0, seconds["compute"] - seconds["allreduce"])
        steps = sum(int(number(record, "steps")) for record in run.of("epoch", rank))
        times.append(Spent(rank, seconds, steps))
    return times


def clocked(record: Record) -> dict[str, float]:
    """The seconds of each kind of work in a record; empty if it has none."""
    seconds = record.get("spent")
    return {kind: number(seconds, kind) for kind in KINDS} if isinstance(seconds, dict) else {}


def starts(run: Run) -> list[Start]:
    """Every start of the job that left evidence, also those whose work was abandoned, in the order of time."""
    attempts: dict[str, list[Record]] = {}
    for record in sorted(run.begins, key=lambda record: number(record, "time")):
        attempts.setdefault(str(record.get("attempt")), []).append(record)
    return [Start(key, number(rows[0], "time"), len(rows), resumed(rows[0])) for key, rows in attempts.items()]


def resumed(begin: Record) -> str:
    """Where a start resumed."""
    checkpoint = begin.get("resumed")
    if not isinstance(checkpoint, dict):
        return "from the beginning"
    return f"from the checkpoint of step {checkpoint.get('step')}, epoch {checkpoint.get('epoch')}"


def facts(run: Run, expected: Expected) -> list[tuple[str, str]]:
    """The job in a few numbers."""
    begins = [last_begin(run, rank) for rank in sorted(run.chains)]
    nodes = sorted({str(begin.get("node")) for begin in begins})
    ends = run.of("end")
    accuracy = {round(number(record, "accuracy"), 4) for record in ends}
    return [
        ("ranks", f"{len(run.chains)} of {expected.sized(run).world_size}"),
        ("nodes", listed(nodes)),
        ("epochs", str(len({number(record, "epoch") for record in run.of("epoch")}))),
        ("accuracy at the end", listed(sorted(accuracy))),
        ("seconds", f"{max((number(record, 'seconds') for record in ends), default=0.0):.1f}"),
        ("restarts", str(max(0, len(starts(run)) - 1))),
    ]


def page(name: str, records: Iterable[Mapping[str, object]], expected: Expected) -> str:
    """The whole page as HTML; the same evidence gives the same page."""
    kept = list(records)
    run, verdict = select(kept), prove(kept, expected)
    text: str = template().render(
        name=name,
        verdict=verdict,
        facts=facts(run, expected),
        charts=[one for one in charts(run) if one],
        samples=samples(run),
        epochs=sorted({epoch for row in samples(run).values() for epoch in row}),
        spent=spent(run),
        kinds=KINDS,
        starts=starts(run),
        columns=COLUMNS,
        wiring=[last_begin(run, rank) for rank in sorted(run.chains)],
    )
    return text.encode("utf-8", "replace").decode()  # JSON may have halves of UTF-16, which no file can


@functools.cache
def template() -> Any:
    """The page without its evidence."""
    pages = environment()
    pages.filters["clock"] = clock
    return pages.from_string(resources.files(__package__).joinpath("page.html.j2").read_text("utf-8"))


def environment() -> Any:
    """What all our pages share: strict templates, and one style."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    pages = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    pages.globals["style"] = Markup(resources.files(__package__).joinpath("style.css").read_text("utf-8"))  # noqa: S704  # our own file
    return pages


def charts(run: Run) -> Sequence[Any]:
    """Loss and accuracy."""

    def named(curves: dict[int, list[tuple[float, float]]]) -> dict[str, list[tuple[float, float]]]:
        return {f"rank {rank}": points for rank, points in curves.items()}

    return (
        chart("loss", "step", named(losses(run)), zero=True),
        chart("accuracy", "epoch", named(accuracies(run)), zero=False),
    )


def clock(seconds: float) -> str:
    """A time as people write it, in UTC.

    >>> clock(0)
    '1970-01-01 00:00:00 UTC'
    """
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):  # as far away as no clock goes
        return f"{seconds:g} s after 1970"
