"""How many samples and steps each rank should have had, from what the starts of a run say.

The ranks of a start deal out what is left of an epoch like cards; the first samples are dealt again until all ranks
have as many. So a start's world size and its place in the training decide each rank's share.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from gangplank.proof.records import Record, unpack_bits
from gangplank.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangplank.proof.records import Run


@dataclass(frozen=True)
class Start:
    """The ranks began, or resumed, together: in this world, at this place of the training."""

    world_size: int
    epoch: int
    position: int
    """Samples of the epoch that were dealt out before, to all ranks together."""
    samples: int = 0
    """In the data set."""
    per_step: int = 1
    """Samples of each rank in an optimizer step."""
    attempt: str = ""

    def __str__(self) -> str:
        return f"sample {self.position} of epoch {self.epoch}, with {counted(self.world_size, 'rank')}"


def start_of(begin: Record) -> Start:
    """What a rank's `begin` says of its start."""
    resumed = begin.get("resumed")
    at = Record({**resumed, **{key: begin[key] for key in ("kind", "rank", "seq")}}) if isinstance(
        resumed, dict) else Record(epoch=1, position=0)
    return Start(begin.whole("world_size"), at.whole("epoch"), at.whole("position"), begin.whole("dataset_samples"),
                 max(1, begin.whole("batch_size") * begin.whole("accumulate")), begin.text("attempt"))


def starts_of(run: Run) -> list[Start]:
    """Every start that led to the final weights; rank 0 was always there."""
    return [start_of(begin) for begin in run.starts(0)]


@dataclass(frozen=True)
class Part:
    """The samples of an epoch that the ranks of one start dealt out, from `begin` to `end`.

    >>> Part(Start(3, 1, 60, per_step=10), 60, 100).share, Part(Start(3, 1, 102), 102, 100).share
    ((2, 14), (0, 0))
    """

    start: Start
    begin: int
    end: int

    @property
    def share(self) -> tuple[int, int]:
        """Steps and samples of each rank."""
        samples = -(-max(0, self.end - self.begin) // max(1, self.start.world_size))
        return -(-samples // self.start.per_step), samples


def parts(starts: Sequence[Start], epoch: int) -> list[Part]:
    """Who worked on an epoch, from its first start to its last; nothing may have been left for the last.

    >>> grown = [Start(2, 1, 0, 90), Start(3, 2, 60, 90), Start(2, 4, 0, 90)]
    >>> [[(part.start.world_size, part.begin, part.end) for part in parts(grown, epoch)] for epoch in (1, 2, 3, 4)]
    [[(2, 0, 90)], [(2, 0, 60), (3, 60, 90)], [(3, 0, 90)], [(2, 0, 90)]]
    """
    ends = [(start.epoch, start.position) for start in starts[1:]] + [(epoch + 1, 1)]
    return [
        Part(start, start.position if start.epoch == epoch else 0, end[1] if end[0] == epoch else start.samples)
        for start, end in zip(starts, ends, strict=True)
        if start.epoch <= epoch and end > max((epoch, 0), (start.epoch, start.position))
    ]


def counted_since(own: Sequence[Part], rank: int) -> tuple[int, int]:
    """Steps and samples that a rank's counters have at the end of an epoch: those since it joined.

    >>> grown = parts([Start(3, 1, 0, 90), Start(2, 1, 30, 90), Start(3, 1, 60, 90)], 1)
    >>> [counted_since(grown, rank) for rank in (0, 1, 2, 3)]
    [(35, 35), (35, 35), (10, 10), (0, 0)]
    """
    steps = samples = 0
    for part in reversed(own):
        if rank >= part.start.world_size:
            break
        steps, samples = steps + part.share[0], samples + part.share[1]
    return steps, samples


def seen_samples(run: Run) -> dict[tuple[Start, int], dict[int, int]]:
    """How many samples each rank recorded, by start and epoch."""
    table = defaultdict[tuple[Start, int], dict[int, int]](dict)
    for record, begin in run.with_begin("samples"):
        bits, repeats = unpack_bits(record)
        row, rank = table[start_of(begin), record.whole("epoch")], record.whole("rank")
        row[rank] = row.get(rank, 0) + bits.bit_count() + len(repeats)
    return table


def shortfalls(run: Run, epochs: Sequence[int]) -> list[str]:
    """Every rank that did not do exactly its share: of a part of an epoch, or by its own counts of the epoch."""
    starts = starts_of(run)
    plan = {epoch: parts(starts, epoch) for epoch in epochs}
    return [*strays(run, starts), *idlers(run, plan), *miscounts(run, plan)]


def strays(run: Run, starts: Sequence[Start]) -> list[str]:
    """Ranks that began where rank 0 did not, and starts that go back."""
    begins = {(begin.whole("rank"), start_of(begin)) for begin in run.of("begin")}
    problems = [f"rank {rank} began at {start}, but rank 0 at {listed(starts)}"
                for rank, start in sorted(begins, key=str) if start not in starts]
    return problems + [f"rank 0 began at {after} after it had begun at {before}" for before, after in pairwise(starts)
                       if (after.epoch, after.position) < (before.epoch, before.position)]


def idlers(run: Run, plan: Mapping[int, Sequence[Part]]) -> list[str]:
    """Ranks whose recorded samples are not their share of a part."""
    problems, seen, ranks = [], seen_samples(run), defaultdict[Start, set[int]](set)
    for begin in run.of("begin"):
        ranks[start_of(begin)].add(begin.whole("rank"))
    for epoch, own in plan.items():
        for part in own:
            share, size, row = part.share[1], part.start.world_size, seen.get((part.start, epoch), {})
            of_part = f" ({counted(size, 'rank')}, samples {part.begin} to {part.end})" if own[1:] else ""
            where = f"in epoch {epoch}{of_part}"
            for rank in sorted({*row, *ranks[part.start]}):
                if row.get(rank, 0) != share:
                    what = f"saw {row[rank]} samples" if rank in row else "had nothing to do"
                    problems.append(f"rank {rank} {what} {where}, but its share was {share}")
            if share and (missing := size - sum(rank < size for rank in ranks[part.start])):
                problems.append(f"{missing} of {size} ranks left no evidence {where}")
    return problems


def miscounts(run: Run, plan: Mapping[int, Sequence[Part]]) -> list[str]:
    """Ranks whose own counts of an epoch are not their share of it."""
    problems = []
    for record in run.of("epoch"):
        epoch, rank = record.whole("epoch"), record.whole("rank")
        counts, share = (record.whole("steps"), record.whole("samples")), counted_since(plan.get(epoch, ()), rank)
        if counts != share:
            problems.append(f"rank {rank} counts {counts[0]} steps and {counts[1]} samples in epoch {epoch}, but its "
                            f"share was {share[0]} and {share[1]}")
    return problems
