"""What may happen to a cluster under a training: how each fault is made and healed, and how the training has to end.

A fault is a context: it is made on entry and healed on exit. The jobs under it have a master and a worker, which are on
two nodes, and their files are on a folder that all nodes share. tests/cluster/test_cluster_faults.py asks for the end
of each, bench/faults.py for the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cluster.jobs import DESCRIPTION, NAMESPACE, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tests.cluster.conftest import Lab

Json = dict[str, Any]
BACKENDS = ("volcano", "indexed")  # a gang that its controller restarts, and containers that restart in place
CONTROL_PLANE = "node-0"
ADMISSION = ("volcano-system", "volcano-admission")
DNS = ("kube-system", "lab-dns")
QUEUE = "faults"
TRAINER = "gangplank.dev/trainer:0.1.0"
SLOW = ("rate", "400kbit", "burst", "16kb", "latency", "2s")


@dataclass(frozen=True)
class Fault:
    """A fault, with the words that name it, and the end that a training under it has to have."""

    name: str
    make: Callable[[Lab, Sequence[Job]], AbstractContextManager[None]]
    hold_s: float = 0.0
    """From making to healing it."""
    cause: str = ""
    """A pattern: while the fault lasts the training stands still, and `gangplank status` has this one cause."""
    backends: tuple[str, ...] = BACKENDS
    change: Json = field(default_factory=dict)
    """What its jobs have otherwise."""

    @property
    def slug(self) -> str:
        """The name as a part of objects' names."""
        return self.name.replace(" ", "-")


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, **facts: Any
) -> Callable[[Callable[[Lab, Sequence[Job]], Iterator[None]]], Callable[[Lab, Sequence[Job]], Any]]:
    """Add a fault to the list."""

    def listed(make: Callable[[Lab, Sequence[Job]], Iterator[None]]) -> Callable[[Lab, Sequence[Job]], Any]:
        FAULTS[name] = Fault(name, contextmanager(make), **facts)
        return FAULTS[name].make

    return listed


def kill_program(lab: Lab, name: str) -> None:
    """SIGKILL to a program of the lab, which is started again."""
    os.kill(lab.programs()[name]["pid"], signal.SIGKILL)


def kill_in_pods(comm: str) -> None:
    """SIGKILL to a program that runs in a pod."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (place / "comm").read_text().strip() == comm[:15] and "gangplank" in (place / "cgroup").read_text():
                os.kill(int(place.name), signal.SIGKILL)


def lose_rank(jobs: Sequence[Job]) -> None:
    """SIGKILL to each job's worker: what is broken is needed for its restart."""
    for job in jobs:
        job.send(signal.SIGKILL, "worker")


def lose_pod(jobs: Sequence[Job]) -> None:
    """Delete each job's worker: another pod has to be made, and scheduled."""
    for job in jobs:
        job.lab.kubectl("delete", "pod", "-n", NAMESPACE, job.pod("worker")["metadata"]["name"], "--wait=false")


def worker_node(jobs: Sequence[Job]) -> str:
    """The node of the first job's worker; a taint keeps the control plane's node free of jobs."""
    return jobs[0].node("worker")


def port(node: str) -> str:
    """The switch's port of a node."""
    return f"port{int(node.rsplit('-', 1)[-1]) + 1}"


def scaled(lab: Lab, deployment: tuple[str, str], replicas: int) -> None:
    """Ask for another number of a deployment's pods, and wait for it."""
    namespace, name = deployment
    lab.kubectl("scale", "deployment", name, "-n", namespace, f"--replicas={replicas}")
    lab.wait(f"{replicas} of {name}", lambda: replicas == lab.get("deployment", name, "-n", namespace)[
        "status"].get("readyReplicas", 0), 180)  # fmt: skip


