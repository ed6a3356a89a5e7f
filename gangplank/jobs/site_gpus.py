"""What a site decides about a job's GPUs: how they are given out, its nodes' taints, and whether CUDA runs. Pure.

As in Flyte, a job that asks for a GPU tolerates the site's taint automatically, and no other job does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gangplank.backends.device_claims import RESOURCE, device_class
from gangplank.errors import Problem, SpecError, shown
from gangplank.jobs import rules
from gangplank.k8s import names
from gangplank.k8s.nodes import EFFECTS
from gangplank.reading.fields import Fields
from gangplank.spec import Resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangplank.reading.fields import Problems
    from gangplank.spec import JobSpec, Json


@dataclass(frozen=True)
class Gpus:
    """The site's GPU nodes."""

    taints: tuple[Json, ...] = ()
    simulated: bool = False  # charts/simulated-gpu advertises them: they can be requested, but nothing runs on them
    allocation: str = "device-plugin"  # or "dra": pods claim them from a device class
    device_class: str = "gpu.nvidia.com"  # that of NVIDIA's driver


ALLOCATIONS = ("device-plugin", "dra")
VARIABLES = tuple(
    f"training_job_{name}" for name in ("gpu_taints", "simulated_gpus", "gpu_allocation", "gpu_device_class")
)


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
    allocation = fields.choice("training_job_gpu_allocation", Gpus.allocation, ALLOCATIONS)
    what = "a DeviceClass's name, e.g. gpu.nvidia.com"
    of_class = fields.text("training_job_gpu_device_class", Gpus.device_class, what=what, ok=names.SUBDOMAIN)
    if problems:
        raise SpecError(problems, source)
    return Gpus(tuple(taints), simulated, allocation, of_class)


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
    spec = allocated(spec, gpus, source)
    if not spec.gpu_tolerations and gpus.taints:
        spec = replace(spec, gpu_tolerations=tuple(toleration(taint) for taint in gpus.taints))
    if spec.collective != "nccl" or not gpus.simulated:
        return spec
    if not spec.collective_fallback:
        expected = "gloo (this site's GPUs are simulated: pods get them, but CUDA does not run on them)"
        fix = "set collective_fallback: gloo to train on the CPU where CUDA is missing, or collective: gloo"
        raise SpecError([Problem("training_job.collective", '"nccl"', expected, fix)], source)
    return replace(spec, collective=spec.collective_fallback)


def allocated(spec: JobSpec, gpus: Gpus, source: str) -> JobSpec:
    """The job with its GPUs from where this site gives them out; a job that says gpus: 1 need not know."""
    problems: Problems = []
    changed: dict[str, Resources] = {}
    for path, replica in (("resources", spec.resources), ("master_resources", spec.master_resources)):
        if replica is None or not replica.gpus:
            continue
        where, by_claim = f"training_job.{path}.gpu_resource", bool(device_class(replica.gpu_resource))
        if gpus.allocation == "dra" and replica.gpu_resource == Resources.gpu_resource:
            changed[path] = replace(replica, gpu_resource=f"{RESOURCE}{gpus.device_class}")
        elif by_claim != (gpus.allocation == "dra"):
            way = "by claim" if gpus.allocation == "dra" else "by a device plugin"
            expected = f"no resource of the other way (this site gives out GPUs {way}: training_job_gpu_allocation)"
            problems.append(Problem(where, shown(replica.gpu_resource), expected, "leave it out"))
    master = changed.get("master_resources", spec.master_resources)
    spec = replace(spec, resources=changed.get("resources", spec.resources), master_resources=master)
    if not problems and changed:
        rules.check(spec, (), problems)
    if problems:
        raise SpecError(problems, source)
    return spec
