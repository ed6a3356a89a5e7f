"""What a job's manifest asks of its training, and where its evidence will be; the manifest may be a live one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of
from gangplank.backends.wiring import environment, is_launcher, pod_wiring
from gangplank.k8s.pod_resources import amounts
from gangplank.proof.claims import Expected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.spec import Json

EVIDENCE = "evidence.jsonl"  # the trainer's name for it, in the folder that --output names
PER_GPU = {"auto", "gpu"}  # how torchrun is asked for a process per GPU; of a pod without one, the node has the number
VARIABLE = re.compile(r"\$[({]?(\w+)[)}]?")  # in a shell's line, or of the container
OTHER_LAUNCHERS = {"accelerate", "deepspeed"}  # which start as many processes as they like
SHELLS = {"sh", "bash", "dash", "ash"}
OF_EVIDENCE = Expected(1, processes_per_pod=None, unsized=True)  # without a job: as many ranks as the evidence says


def pods(manifest: Json) -> list[Json]:
    """The pods that the controllers make of a manifest, rank 0's first."""
    backend = backend_of(manifest)
    if backend and isinstance(manifest.get("spec"), dict):  # what has another form is refused as it is
        manifest = BACKENDS[backend].by_itself(manifest)
    objects = BACKENDS[backend].objects(manifest) if backend else []
    return sorted((item for item in objects if item["kind"] == "Pod"), key=lambda pod: pod_wiring(pod)["rank"] != "0")


def words(pod: Json) -> list[str]:
    """The command line of a pod's first container."""
    container = pod["spec"]["containers"][0]
    return [*container.get("command", []), *container.get("args", [])]


def flag(line: Sequence[str], name: str) -> str | None:
    """The value of a flag, as argparse would find it: the last one wins.

    >>> flag(["--epochs", "2", "--epochs=3"], "epochs"), flag(["--nproc_per_node=2"], "nproc-per-node")
    ('3', '2')
    """
    last = None
    for number, word in enumerate(line):
        option, equals, value = word.partition("=")
        if option.startswith("--") and option[2:].replace("_", "-") == name:
            last = value if equals else next(iter(line[number + 1 :]), None)
    return last


def integer(text: str | None) -> int | None:
    """A number, None for anything else."""
    return int(text) if text and re.fullmatch(r"[0-9]+", text) else None


def commands(line: Sequence[str]) -> list[str]:
    """The words of a command line that name a program or a module.

    >>> commands(["cd", "/a", "&&", "exec", "accelerate", "launch", "-m", "b"])
    ['cd', 'exec', 'accelerate', 'b']
    """
    return [word for before, word in zip(["&&", *line], line, strict=False)
            if before in {"&&", ";", "exec", "-m", "-c", "python", "python3"}]


def processes_of(pod: Json) -> int | None:
    """How many processes torchrun starts in a pod, also from a shell; None where only the pod itself could say.

    One per GPU needs GPUs that are counted by name: not those of resource claims, nor a node's CPUs in their place.
    """
    container = pod["spec"]["containers"][0]
    line = words(pod)
    if line and line[0].rsplit("/", 1)[-1] in SHELLS:
        line = re.sub("['\"]", "", " ".join(line)).split()
    env = environment(pod, container)
    own, default = flag(launched_with(line), "nproc-per-node"), env.get("PET_NPROC_PER_NODE")
    asked = default if own is None else env.get(variable[1], own) if (variable := VARIABLE.fullmatch(own)) else own
    launched = any(is_launcher((word,)) for word in line)
    if not launched and OTHER_LAUNCHERS.intersection(word.rsplit("/", 1)[-1] for word in commands(line)):
        return None
    if number := integer(asked):
        return number
    if own is None and not (launched and default):
        return 1
    if asked in PER_GPU:
        limits = amounts((container.get("resources") or {}).get("limits"))
        return int(sum(amount.value for name, amount in limits.items() if name.endswith("/gpu"))) or None
    return None


def launched_with(line: list[str]) -> list[str]:
    """The words up to the script that a launcher starts: those after it are the script's own.

    >>> launched_with(["torchrun", "--nproc-per-node=2", "a.py", "--nproc-per-node=4"])
    ['torchrun', '--nproc-per-node=2']
    """
    launchers = [number for number, word in enumerate(line) if is_launcher((word,))]
    after = range(launchers[0] + 1, len(line)) if launchers else ()
    return line[: next((number for number in after if line[number].endswith(".py")), len(line))]


def expected(manifest: Json) -> Expected:
    """What the evidence of a job has to show, from its manifest; None where it does not say."""
    replicas = pods(manifest)
    line = words(replicas[0]) if replicas else []
    processes = processes_of(replicas[0]) if replicas else 1
    batch = integer(flag(line, "batch-size"))
    world_size = len(replicas) * (processes or 1)
    return Expected(
        world_size=world_size,  # at least, where a pod alone can say how many it starts
        unsized=processes is None,
        replicas=len(replicas) if processes is None else None,
        epochs=integer(flag(line, "epochs")),
        global_batch=batch * (integer(flag(line, "accumulate")) or 1) * world_size if batch and processes else None,
        job_uid=job_uid(manifest),
        processes_per_pod=processes,
    )


def world_size_of(manifest: Json) -> int | None:
    """How many ranks a job has; None if only its pods know."""
    job = expected(manifest)
    return None if job.unsized else job.world_size


def job_uid(live: Json) -> str | None:
    """The job_uid that the evidence of a live job carries (see Wiring.job_uid); None if its manifest does not hold it.

    >>> job_uid({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "a", "uid": "1-2"}})
    'a-1-2'
    """
    backend = backend_of(live)
    return BACKENDS[backend].evidence_id(live) if backend else None
