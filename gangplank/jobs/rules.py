"""What no single field shows: parts of a job that contradict each other, or that would silently fail upstream."""

from __future__ import annotations

import functools
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from gangplank.backends import BACKENDS, wiring
from gangplank.backends.device_claims import claimed
from gangplank.backends.pod_template import SCRIPT_FOLDER, SHM_FOLDER
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.errors import Problem, shown
from gangplank.k8s import names, quantity
from gangplank.spec import JobSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gangplank.backends.base import Bad, Rule
    from gangplank.reading.fields import Problems
    from gangplank.spec import Resources

NAMES = frozenset(field.name for field in fields(JobSpec))
ONE_NODE = "kubernetes.io/hostname"  # a node selector with it puts all pods on one node


class Watched(JobSpec):
    """A job that notes which of its fields a rule reads."""

    def __getattribute__(self, name: str) -> Any:
        """A field, or what the job computes of its fields."""
        if name in NAMES:
            self.read.add(name)
        return super().__getattribute__(name)

    @functools.cached_property
    def read(self) -> set[str]:
        """The fields that were read."""
        return set()


def check(spec: JobSpec, written: Collection[str], problems: Problems, unknown: Collection[str] = ()) -> None:
    """Apply every rule to a job; `written` are the fields in its file.

    `unknown` are fields whose value is only a default, as theirs was refused: what depends on them is not reported.
    """
    watched = Watched(**{name: getattr(spec, name) for name in NAMES})

    def bad(path: str, got: object, expected: str, fix: str = "") -> None:
        if watched.read.isdisjoint(unknown):
            problems.append(Problem(f"training_job.{path}", shown(got), expected, fix))

    backend = BACKENDS[spec.backend]
    for field in written:
        if field not in unknown and (refusal := backend.refuses.get(field)):
            got = _plain(getattr(spec, field))
            bad(field, got, f"no {field} on {spec.backend} ({refusal.reason})", refusal.fix)
    for block in BACKENDS:
        if block in written and block != spec.backend:
            bad(block, block, f"only the block of {spec.backend}", "remove it, or change backend")
    for rule in (*RULES, *backend.rules):
        watched.read.clear()
        rule(watched, bad)


