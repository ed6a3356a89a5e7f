"""Small parts from which the objects of a job are put together, alike for all back-ends."""

from __future__ import annotations

import functools
import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gangplank.errors import Problem, SpecError

if TYPE_CHECKING:

    from gangplank.reading.fields import Problems
    from gangplank.spec import Json

UID = "<uid>"  # stands for what the API server decides
SOURCE_LIMIT = 120  # characters of the line that says what an error is about
RANDOM = "<random>"  # stands for what a controller draws


@dataclass(frozen=True)
class Site:
    """What the objects of a manifest depend on beside the manifest itself."""

    uid: str = UID
    gang: bool = True  # the training operator runs with --gang-scheduler-name=volcano
    init_image: str = "alpine:3.10"  # its --pytorch-init-container-image
    init_tries: int = 100  # its --pytorch-init-container-max-tries
    init_template: str = ""  # its --pytorch-init-container-template-file; "": upstream's own
    priorities: Mapping[str, int] = field(default_factory=dict)  # PriorityClasses that exist: their values
    others: tuple[Any, ...] = ()  # further manifests: Trainer's runtimes


class Expand(Protocol):
    """What a back-end's objects() is."""

    def __call__(self, manifest: Json, site: Site | None = None) -> list[Json]:
        """All that the controllers make of a manifest."""


def acyclic(work: Expand) -> Expand:
    """Pause the search for cyclic garbage while plain JSON is built: it has none, and time stays linear in the pods."""

    @functools.wraps(work)
    def paused(manifest: Json, site: Site | None = None) -> list[Json]:
        was = gc.isenabled()
        gc.disable()
        try:
            return work(manifest, site)
        finally:
            if was:
                gc.enable()

    return paused


def refuse(problems: Problems, given: Mapping[str, Any]) -> None:
    """Raise what is wrong with a manifest, if anything is."""
    if problems:
        meta = given.get("metadata")
        name = meta.get("name") if isinstance(meta, Mapping) else None
        source = f"{given.get('kind', 'object')} {name or 'without a name'}"
        raise SpecError(problems, source if len(source) <= SOURCE_LIMIT else f"{source[: SOURCE_LIMIT - 1]}…")


def problem(path: str, got: str, expected: str, cure: str = "") -> Problem:
    """One thing that is wrong with a manifest."""
    return Problem(path, got, expected, cure)
