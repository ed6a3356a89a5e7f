"""How the ranks of a job find each other: names, numbers and variables, per replica and per back-end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS

if TYPE_CHECKING:
    from gangplank.spec import JobSpec, Json

# Seconds that a node's torchrun waits for the others, instead of torch's 600. A gang starts together, so a longer
# wait is a fault; a container that gives up is restarted. trainer/start.py has the same number; a test compares them.
RENDEZVOUS_S = 120
LAUNCHER = ("python3", "-m", "torch.distributed.run")  # torchrun under the name that every image has
TRAINER = "/opt/gangplank/trainer"  # of the image; its torchrun imports torch once, not twice, for scripts beside it
QUICK_LAUNCHER = ("python3", f"{TRAINER}/torchrun.py")

# A job may not set these: a controller appends its own after them (and wins), or torchrun would read them.
RESERVED = frozenset({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
RESERVED_PREFIXES = ("PET_", "TORCHELASTIC_", "VC_", "VK_", "GANGPLANK_", "GROUP_", "ROLE_", "JOB_COMPLETION_INDEX")
# Of the observer: after how long a rank says where it stands still, and how often where the time of its steps goes
SETTABLE = frozenset({"GANGPLANK_PACE_S", "GANGPLANK_STUCK_S"})
SECONDS = re.compile(r"([0-9]{1,9}(\.[0-9]{1,9})?)?")  # the value of one; the default without a text


@dataclass(frozen=True)
class Replica:
    """One pod of a job before it exists."""

    role: str  # master or worker
    index: int  # within its role
    rank: int  # of the node, from 0
    pod: str  # the pod's name; for batch Jobs its host name, the part before the random end


def replicas(spec: JobSpec) -> tuple[Replica, ...]:
    """All pods of a job in the order of their ranks: the masters, then the workers.

    >>> from gangplank.spec import JobSpec
    >>> [(r.pod, r.rank) for r in replicas(JobSpec("digits", "img", backend="volcano", workers=1))]
    [('digits-master-0', 0), ('digits-worker-0', 1)]
    """
    roles = [("master", i) for i in range(spec.masters)] + [("worker", i) for i in range(spec.workers)]
    form = BACKENDS[spec.backend].wiring.pod
    return tuple(
        Replica(role, index, rank, form.format(job=spec.name, role=role, index=index, rank=rank))
        for rank, (role, index) in enumerate(roles)
    )


def master_addr(spec: JobSpec) -> str:
    """The name under which every replica finds rank 0.

    >>> from gangplank.spec import JobSpec
    >>> master_addr(JobSpec("digits", "img", backend="volcano"))
    'digits-master-0.digits'
    """
    return BACKENDS[spec.backend].wiring.master.format(job=spec.name)


def longest(spec: JobSpec) -> tuple[str, str]:
    """The longest name that will be made of a job's, and what it names.

    >>> from gangplank.spec import JobSpec
    >>> longest(JobSpec("digits", "img", backend="volcano", workers=12))
    ('digits-worker-11', 'pod and host name')
    """
    wiring = BACKENDS[spec.backend].wiring
    world = max(spec.replicas - 1, 0)
    derived = [
        wiring.longest.format(job=spec.name, role=role, last=max(count - 1, 0), world=world)
        for role, count in (("master", spec.masters), ("worker", spec.workers))
        if count
    ] or [spec.name]
    return max(derived, key=len), wiring.longest_is


def is_reserved(name: str) -> bool:
    """Whether an environment variable belongs to the wiring.

    >>> is_reserved("RANK"), is_reserved("PET_NNODES"), is_reserved("OMP_NUM_THREADS"), is_reserved("GANGPLANK_STUCK_S")
    (True, True, False, False)
    """
    return name in RESERVED or (name.startswith(RESERVED_PREFIXES) and name not in SETTABLE)


def is_launcher(command: tuple[str, ...]) -> bool:
    """Whether a command itself starts several processes per node.

    >>> is_launcher(("torchrun", "a.py")), is_launcher(("python3", "a.py")), is_launcher((*QUICK_LAUNCHER, "a.py"))
    (True, False, True)
    """
    names = {LAUNCHER[-1], QUICK_LAUNCHER[-1]}
    return bool(command) and (command[0].rsplit("/", 1)[-1] == "torchrun" or not names.isdisjoint(command))


def launch(spec: JobSpec) -> list[str]:
    """The command that starts a job's script on one node, without the script's own arguments.

    >>> from gangplank.spec import JobSpec, Script
    >>> launch(JobSpec("digits", "img", backend="volcano", script=Script("/a.py")))[3:6]
    ['--nnodes=$(WORLD_SIZE)', '--node-rank=$(RANK)', '--master-addr=$(MASTER_ADDR)']
    >>> launch(JobSpec("digits", "img", backend="volcano", script=Script("/opt/gangplank/trainer/train.py")))[:2]
    ['python3', '/opt/gangplank/trainer/torchrun.py']
    """
    # Kubernetes itself expands $(NAME) in command and args from the whole environment of the container, also from what
    # a controller appended to it.
    # https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    names = BACKENDS[spec.backend].wiring
    if spec.elastic:  # only pytorchjob: the nodes agree on ranks among themselves, and may come and go
        meeting = [
            f"--nnodes=$({names.nnodes})",
            "--rdzv-backend=$(PET_RDZV_BACKEND)",
            "--rdzv-endpoint=$(PET_RDZV_ENDPOINT)",
            f"--rdzv-id={spec.name}",
            f"--rdzv-conf=join_timeout={RENDEZVOUS_S}",
            f"--max-restarts={spec.max_retries}",
        ]
    else:
        meeting = [
            f"--nnodes=$({names.nnodes})",
            f"--node-rank=$({names.rank})",
            f"--master-addr=$({names.addr})",
            f"--master-port=$({names.port})",
            f"--rdzv-conf=timeout={RENDEZVOUS_S}",
        ]
    script = spec.script.path if spec.script else ""
    launcher = QUICK_LAUNCHER if script.startswith(f"{TRAINER}/") else LAUNCHER
    return [*launcher, *meeting, f"--nproc-per-node={spec.processes_per_node}", *([script] if script else [])]


def environment(pod: Json, container: Json) -> dict[str, str]:
    """The environment of a container: literal values and fields of its pod; the last of equal names wins.

    >>> pod = {"metadata": {"name": "a-0", "annotations": {"i": "2"}}, "spec": {}}
    >>> field = {"fieldRef": {"fieldPath": "metadata.annotations['i']"}}
    >>> environment(pod, {"env": [{"name": "RANK", "valueFrom": field}, {"name": "A", "value": "1"}]})
    {'RANK': '2', 'A': '1'}
    """
    values = {}
    for variable in container.get("env", []):
        path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        kind, bracket, key = path.removeprefix("metadata.").partition("['")
        if bracket:
            values[variable["name"]] = pod["metadata"].get(kind, {}).get(key.removesuffix("']"), "")
        elif path == "metadata.name":
            values[variable["name"]] = pod["metadata"]["name"]
        elif "valueFrom" not in variable:
            values[variable["name"]] = variable.get("value", "")
    return values


def rank(pod: Json) -> str:
    """The rank of a pod's node, from its environment or from what its controller writes on it; "" if unknown.

    >>> of_job = {"name": "a", "labels": {"batch.kubernetes.io/job-name": "a"}}
    >>> rank({"metadata": {**of_job, "annotations": {"batch.kubernetes.io/job-completion-index": "2"}}, "spec": {}})
    '2'
    """
    if own := pod_wiring(pod)["rank"]:
        return own
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    owners = {(one.get("apiVersion"), one.get("kind")) for one in meta.get("ownerReferences") or ()}
    keys = {
        one.wiring.index  # two: the pods of a TrainJob are those of a Job, too
        for one in BACKENDS.values()
        if one.wiring.job_name in labels or (one.api_version, one.kind) in owners
    }
    return str((meta.get("annotations") or {}).get(keys.pop(), "")) if len(keys) == 1 else ""


def pod_wiring(pod: Json) -> dict[str, str]:
    """What a pod's first container knows of the job: rank of its node, master, WORLD_SIZE; "" if unknown.

    >>> names = {"RANK": "1", "MASTER_ADDR": "a-master-0.a", "MASTER_PORT": "23456", "WORLD_SIZE": "3"}
    >>> env = [{"name": name, "value": value} for name, value in names.items()]
    >>> pod_wiring({"metadata": {"name": "a-worker-0"}, "spec": {"containers": [{"env": env}]}})
    {'rank': '1', 'master': 'a-master-0.a:23456', 'world_size': '3'}
    """
    containers = pod["spec"].get("containers") or [{}]
    env = environment(pod, containers[0])
    address = env.get("MASTER_ADDR") or env.get("PET_MASTER_ADDR", "")
    port = env.get("MASTER_PORT") or env.get("PET_MASTER_PORT", "")
    return {
        "rank": env.get("PET_NODE_RANK", env.get("RANK", "")),
        "master": f"{address}:{port}" if address else env.get("PET_RDZV_ENDPOINT", ""),
        "world_size": env.get("WORLD_SIZE") or env.get("PET_NNODES", ""),
    }
