"""What a run will do to a cluster, before it does any of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangplank.spec import Json


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Nothing if `refused` gives a reason; else remove, then write, each in this order."""

    refused: tuple[str, ...] = ()
    differences: tuple[object, ...] = ()  # of wanted and live; each can be printed
    remove: tuple[Json, ...] = ()
    write: tuple[Json, ...] = ()
    notes: tuple[str, ...] = ()  # consequences that the user should know

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.remove or self.write)
