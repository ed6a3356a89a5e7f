"""What a raw manifest will do that its author can hardly mean: accepted upstream, and told by nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.backends.volcano import go_flags
from gangplank.backends.volcano.plugins import FLAGS
from gangplank.k8s.build import containers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.spec import Json


def pitfalls(backend: str, manifest: Json) -> list[str]:
    """All that is odd about a manifest which its back-end could expand.

    >>> spec = {"plugins": {"pytorch": ["--port=abc"]}, "tasks": [{"name": "worker", "replicas": 1}]}
    >>> for text in pitfalls("volcano", {"spec": spec}): print(text)
    plugin pytorch: "abc" is no value for --port, so it becomes 0
    plugin pytorch: there is no task master, so nothing is wired: no rank, no address
    """
    found = {"volcano": _volcano, "pytorchjob": _pytorchjob, "trainjob": _trainjob, "indexed": _indexed}
    return list(found[backend](manifest["spec"]))


def _pods(parts: list[Any]) -> Iterator[tuple[str, Json]]:
    """The named pod templates among some tasks or replicas."""
    for name, part in parts:
        yield name, (part.get("template") or {}).get("spec") or {}


def _unrequested(parts: list[Any], *, limits_count: bool) -> Iterator[str]:
    """Devices with a limit alone: a gang's admission counts requests, or limits where there is no request at all."""
    for name, pod in _pods(parts):
        for container in containers(pod):
            given = container.get("resources") or {}
            asked = given.get("requests")
            alone = [key for key in given.get("limits") or {} if "/" in key and key not in (asked or {})]
            if alone and not (limits_count and asked is None):
                yield f"{name}: {', '.join(alone)} has a limit but no request: the gang's admission does not count it"


def _volcano(spec: Json) -> Iterator[str]:
    plugins, tasks = spec.get("plugins") or {}, spec.get("tasks") or []
    named = [(task.get("name") or f"default{at}", task) for at, task in enumerate(tasks)]
    for name, arguments in plugins.items():
        trouble = go_flags.parse(arguments or [], FLAGS[name]).trouble
        if trouble:
            zero = ", so it becomes 0" if trouble.endswith("--port") and "no value for" in trouble else ""
            yield f"plugin {name}: {trouble}{zero}"
    if "pytorch" in plugins:
        flags = go_flags.parse(plugins["pytorch"] or [], FLAGS["pytorch"]).values
        counts = {name: task.get("replicas") or 0 for name, task in named}
        if flags["master"] not in counts:
            yield f"plugin pytorch: there is no task {flags['master']}, so nothing is wired: no rank, no address"
        elif counts[str(flags["master"])] > 1:
            yield f"plugin pytorch: every replica of {flags['master']} gets rank 0"
    for name, task in named:
        if "replicas" not in task:
            yield f"task {name}: replicas is not set, so it has no pods"
        if task.get("dependsOn") and not spec.get("minAvailable"):
            yield f"task {name} waits for others, but the gang counts its pods: the job never starts"
    if any(policy.get("event") == "TaskCompleted" for policy in spec.get("policies") or []):
        yield "the policy on TaskCompleted stands at the job, so it fires for whichever task ends first"
    yield from _unrequested(named, limits_count=False)


def _pytorchjob(spec: Json) -> Iterator[str]:
    replicas, processes = spec.get("pytorchReplicaSpecs") or {}, spec.get("nprocPerNode")
    if "Master" not in replicas and spec.get("elasticPolicy") is None:
        yield "there is no Master and no elasticPolicy, so no rank, address or WORLD_SIZE is set"
    if processes is None and spec.get("elasticPolicy") is None:
        yield "nprocPerNode is not set, so torchrun starts one process per CPU where there is no GPU"
    if processes and processes.isdigit() and int(processes) > 1:
        yield "WORLD_SIZE counts processes and RANK counts nodes: right for torchrun alone"
    yield from _unrequested(list(replicas.items()), limits_count=True)


def _trainjob(spec: Json) -> Iterator[str]:
    if spec.get("trainer") is None:
        yield "there is no trainer stanza, so nothing is wired: no PET_ variable is set"


def _indexed(spec: Json) -> Iterator[str]:
    if spec.get("parallelism", 1) < spec.get("completions", 1):
        yield "parallelism is less than completions, so ranks that wait for each other never all run"