def _plain(value: object) -> object:
    """A value as messages can show it."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def program(spec: JobSpec, bad: Bad) -> None:
    """The job starts one program."""
    if spec.script and spec.command:
        expected = "script or command, not both (script starts through torchrun by itself)"
        bad("command", list(spec.command), expected, "remove one of them")


def flags(spec: JobSpec, bad: Bad) -> None:
    """Only a script takes hyperparameters."""
    if not spec.script and (spec.hyperparameters or spec.output):
        bad("script", None, "a script that takes hyperparameters and output", "pass them to your command in args")


def processes(spec: JobSpec, bad: Bad) -> None:
    """What the job starts has the promised number of processes."""
    if spec.command and spec.processes_per_node > 1 and not wiring.is_launcher(spec.command):
        fix = "use script, or start your command with torchrun"
        bad("processes_per_node", spec.processes_per_node, "1 for a command that is not torchrun", fix)
    if not spec.script and not spec.command and spec.processes_per_node > 1:
        bad("processes_per_node", spec.processes_per_node, "1 for the image's own entry point", "use script")


def name_length(spec: JobSpec, bad: Bad) -> None:
    """The longest derived name is a DNS label: 63 characters."""
    longest, what = wiring.longest(spec)
    over = len(longest) - names.LABEL_MAX
    if over > 0:
        expected = f"a name whose longest {what}, {longest}, has at most {names.LABEL_MAX} characters"
        bad("name", spec.name, expected, f"shorten it by {over}")


def world(spec: JobSpec, bad: Bad) -> None:
    """There is a rank 0."""
    if spec.masters != 1 and not spec.elastic:
        expected = "1 (rank 0 is the master; without it no rank gets its wiring)"
        bad("masters", spec.masters, expected, "set masters to 1")
    if spec.elastic:
        if spec.masters:
            expected = "0 for an elastic job (its ranks agree on a leader among themselves)"
            bad("masters", spec.masters, expected, "set masters to 0")
        if not spec.elastic.minimum <= spec.workers <= spec.elastic.maximum:
            bad(
                "workers",
                spec.workers,
                f"from elastic.min {spec.elastic.minimum} to elastic.max {spec.elastic.maximum}",
            )
        if spec.command:
            expected = "a job with a script (torchrun has to manage its processes)"
            bad("elastic", _plain(spec.elastic), expected, "use script instead of command")
        if spec.elastic.metrics and not spec.max_retries:
            expected = "at least 1 with elastic.metrics (a rank that sees another leave counts that as a failure)"
            bad("max_retries", 0, expected, "allow one for each scaling")


def fallback(spec: JobSpec, bad: Bad) -> None:
    """Only another collective than gloo can fall back to it."""
    if spec.collective_fallback and spec.collective != "nccl":
        bad("collective_fallback", spec.collective_fallback, "no fallback for a job that uses gloo anyway", "remove it")


def asked(spec: JobSpec) -> Iterator[tuple[str, Resources]]:
    """What replicas ask for, by the field that says it."""
    yield "resources", spec.resources
    if spec.master_resources:
        yield "master_resources", spec.master_resources


def amounts(spec: JobSpec, bad: Bad) -> None:
    """A request does not exceed its limit."""
    for path, replica in asked(spec):
        for name, amount in (("cpu", replica.cpu), ("memory", replica.memory)):
            if amount.limit and quantity.parse(amount.request) > quantity.parse(amount.limit):
                bad(f"{path}.{name}.request", amount.request, f"at most the limit, {amount.limit}")


def gpus(spec: JobSpec, bad: Bad) -> None:
    """The collective and the processes match the hardware."""
    for path, replica in asked(spec):
        if spec.collective == "nccl" and not replica.gpus:
            bad("collective", "nccl", f"gloo, as {path}.gpus is 0", "ask for GPUs, or use gloo")
        if 0 < replica.gpus < spec.processes_per_node:
            bad("processes_per_node", spec.processes_per_node, f"at most {path}.gpus, {replica.gpus}")


def claims(spec: JobSpec, bad: Bad) -> None:
    """GPUs are claimed from a device class only where the pods can have claims."""
    refusal = BACKENDS[spec.backend].no_claims
    for path, replica in asked(spec):
        if refusal and claimed(replica):
            expected = f"no GPUs by claim on {spec.backend} ({refusal.reason})"
            bad(f"{path}.gpus", replica.gpus, expected, refusal.fix)


def volumes(spec: JobSpec, bad: Bad) -> None:
    """Every mount has its own path, and a claim that one node can mount stays on one node."""
    places = dict.fromkeys(BACKENDS[spec.backend].wiring.mounts, "the back-end's own files")
    places |= {SHM_FOLDER: "shm_size"} if spec.shm_size else {}
    if spec.script and spec.script.text is not None:
        places[SCRIPT_FOLDER] = "the script, which travels with the job"
    for index, volume in enumerate(spec.volumes):
        mount = names.normal_path(volume.mount)
        if mount == "/":
            bad(f"volumes[{index}].mount", volume.mount, "a folder below /")
        if mount in places:
            bad(f"volumes[{index}].mount", volume.mount, f"another path than that of {places[mount]}")
        places[mount] = f"volumes[{index}]"
        if volume.on == "master" and BACKENDS[spec.backend].one_template:
            others = " or ".join(name for name, backend in BACKENDS.items() if not backend.one_template)
            fix = f"mount it on all replicas with a ReadWriteMany claim, or use {others}"
            bad(f"volumes[{index}].on", "master", f"all on {spec.backend}, whose replicas share one template", fix)
        if volume.on == "master" and not spec.masters:
            bad(f"volumes[{index}].on", "master", "all, as the job has no master")
        everywhere = volume.on == "all" and spec.replicas > 1 and ONE_NODE not in spec.node_selector
        if everywhere and volume.access in {"", "ReadWriteOnce", "ReadWriteOncePod"}:
            fix = (
                "mount it `on: master`, or use a ReadWriteMany claim and set `access: ReadWriteMany`, "
                f"or pin the job to one node with node_selector {ONE_NODE}"
            )
            bad(f"volumes[{index}].access", volume.access or "ReadWriteOnce", "a claim that many nodes can mount", fix)


def places(spec: JobSpec, bad: Bad) -> None:
    """What the job writes is on one of its volumes."""
    for name, place in (("output", spec.output), ("hyperparameters.dir", str(spec.hyperparameters.get("dir", "")))):
        inside = place.startswith("/")  # of the container; a bucket needs no volume
        above = [volume for volume in spec.volumes if _under(place, volume.mount)]
        if inside and spec.volumes and not above:
            expected = "a folder below one of the volumes' mounts (anywhere else it is lost with the pod)"
            bad(name, place, expected, "choose such a folder, or mount a volume there")
        elif inside and above and max(above, key=lambda volume: len(names.normal_path(volume.mount))).read_only:
            fix = "choose another folder, or leave read_only out"
            bad(name, place, "a folder of a volume that is not read_only", fix)


def _under(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return f"{names.normal_path(path)}/".startswith(f"{names.normal_path(folder).rstrip('/')}/")


def gang(spec: JobSpec, bad: Bad) -> None:
    """A gang is not larger than the job."""
    if spec.min_available is not None and spec.min_available > spec.replicas:
        bad("min_available", spec.min_available, f"at most the job's {spec.replicas} replicas")


def leaf_queue(spec: JobSpec, bad: Bad) -> None:
    """A queue that takes jobs."""
    if spec.queue == QUEUE_SYSTEM.root:
        expected = f"a leaf queue ({QUEUE_SYSTEM.title} refuses jobs in the root queue)"
        bad("queue", spec.queue, expected, "name the queue of your team")


RULES: tuple[Rule, ...] = (
    program, flags, processes, name_length, world, fallback, amounts, gpus, claims, volumes, places, gang, leaf_queue,
)  # fmt: skip
