"""The fields of a job file that only the plain Indexed Job has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangplank.reading.fields import Fields


@dataclass(frozen=True)
class IndexedBlock:
    """What only the plain Indexed Job has."""

    backoff: int | None = None  # retries per index; None: the job's max_retries for the whole


def read_block(fields: Fields) -> IndexedBlock:
    """The plain Indexed Job's own fields."""
    return IndexedBlock(backoff=fields.maybe("backoff", 0))
