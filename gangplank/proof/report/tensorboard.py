"""A job's evidence as TensorBoard's event files, a run per rank, for people who look at all their training there."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.proof.records import select
from gangplank.proof.report.page import accuracies, clocked, losses, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OWN = ".gangplank"  # the end of the names of its files


def write_events(folder: Path, records: Iterable[Mapping[str, object]]) -> None:
    """Write `folder`/rank-N: loss by step, accuracy and seconds of each kind by epoch; raises OSError.

    The files of an earlier call in this folder are replaced, and files of others stay. The SummaryWriter of
    tensorboardX writes in a thread, and waits forever for one that a full disk has ended.
    """
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.summary import scalar

    run = select(records)
    loss, accuracy = losses(run), accuracies(run)
    written: list[Path] = []
    old, suffix = [*folder.glob(f"rank-*/*{OWN}")], f".{time.time_ns()}{OWN}"
    for rank in sorted(run.chains):
        place = folder / f"rank-{rank}"
        place.mkdir(parents=True, exist_ok=True)
        points = [("loss", value, step, 0.0) for step, value in loss[rank]]
        for record, (epoch, value) in zip(run.of("epoch", rank), accuracy[rank], strict=True):
            when = number(record, "time")
            points.append(("accuracy", value, epoch, when))
            points += [(f"seconds/{kind}", seconds, epoch, when) for kind, seconds in clocked(record).items()]
        writer = EventsWriter(str(place / "events"), filename_suffix=suffix)
        written.append(Path(writer._file_name))
        try:
            for tag, value, step, when in points:
                writer.write_event(Event(summary=scalar(tag, value), step=int(step), wall_time=when or time.time()))
            writer.close()
        except OSError as error:
            with contextlib.suppress(OSError):
                writer._py_recordio_writer.close()
            for path in written:
                path.unlink()
            error.filename = str(written[-1])  # a full disk has none
            raise
    for path in old:
        path.unlink()