@fault("a rank killed")
def _rank(_: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    lose_rank(jobs)
    yield


@fault("containerd killed")
def _containerd(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    kill_program(lab, f"containerd-{worker_node(jobs)}")
    yield


@fault("kubelet killed")
def _kubelet(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    kill_program(lab, f"kubelet-{worker_node(jobs)}")
    yield


@fault("a node cut off for 30 s", hold_s=30)
def _cut_off(_: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    link = ("ip", "-n", "gangplank-switch", "link", "set", port(worker_node(jobs)))
    subprocess.run([*link, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run([*link, "up"], check=True)


@fault("a slow link", hold_s=20)
def _slow(_: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    discipline = ("dev", port(worker_node(jobs)), "root")
    subprocess.run(["tc", "-n", "gangplank-switch", "qdisc", "add", *discipline, "tbf", *SLOW], check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "-n", "gangplank-switch", "qdisc", "del", *discipline], check=True)


@fault("DNS down", hold_s=20)
def _dns(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    scaled(lab, DNS, 0)
    try:
        lose_rank(jobs)
        yield
    finally:
        scaled(lab, DNS, 1)


@fault("etcd killed")
def _etcd(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    lose_rank(jobs)
    kill_program(lab, "etcd")
    yield


@fault("API server killed")
def _api(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    lose_rank(jobs)
    kill_program(lab, "kube-apiserver")
    yield


@fault("scheduler killed")
def _scheduler(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    lose_pod(jobs)
    kill_program(lab, "kube-scheduler")
    kill_in_pods("vc-scheduler")
    yield


@fault("controller killed")
def _controller(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    lose_pod(jobs)
    kill_program(lab, "kube-controller-manager")
    kill_in_pods("vc-controller-manager")
    yield


@fault("webhook down", hold_s=20)
def _webhook(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    scaled(lab, ADMISSION, 0)
    try:
        lose_pod(jobs)
        yield
    finally:
        scaled(lab, ADMISSION, 1)


@fault("image missing", cause=rf"(ErrImagePull|ImagePullBackOff).*{TRAINER}")
def _image(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    part = Path(lab.parts["bin"]["containerd"]).parent.name
    ctr = (f"/mnt/parts/{part}/bin/ctr", "-n", "k8s.io", "images")
    nodes = [node for node in lab.ready() if node != CONTROL_PLANE]
    for node in nodes:
        lab.inside(node, *ctr, "tag", "--force", TRAINER, "example.invalid/kept:1")
        lab.inside(node, *ctr, "rm", TRAINER)
    try:
        lose_rank(jobs)
        yield
    finally:
        for node in nodes:
            lab.inside(node, *ctr, "tag", "example.invalid/kept:1", TRAINER)
            lab.inside(node, *ctr, "rm", "example.invalid/kept:1")


@fault("node drained", hold_s=1)
def _drained(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    node = worker_node(jobs)
    lab.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=110s")
    try:
        yield
    finally:
        lab.kubectl("uncordon", node)


@fault("pod evicted")
def _evicted(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    for job in jobs:
        name = job.pod("worker")["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
        where = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
        lab.kubectl("create", "--raw", where, "-f", "-", stdin=json.dumps(body))
    yield


@fault("quota lowered", cause="exceeded quota: lowered")
def _quota(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    lab.kubectl("create", "quota", "lowered", "-n", NAMESPACE, "--hard=pods=0")
    try:
        lose_pod(jobs)
        yield
    finally:
        lab.kubectl("delete", "quota", "lowered", "-n", NAMESPACE)


@fault("queue closed", backends=("volcano",), hold_s=10)
def _queue(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    def command(action: str) -> None:
        queue = lab.get("queue.scheduling.volcano.sh", QUEUE)
        target = {"apiVersion": queue["apiVersion"], "kind": "Queue", "name": QUEUE, "uid": queue["metadata"]["uid"]}
        meta = {"generateName": "faults-", "namespace": NAMESPACE}
        body = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": meta}
        lab.kubectl("create", "-f", "-", stdin=json.dumps({**body, "action": action, "target": target}))

    command("CloseQueue")
    try:
        lose_pod(jobs)
        yield
    finally:
        command("OpenQueue")


CLAIM: Json = {
    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared", "namespace": NAMESPACE},
    "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "local-shared",
             "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
QUEUE_OBJECT: Json = {
    "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": QUEUE},
    "spec": {"weight": 1, "reclaimable": True}}  # fmt: skip
TAINT = f"{CONTROL_PLANE} node-role.kubernetes.io/control-plane"
EPOCHS = 30
BEYOND = 40  # steps before a fault: past the second checkpoint
CAUSE_S = 120.0
END_S = 420.0  # from the fault's end to the job's: nothing here waits for more than half a minute, but cores are shared


@contextmanager
def prepared(lab: Lab) -> Iterator[Lab]:
    """The lab with what all faults need: a namespace, a shared claim, a queue, a control plane without jobs."""
    lab.kubectl("create", "namespace", NAMESPACE)
    lab.kubectl("create", "-f", "-", stdin=json.dumps(CLAIM))
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(QUEUE_OBJECT))
    lab.kubectl("taint", "node", "--overwrite", *TAINT.split()[:1], f"{TAINT.split()[1]}=:NoSchedule")
    try:
        yield lab
    finally:
        lab.kubectl("delete", "namespace", NAMESPACE, "--timeout=110s")
        lab.kubectl("delete", "queue.scheduling.volcano.sh", QUEUE, "--timeout=60s")
        lab.kubectl("taint", "node", *TAINT.split()[:1], f"{TAINT.split()[1]}:NoSchedule-")


def job(lab: Lab, name: str, backend: str, **change: object) -> Job:
    """A job whose files are where every node finds them."""
    name = f"{name}-{backend}"
    volume = {"claim": "shared", "mount": "/data", "on": "all", "access": "ReadWriteMany"}
    queue = {"queue": QUEUE} if backend == "volcano" else {}
    parameters = {**DESCRIPTION["hyperparameters"], "epochs": EPOCHS}
    args = ["--checkpoint-interval", "20", "--collective-timeout", "20", "--rendezvous-timeout", "30"]
    own = {"hyperparameters": parameters, "args": args, "volumes": [volume], "output": f"/data/{name}", "max_retries": 9, **queue, **change}
    return Job(lab, name, own, backend=backend)


@dataclass
class Outcome:
    """A job that a fault happened to."""

    job: Job
    made: float = 0.0
    """When the fault was made, in seconds since 1970."""
    healed: float = 0.0
    said: str = ""
    """What gangplank status said of it meanwhile, if it had to name a cause."""
    phase: str = ""


def undergo(lab: Lab, one: Fault, backends: Iterable[str]) -> dict[str, Outcome]:
    """Train a job per back-end, make the fault under all of them, heal it, and wait for their ends."""
    jobs = [job(lab, one.slug, backend, **one.change) for backend in one.backends if backend in backends]
    outcomes = {each.backend: Outcome(each) for each in jobs}
    for each in jobs:
        each.submit()
    for each in jobs:
        lab.wait(f"{each.name} trains", lambda each=each: each.trains(beyond=BEYOND), END_S)
    made = time.time()
    with one.make(lab, jobs):
        for outcome in outcomes.values():
            outcome.made = made
            if one.cause:
                outcome.said = lab.wait(f"the cause of {one.name} in {outcome.job.name}", named(outcome, one), CAUSE_S)
        time.sleep(max(0.0, made + one.hold_s - time.time()))  # nothing is waited for: the fault lasts that long
    healed = time.time()
    for outcome in outcomes.values():
        outcome.healed = healed
        outcome.phase = outcome.job.end(END_S)
    return outcomes


def named(outcome: Outcome, one: Fault) -> Callable[[], str]:
    """Look for the cause of a standstill in what gangplank status says."""

    def look() -> str:
        text = outcome.job.command("status").stdout
        return text if re.search(one.cause, text) else ""

    return look
