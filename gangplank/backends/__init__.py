"""The back-ends: each makes the manifests of a job, and tells which objects a controller makes of a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends import volcano

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangplank.spec import JobSpec, Json


@dataclass(frozen=True)
class Backend:
    """One way to run a job."""

    manifests: Callable[[JobSpec], list[Json]]


BACKENDS: dict[str, Backend] = {
    "volcano": Backend(volcano.manifests),
}
