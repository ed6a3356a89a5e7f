"""The fields of a job file that only Kubeflow Trainer has, and what contradicts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends.base import block
from gangplank.k8s import names

if TYPE_CHECKING:
    from gangplank.backends.base import Bad
    from gangplank.reading.fields import Fields
    from gangplank.spec import JobSpec, Json

PORT = 29500  # Trainer v2 always uses it


@dataclass(frozen=True)
class TrainJobBlock:
    """What only Kubeflow Trainer v2 has."""

    runtime: str = "torch-distributed"
    runtime_kind: str = "ClusterTrainingRuntime"
    patches: tuple[Json, ...] = ()


def read_block(fields: Fields) -> TrainJobBlock:
    """Kubeflow Trainer's own fields."""
    kinds = ("ClusterTrainingRuntime", "TrainingRuntime")
    patches = fields.mappings("patches")
    for index, patch in enumerate(patches):
        if not isinstance(patch.get("manager"), str) or not patch["manager"]:
            fix = "name a domain of yours, e.g. manager: example.com/vision"
            fields.bad(f"patches[{index}].manager", patch.get("manager"), "the name of its manager", fix)
    return TrainJobBlock(
        runtime=fields.text("runtime", "torch-distributed", what="a runtime's name", ok=names.SUBDOMAIN),
        runtime_kind=fields.choice("runtime_kind", kinds[0], kinds),
        patches=patches,
    )


def something_to_run(spec: JobSpec, bad: Bad) -> None:
    """The usual runtime's image has nothing to start."""
    if block(spec, TrainJobBlock).runtime == "torch-distributed" and not spec.script and not spec.command:
        expected = "a script or a command (the runtime's image has no trainer of its own)"
        bad("script", None, expected, "set script or command")
