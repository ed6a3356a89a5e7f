"""What no single field shows: a job whose parts contradict each other, or that would silently go wrong upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank import names, quantity, wiring
from gangplank.errors import Problem, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangplank.fields import Problems
    from gangplank.spec import JobSpec

    Bad = Callable[..., None]

POD_KILLS_LABEL = "kubernetes.io/hostname"  # a node selector with it puts all pods on one node


def check(spec: JobSpec, problems: Problems) -> None:
    """Apply every rule to a job."""

    def bad(path: str, got: object, expected: str, cure: str = "") -> None:
        problems.append(Problem(f"training_job.{path}", shown(got), expected, cure))

    for rule in RULES:
        rule(spec, bad)


def process(spec: JobSpec, bad: Bad) -> None:
    """There is one thing to start, and it starts as many processes as promised."""
    if spec.script and spec.command:
        bad("command", list(spec.command), "script or command, not both", "script starts through torchrun by itself")
    if not spec.script and (spec.hyperparameters or spec.output):
        bad("script", None, "a script that takes hyperparameters and output", "pass them to your command in args")
    if spec.command and spec.processes_per_node > 1 and not wiring.is_launcher(spec.command):
        cure = "use script, or start your command with torchrun"
        bad("processes_per_node", spec.processes_per_node, "1 for a command that is not torchrun", cure)
    if not spec.script and not spec.command and spec.processes_per_node > 1:
        bad("processes_per_node", spec.processes_per_node, "1 for the image's own entry point", "use script")


def name_length(spec: JobSpec, bad: Bad) -> None:
    """The longest derived name is a DNS label: 63 characters."""
    longest, what = names.longest(spec.name, spec.backend, spec.masters, spec.workers)
    over = len(longest) - names.LABEL_MAX
    if over > 0:
        expected = f"a name whose longest {what}, {longest}, has at most {names.LABEL_MAX} characters"
        bad("name", spec.name, expected, f"shorten it by {over}")
    if spec.script and spec.script.text is not None and len(f"{spec.name}-script") > 253:
        bad("name", spec.name, "a shorter name")


def world(spec: JobSpec, bad: Bad) -> None:
    """Somebody has rank 0."""
    if spec.masters != 1 and not spec.elastic:
        bad("masters", spec.masters, "1", "rank 0 is the master; without it no rank gets its wiring")


def resources(spec: JobSpec, bad: Bad) -> None:
    """A request is at most its limit, and the collective matches the hardware."""
    for path, asked in (("resources", spec.resources), ("master_resources", spec.master_resources)):
        if asked is None:
            continue
        for name, amount in (("cpu", asked.cpu), ("memory", asked.memory)):
            if amount.limit and quantity.parse(amount.request) > quantity.parse(amount.limit):
                bad(f"{path}.{name}.request", amount.request, f"at most the limit, {amount.limit}")
        if spec.collective == "nccl" and not asked.gpus:
            bad("collective", "nccl", f"gloo, as {path}.gpus is 0", "ask for GPUs, or use gloo")
        if 0 < asked.gpus < spec.processes_per_node:
            bad("processes_per_node", spec.processes_per_node, f"at most {path}.gpus, {asked.gpus}")


def volumes(spec: JobSpec, bad: Bad) -> None:
    """Every mount has its own place, and a claim of one node stays on one node."""
    seen: dict[str, int] = {}
    for index, volume in enumerate(spec.volumes):
        mount = volume.mount.rstrip("/") or "/"
        if mount == "/":
            bad(f"volumes[{index}].mount", volume.mount, "a folder below /")
        if mount in seen:
            bad(f"volumes[{index}].mount", volume.mount, f"another place than volumes[{seen[mount]}]")
        seen[mount] = index
        everywhere = volume.on == "all" and spec.replicas > 1 and POD_KILLS_LABEL not in spec.node_selector
        if everywhere and volume.access in {"", "ReadWriteOnce", "ReadWriteOncePod"}:
            cure = (
                "mount it `on: master`, or use a ReadWriteMany claim and say `access: ReadWriteMany`, "
                f"or pin the job to one node with node_selector {POD_KILLS_LABEL}"
            )
            bad(f"volumes[{index}].access", volume.access or "ReadWriteOnce", "a claim that many nodes can mount", cure)
    if spec.output and spec.volumes and not any(_under(spec.output, volume.mount) for volume in spec.volumes):
        bad("output", spec.output, "a folder below one of the volumes' mounts", "else it is lost with the pod")


def _under(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def gang(spec: JobSpec, bad: Bad) -> None:
    """A gang is no larger than the job."""
    if spec.min_available is not None and spec.min_available > spec.replicas:
        bad("min_available", spec.min_available, f"at most the job's {spec.replicas} replicas")


RULES: tuple[Callable[[JobSpec, Bad], None], ...] = (process, name_length, world, resources, volumes, gang)
