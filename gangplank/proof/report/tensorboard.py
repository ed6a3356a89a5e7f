"""A job's evidence as TensorBoard's event files, a run per rank, for people who look at all their training there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.proof.records import select
from gangplank.proof.report.page import accuracies, clocked, losses, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def write_events(folder: Path, records: Iterable[Mapping[str, object]]) -> None:
    """Write `folder`/rank-N: loss by step, accuracy and seconds of each kind by epoch."""
    from tensorboardX import SummaryWriter

    run = select(records)
    loss, accuracy = losses(run), accuracies(run)
    for rank in sorted(run.chains):
        epochs = run.of("epoch", rank)
        with SummaryWriter(str(folder / f"rank-{rank}"), write_to_disk=True) as writer:
            for step, value in loss[rank]:
                writer.add_scalar("loss", value, int(step))
            for record, (epoch, value) in zip(epochs, accuracy[rank], strict=True):
                when = number(record, "time")
                writer.add_scalar("accuracy", value, int(epoch), walltime=when)
                for kind, seconds in clocked(record).items():
                    writer.add_scalar(f"seconds/{kind}", seconds, int(epoch), walltime=when)
