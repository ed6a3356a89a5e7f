"""The back-ends: the ways to run a job, each a folder here whose backend.py holds all facts about it."""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangplank.backends.base import Backend
    from gangplank.spec import Json


class Registry(MutableMapping[str, "Backend"]):
    """Back-ends by name. A folder is imported when its back-end is first used: the names alone cost nothing."""

    def __init__(self, *folders: str) -> None:
        self._backends: dict[str, Backend | None] = dict.fromkeys(folders)

    def __getitem__(self, name: str) -> Backend:
        backend = self._backends[name]
        if backend is None:
            backend = self._backends[name] = import_module(f"{__name__}.{name}.backend").BACKEND
        return backend

    def __setitem__(self, name: str, backend: Backend) -> None:
        self._backends[name] = backend

    def __delitem__(self, name: str) -> None:
        del self._backends[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._backends)

    def __len__(self) -> int:
        return len(self._backends)


BACKENDS = Registry(
    "volcano",
    "pytorchjob",
    "trainjob",
    "indexed",
)

DEFAULT = next(iter(BACKENDS))  # of a job that names none


def backend_of(manifest: Mapping[str, object]) -> str | None:
    """The back-end whose kind a manifest is, if any.

    >>> backend_of({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"})
    'pytorchjob'
    """
    kind = (manifest.get("apiVersion"), manifest.get("kind"))
    return next((name for name, submitted in zip(BACKENDS, submitted_kinds(), strict=True) if submitted == kind), None)


def submitted_kinds() -> Iterator[tuple[str, str]]:
    """The apiVersion and kind of each back-end's job, in the order of their names in BACKENDS."""
    return ((backend.api_version, backend.kind) for backend in BACKENDS.values())


def job_resources() -> list[str]:
    """The kinds of jobs as RBAC calls them, such as jobs.batch."""
    return [f"{one.plural}.{one.api_version.partition('/')[0]}" for one in BACKENDS.values()]


def is_submitted_job(item: Json) -> bool:
    """Whether an object is a training job that a user submitted, not one that a controller created for another job."""
    return BACKENDS[str(backend_of(item))].is_job(item) and not item["metadata"].get("ownerReferences")
