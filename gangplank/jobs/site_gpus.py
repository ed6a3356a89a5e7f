"""What a site decides about a job's GPUs: the taints of its GPU nodes, and whether CUDA runs on them. Pure.

As in Flyte, a job that asks for a GPU tolerates the site's taint automatically, and no other job does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, SpecError
from gangplank.reading.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangplank.reading.fields import Problems
    from gangplank.spec import JobSpec, Json


@dataclass(frozen=True)
class Gpus:
    """The site's GPU nodes."""

    taints: tuple[Json, ...] = ()
    simulated: bool = False  # charts/simulated-gpu advertises them: they can be requested, but nothing runs on them


EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def read_gpus(variables: Mapping[str, Any], source: str) -> Gpus:
    """The GPU nodes that variables of the role training_job describe; SpecError with all that is wrong with them."""
    problems: Problems = []
    fields = Fields(variables, "", problems)
    taints = []
    for inner in fields.each("training_job_gpu_taints"):
        key = inner.text("key", need=True, what="a taint's key, e.g. flyte/gpu")
        value = inner.text("value", what="a taint's value, e.g. dedicated")
        effect = inner.choice("effect", "", EFFECTS)
        if "effect" not in inner.map:
            inner.bad("effect", None, f"one of {', '.join(EFFECTS)}")
        inner.done()
        taints.append({"key": key, "value": value, "effect": effect})
    simulated = fields.flag("training_job_simulated_gpus", default=False)
    if problems:
        raise SpecError(problems, source)
    return Gpus(tuple(taints), simulated)


def toleration(taint: Mapping[str, Any]) -> Json:
    """The toleration that admits a pod to nodes with exactly this taint.

    >>> toleration({"key": "flyte/gpu", "value": "dedicated", "effect": "NoSchedule"})
    {'key': 'flyte/gpu', 'operator': 'Equal', 'value': 'dedicated', 'effect': 'NoSchedule'}
    >>> toleration({"key": "gpu", "effect": "NoExecute"})
    {'key': 'gpu', 'operator': 'Exists', 'effect': 'NoExecute'}
    """
    how: Json = {"operator": "Equal", "value": taint["value"]} if taint.get("value") else {"operator": "Exists"}
    return {"key": taint["key"], **how, "effect": taint["effect"]}


def on_site(spec: JobSpec, gpus: Gpus, source: str = "job") -> JobSpec:
    """The job adapted to this site's GPU nodes; a SpecError if CUDA cannot run there and the job requires it."""
    if not spec.gpu_tolerations and gpus.taints:
        spec = replace(spec, gpu_tolerations=tuple(toleration(taint) for taint in gpus.taints))
    if spec.collective != "nccl" or not gpus.simulated:
        return spec
    if not spec.collective_fallback:
        expected = "gloo (this site's GPUs are simulated: pods get them, but CUDA does not run on them)"
        fix = "set collective_fallback: gloo to train on the CPU where CUDA is missing, or collective: gloo"
        raise SpecError([Problem("training_job.collective", '"nccl"', expected, fix)], source)
    return replace(spec, collective=spec.collective_fallback)
