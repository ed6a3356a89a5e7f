"""A job's evidence as one page that needs nothing else: curves, samples, where the time went, wiring, verdict."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from gangplank.proof.log_lines import amount
from gangplank.proof.records import select
from gangplank.proof.report.svg_plot import chart
from gangplank.proof.verdict import prove
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gangplank.proof.claims import Expected
    from gangplank.proof.records import Record, Run

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
    """One time that all ranks began or went on."""

    attempt: str
    time: float  # seconds since 1970
    ranks: int
    where: str  # from which checkpoint


def number(record: Record, key: str) -> float:
    """A number of a record, 0 where there is none: a report shows what there is, the proof says what is wrong."""
    value = record.get(key)
    return float(value) if amount(value) else 0.0


def losses(run: Run) -> dict[int, list[tuple[float, float]]]:
    """(step, loss) by rank: every --log-interval steps where the trainer said so, else at the end of each epoch."""
    found: dict[int, list[tuple[float, float]]] = {}
    for rank in sorted(run.chains):
        points: list[tuple[float, float]] = []
        steps = 0.0
        for record in run.of("epoch", rank):
            steps += number(record, "steps")
            points += given_losses(record) or [(steps, number(record, "loss"))]
        found[rank] = points
    return found


def given_losses(record: Record) -> list[tuple[float, float]]:
    """The [step, loss] pairs of an epoch's record; what is no pair of numbers is left out."""
    given = record.get("losses")
    pairs = [pair for pair in given if isinstance(pair, list) and len(pair) == 2] if isinstance(given, list) else []
    return [(x, y) for x, y in pairs if amount(x) and amount(y)]


def last_begin(run: Run, rank: int) -> Record:
    """How a rank's last process began; empty where its evidence does not say."""
    return next(reversed(run.of("begin", rank)), {})


def accuracies(run: Run) -> dict[int, list[tuple[float, float]]]:
    """(epoch, accuracy on the held-out split) by rank."""
    return {
        rank: [(number(record, "epoch"), number(record, "accuracy")) for record in run.of("epoch", rank)]
        for rank in sorted(run.chains)
    }


def samples(run: Run) -> dict[int, dict[int, int]]:
    """Samples that each rank saw, by rank and epoch."""
    found: dict[int, dict[int, int]] = {rank: {} for rank in sorted(run.chains)}
    for record in run.of("samples"):
        row, epoch = found.setdefault(int(number(record, "rank")), {}), int(number(record, "epoch"))
        row[epoch] = row.get(epoch, 0) + int(number(record, "count"))
    return found


def spent(run: Run) -> list[Spent]:
    """Where each rank's time went, restarts left out: their epochs count from the checkpoint on."""
    found = []
    for rank in sorted(run.chains):
        seconds = dict.fromkeys(KINDS, 0.0)
        for record in [*run.of("epoch", rank), *run.of("end", rank)]:
            for kind, value in clocked(record).items():
                seconds[kind] += value
        seconds["compute"] = max(0.0, seconds["compute"] - seconds["allreduce"])
        steps = sum(int(number(record, "steps")) for record in run.of("epoch", rank))
        found.append(Spent(rank, seconds, steps))
    return found


def clocked(record: Record) -> dict[str, float]:
    """The seconds of each kind that a record tells; empty where it tells none."""
    given = record.get("spent")
    return {kind: number(given, kind) for kind in KINDS} if isinstance(given, dict) else {}


def starts(run: Run) -> list[Start]:
    """Every start of the job that left evidence, also those whose work was given up, in the order of time."""
    begins = run.of("begin") + [record for record in run.abandoned if record["kind"] == "begin"]
    attempts: dict[str, list[Record]] = {}
    for record in sorted(begins, key=lambda record: number(record, "time")):
        attempts.setdefault(str(record.get("attempt")), []).append(record)
    return [Start(key, number(rows[0], "time"), len(rows), resumed(rows[0])) for key, rows in attempts.items()]


def resumed(begin: Record) -> str:
    """Where a start went on."""
    given = begin.get("resumed")
    if not isinstance(given, dict):
        return "from the beginning"
    return f"from the checkpoint of step {given.get('step')}, epoch {given.get('epoch')}"


def facts(run: Run, expected: Expected) -> list[tuple[str, str]]:
    """The job in a few numbers."""
    begins = [last_begin(run, rank) for rank in sorted(run.chains)]
    nodes = sorted({str(begin.get("node")) for begin in begins})
    ends = run.of("end")
    accuracy = {round(number(record, "accuracy"), 4) for record in ends}
    return [
        ("ranks", f"{len(run.chains)} of {expected.world_size}"),
        ("nodes", listed(nodes)),
        ("epochs", str(len({number(record, "epoch") for record in run.of("epoch")}))),
        ("accuracy at the end", listed(sorted(accuracy))),
        ("seconds", f"{max((number(record, 'seconds') for record in ends), default=0.0):.1f}"),
        ("restarts", str(max(0, len(starts(run)) - 1))),
    ]


def page(name: str, records: Iterable[Record], expected: Expected) -> str:
    """The whole page as HTML; the same evidence gives the same page."""
    from jinja2 import Environment, StrictUndefined

    kept = list(records)
    run, verdict = select(kept), prove(kept, expected)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["clock"] = clock
    template = environment.from_string(resources.files(__package__).joinpath("page.html.j2").read_text("utf-8"))
    text = template.render(
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


def charts(run: Run) -> Sequence[Any]:
    """Loss and accuracy."""

    def named(curves: dict[int, list[tuple[float, float]]]) -> dict[str, list[tuple[float, float]]]:
        return {f"rank {rank}": points for rank, points in curves.items()}

    return (
        chart("loss", "step", named(losses(run)), zero=True),
        chart("accuracy", "epoch", named(accuracies(run)), zero=False),
    )


def clock(seconds: float) -> str:
    """An instant as people write it, in UTC.

    >>> clock(0)
    '1970-01-01 00:00:00 UTC'
    """
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):  # as far away as no clock goes
        return f"{seconds:g} s after 1970"
