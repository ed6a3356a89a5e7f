"""What a site decides about a job's GPUs: the taints of its GPU nodes, and whether CUDA runs on them. Pure.

As in Flyte, whoever asks for a GPU tolerates the site's taint without saying so, and nobody else does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangplank.spec import JobSpec, Json


@dataclass(frozen=True)
class Gpus:
    """The site's GPU nodes."""

    taints: tuple[Json, ...] = ()
    simulated: bool = False  # charts/simulated-gpu advertises them: they can be asked for, and nothing runs on them


def toleration(taint: Mapping[str, Any]) -> Json:
    """What lets a pod onto nodes with a taint, and onto no others.

    >>> toleration({"key": "flyte/gpu", "value": "dedicated", "effect": "NoSchedule"})
    {'key': 'flyte/gpu', 'operator': 'Equal', 'value': 'dedicated', 'effect': 'NoSchedule'}
    >>> toleration({"key": "gpu", "effect": "NoExecute"})
    {'key': 'gpu', 'operator': 'Exists', 'effect': 'NoExecute'}
    """
    how: Json = {"operator": "Equal", "value": taint["value"]} if taint.get("value") else {"operator": "Exists"}
    return {"key": taint["key"], **how, "effect": taint["effect"]}


def on_site(spec: JobSpec, gpus: Gpus, source: str = "job") -> JobSpec:
    """The job as it has to be on this site's GPU nodes; a SpecError where CUDA cannot run and the job insists on it."""
    if not spec.gpu_tolerations and gpus.taints:
        spec = replace(spec, gpu_tolerations=tuple(toleration(taint) for taint in gpus.taints))
    if spec.collective != "nccl" or not gpus.simulated:
        return spec
    if not spec.collective_fallback:
        expected = "gloo (this site's GPUs are simulated: pods get them, but CUDA does not run on them)"
        fix = "set collective_fallback: gloo to train on the CPU where CUDA is missing, or collective: gloo"
        raise SpecError([Problem("training_job.collective", '"nccl"', expected, fix)], source)
    return replace(spec, collective=spec.collective_fallback)
