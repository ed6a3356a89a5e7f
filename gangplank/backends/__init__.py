"""The back-ends: each makes the manifests of a job, and tells which objects a controller makes of a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends.indexed import manifests as indexed
from gangplank.backends.pytorchjob import manifests as pytorchjob
from gangplank.backends.trainjob import manifests as trainjob
from gangplank.backends.volcano import manifests as volcano

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangplank.backends.base import Expand
    from gangplank.spec import JobSpec, Json


@dataclass(frozen=True)
class Backend:
    """One way to run a job."""

    manifests: Callable[[JobSpec], list[Json]]  # what we submit
    objects: Expand  # what the controllers make of a manifest, ours or a stranger's
    kind: tuple[str, str]  # apiVersion and kind of that manifest


BACKENDS: dict[str, Backend] = {
    "volcano": Backend(volcano.manifests, volcano.objects, ("batch.volcano.sh/v1alpha1", "Job")),
    "pytorchjob": Backend(pytorchjob.manifests, pytorchjob.objects, ("kubeflow.org/v1", "PyTorchJob")),
    "trainjob": Backend(trainjob.manifests, trainjob.objects, ("trainer.kubeflow.org/v1alpha1", "TrainJob")),
    "indexed": Backend(indexed.manifests, indexed.objects, ("batch/v1", "Job")),
}


def backend_of(manifest: Mapping[str, object]) -> str | None:
    """The back-end whose kind a manifest is, if any.

    >>> backend_of({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"})
    'pytorchjob'
    """
    kind = (manifest.get("apiVersion"), manifest.get("kind"))
    return next((name for name, backend in BACKENDS.items() if backend.kind == kind), None)
