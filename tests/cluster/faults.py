"""What may happen to a cluster under a training: how each fault is made and healed, and how the training has to end.

A fault is a context: it is made on entry and healed on exit. The jobs under it have a master and a worker, which are on
two nodes, and their files are on a folder that all nodes share.

The tests in test_cluster_faults.py look at the end of each, and bench/parts/faults.py at the time.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.backends import BACKENDS as ALL_BACKENDS
from gangplank.cluster import standstill
from gangplank.cluster.follow import JobWatch, follow
from gangplank.errors import KubeError
from lab.build.parts import build
from tests.cluster.conftest import STATE
from tests.cluster.jobs import DESCRIPTION, NAMESPACE, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gangplank.cluster.progress import Phase
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
# What the faults need: a PyTorchJob has a queue too, and an Indexed Job has none.
COMPONENTS = ("-e", json.dumps({"site_components": ["volcano", "storage", "training_operator"]}))
BACKENDS = ("volcano", "indexed")  # a gang that its controller restarts, and containers that restart in place
CONTROL_PLANE = "node-0"
ADMISSION = ("volcano-system", "volcano-admission")
DNS = ("kube-system", "coredns")
QUEUE = "faults"
TRAINER = "gangplank.dev/trainer:0.1.0"
SLOW = ("rate", "400kbit", "burst", "16kb", "latency", "2s")
SMALL, KUBELET, VOLUME = "node-1", "/var/lib/kubelet", "/var/lib/faults-volume"
KEPT = "/opt/faults-own"  # a node keeps what is in /opt when it is switched off
HOSTNAME = "kubernetes.io/hostname"


def claim(name: str, **spec: object) -> Json:
    """A claim of one pod."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Mi"}}, **spec}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def on_one_node(name: str, folder: str) -> tuple[Json, Json]:
    """A volume that is a folder of one node, and its claim."""
    here = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [SMALL]}]}
    spec = {"capacity": {"storage": "20Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "faults",
            "hostPath": {"path": folder}, "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}}}  # fmt: skip
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"faults-{name}"}, "spec": spec}
    return volume, claim(name, storageClassName="faults", volumeName=f"faults-{name}")


OWN, SMALL_VOLUME = on_one_node("own", KEPT), on_one_node("small", VOLUME)


@dataclass(frozen=True)
class Fault:
    """A fault, with the words that name it, and the end that a training under it has to have."""

    name: str
    make: Callable[[Lab, Sequence[Job]], AbstractContextManager[None]]
    hold_s: float = 0.0
    """From making to healing it."""
    cause: str = ""
    """A pattern: while the fault lasts the training stands still, and who follows it reads this cause."""
    code: str = ""
    """Of the one cause that `gangplank why` names then."""
    backends: tuple[str, ...] = BACKENDS
    alone: str = ""
    """Why no other back-end can have it, if it is made on one."""
    unproven: str = ""
    """A pattern: the training ends well, and its proof names this cause in the one claim that fails."""
    forever: bool = False
    """It is healed only after the end of the training."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Of its jobs."""
    args: tuple[str, ...] = ()
    """Of their script, beside the usual ones; the last one of a name counts."""
    around: Callable[[Lab], AbstractContextManager[object]] = contextlib.nullcontext
    """What has to be so before its jobs begin."""
    own: tuple[Json, ...] = ()
    """A claim, last, on which the jobs' files are, and not on a folder that all nodes share."""
    warns: str = ""
    """A pattern: while the fault lasts the training continues, and who follows it reads this cause."""
    long: bool = False
    """It takes too long for `make test-full` and `make bench`: a sweep makes it."""

    @property
    def slug(self) -> str:
        """The name as a part of objects' names."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower())


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
    before = lab.programs()[name]["pid"]
    os.kill(before, signal.SIGKILL)
    lab.wait(f"another {name}", lambda: lab.programs()[name]["pid"] not in (0, before))


def kill_in_pods(comm: str) -> None:
    """SIGKILL to a program that runs in a pod; it has to run."""
    killed = 0
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (place / "comm").read_text().strip() == comm[:15] and "gangplank" in (place / "cgroup").read_text():
                os.kill(int(place.name), signal.SIGKILL)
                killed += 1
    assert killed, f"no {comm} runs in a pod"


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
    yield from cut_off(jobs)


# Its pods are given up meanwhile, and it comes back with containers of pods that exist no more.
@fault("a node cut off for 10 min", hold_s=600, long=True)
def _cut_off_long(_: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    yield from cut_off(jobs)


def cut_off(jobs: Sequence[Job]) -> Iterator[None]:
    """Take the link of the worker's node down, and up again."""
    link = ("ip", "-n", "gangplank-switch", "link", "set", port(worker_node(jobs)))
    subprocess.run([*link, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run([*link, "up"], check=True)


@fault("a slow link", hold_s=20)
def _slow(_: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    discipline = ("dev", port(worker_node(jobs)), "root")
    tc = ("tc", "-n", "gangplank-switch")
    subprocess.run([*tc, "qdisc", "add", *discipline, "tbf", *SLOW], check=True)
    try:
        yield
        shown = subprocess.run([*tc, "-json", "-s", "qdisc", "show", *discipline], capture_output=True, check=True)
        assert json.loads(shown.stdout)[0]["overlimits"], "nothing had to wait for the slow link"
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


@contextmanager
def unwatched(lab: Lab, plural: str) -> Iterator[None]:
    """Volcano's controller without the right to begin a watch of some objects; it has it again on exit."""
    where = ("clusterrole", "volcano-controllers")
    rules = lab.get(*where)["rules"]
    fewer = [{**rule, "resources": [plural], "verbs": sorted({*rule["verbs"]} - {"list", "watch"})}
             for rule in rules if plural in rule["resources"]]  # fmt: skip
    kept = [{**rule, "resources": [one for one in rule["resources"] if one != plural]} for rule in rules]

    def write(some: Sequence[Json]) -> bool:
        change = json.dumps({"rules": [rule for rule in some if rule["resources"]]})
        return bool(lab.kubectl("patch", *where, "--type=merge", "-p", change))

    write([*fewer, *kept])
    try:
        yield
    finally:
        lab.wait("the rights of Volcano's controller", lambda: write(rules))


def refused(lab: Lab, plural: str) -> bool:
    """Whether the API server has just refused Volcano's controller a list of some objects."""
    said = lab.kubectl("logs", "-n", "volcano-system", "deployment/volcano-controllers", "--since=60s")
    return bool(re.search(rf"{plural}\S* is forbidden", said))


def without_group(job: Job) -> str:
    """The PodGroup that does not exist and that a job's pods wait with."""
    with contextlib.suppress(KubeError):
        return standstill.lost_group(job.kube, job.manifest, job.pods())
    return ""


def looks(lab: Lab) -> None:
    """Wait until Volcano's scheduler sees a new PodGroup, and so the end of another."""
    kind = "podgroup.scheduling.volcano.sh"
    spec = {"minMember": 1, "queue": QUEUE}
    probe = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
             "metadata": {"name": "probe", "namespace": NAMESPACE}, "spec": spec}  # fmt: skip
    lab.wait("a probe", lambda: lab.kubectl("apply", "-f", "-", stdin=json.dumps(probe)), CAUSE_S)
    lab.wait("the scheduler lets it in", lambda: lab.get(kind, "probe", "-n", NAMESPACE)[
        "status"]["phase"] == "Inqueue", CAUSE_S)  # fmt: skip
    lab.kubectl("delete", kind, "probe", "-n", NAMESPACE, "--timeout=60s")


# The controller deletes the PodGroup, does not see that, and creates only the pods anew. The scheduler does see it, and
# so never places them.
@fault("PodGroups watched late", backends=("volcano",), args=("--collective-timeout", "300"),
       alone="no other controller deletes the PodGroup of a job that continues")  # fmt: skip
def _late(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    with unwatched(lab, "podgroups"):
        for job in jobs:
            job.send(signal.SIGSTOP, "worker")  # the training waits until the watch is refused
        kill_program(lab, "kube-apiserver")  # this ends all watches
        lab.wait("a watch is refused", functools.partial(refused, lab, "podgroups"), CAUSE_S)
        looks(lab)
        lose_rank(jobs)
        for job in jobs:
            lab.wait(f"{job.name} has pods and no PodGroup", functools.partial(without_group, job), CAUSE_S)
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


@fault("image missing", cause=rf"(ErrImagePull|ImagePullBackOff).*{TRAINER}", code="image")
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
    lab.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=600s")
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


@contextmanager
def own_quota(lab: Lab) -> Iterator[None]:
    """A quota with room for the jobs."""
    lab.kubectl("create", "quota", "lowered", "-n", NAMESPACE, "--hard=pods=6")
    try:
        yield
    finally:
        lab.kubectl("delete", "quota", "lowered", "-n", NAMESPACE)


def allow(lab: Lab, pods: int) -> None:
    """Change that quota."""
    change = json.dumps({"spec": {"hard": {"pods": str(pods)}}})
    lab.kubectl("patch", "quota", "lowered", "-n", NAMESPACE, "--type=merge", "-p", change)


# Pods that run stay, and no other may be created.
@fault("quota lowered", around=own_quota, code="quota",
       cause="because quota lowered of namespace faults has 0 pods left")  # fmt: skip
def _quota(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    allow(lab, 0)
    try:
        lose_pod(jobs)
        yield
    finally:
        allow(lab, 6)


@fault("queue closed", backends=("volcano", "pytorchjob"), hold_s=10)
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



@fault("a node lost forever", forever=True)
def _lost(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    yield from lost(lab, worker_node(jobs))


@contextmanager
def kept_folder(lab: Lab) -> Iterator[None]:
    """A folder of a node, for a volume, and no room there for a worker of a CPU: it is elsewhere, as `under` has it.

    Of a gang that is on a lost node as a whole, nothing is removed: it may still train.
    """
    lab.inside(SMALL, "mkdir", "-p", KEPT)
    lab.inside(SMALL, "chmod", "777", KEPT)
    container = {"name": "main", "image": DESCRIPTION["image"], "command": ["sleep", "infinity"],
                 "resources": {"requests": {"cpu": "1", "memory": "8Mi"}}}  # fmt: skip
    spec = {"nodeName": SMALL, "terminationGracePeriodSeconds": 0, "containers": [container]}
    holder = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holder", "namespace": NAMESPACE}, "spec": spec}
    lab.kubectl("create", "-f", "-", stdin=json.dumps(holder))
    lab.wait("the holder runs", lambda: lab.get("pod", "holder", "-n", NAMESPACE)["status"]["phase"] == "Running")
    try:
        yield  # the folder stays: the proof reads it
    finally:
        lab.kubectl("delete", "pod", "holder", "-n", NAMESPACE, "--now", "--ignore-not-found")


@fault("the volume's node lost", around=kept_folder, own=OWN, code="volume-node-lost",
       cause=f"its volume claim own is on {SMALL} alone, and that does not answer")  # fmt: skip
def _volume(lab: Lab, _: Sequence[Job]) -> Iterator[None]:
    yield from lost(lab, SMALL)


def taken_for_lost(lab: Lab) -> float:
    """When Kubernetes took the last node for lost, in seconds since 1970; 0 if it takes none for it now."""
    conditions = [one for node in lab.get("nodes") for one in node["status"]["conditions"]]
    return max((datetime.fromisoformat(one["lastTransitionTime"]).timestamp() for one in conditions
                if (one["type"], one["status"]) == ("Ready", "Unknown")), default=0.0)  # fmt: skip


def lost(lab: Lab, node: str) -> Iterator[None]:
    """End all that runs in a node, as if it was switched off; and switch it on again."""
    lab.playbook("tests/cluster/lose.yml", "-e", f"lose_node={node}")
    try:
        yield
    finally:
        lab.playbook("playbooks/lab.yml", *COMPONENTS)
        lab.wait(f"{node} is back", lambda: node in lab.ready(), 180)


ROOM = 300 << 20
RANK = 255 << 20  # what one takes


@contextmanager
def short_of_memory(lab: Lab, node: str, take: int, resources: Json) -> Iterator[Callable[[], Json]]:
    """A node whose pods may take ROOM more than they have, and a pod that takes more than that at once; its status.

    Within seconds the kubelet would evict pods. `take` counts without the cache of files, which gives way first.
    """
    version1 = Path("/sys/fs/cgroup/memory/gangplank").exists()
    pods = Path("/sys/fs/cgroup", "memory" if version1 else "", "gangplank", node, "kubepods")
    limit = pods / ("memory.limit_in_bytes" if version1 else "memory.max")
    used = int((pods / ("memory.usage_in_bytes" if version1 else "memory.current")).read_text())
    stat = dict(line.split() for line in (pods / "memory.stat").read_text().splitlines())
    cached = sum(int(stat[f"{'total_' if version1 else ''}{kind}_file"]) for kind in ("active", "inactive"))
    before = limit.read_text().strip()
    limit.write_text(str(used + ROOM))
    hog = f"import time; taken = [bytearray(10 << 20) for _ in range({(take + cached) // (10 << 20)})]; time.sleep(600)"
    container = {"name": "hog", "image": TRAINER, "command": ["python3", "-c", hog], "resources": resources}
    name = f"hog-{node}"
    spec = {"nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    try:
        lab.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        yield lambda: dict(lab.get("pod", name, "-n", NAMESPACE)["status"])
    finally:
        limit.write_text(before)
        lab.kubectl("delete", "pod", name, "-n", NAMESPACE, "--now")


@fault("pods over the node's memory limit", hold_s=20)
def _memory(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    with short_of_memory(lab, worker_node(jobs), 2 << 30, {}) as hog:  # which goes first: it asks for nothing
        lab.wait("the hog is killed or evicted for its memory", lambda: hog()["phase"] == "Failed")
        yield


def was_short_of_memory(job: Job) -> bool:
    """Whether the kubelet says so of a pod of a job."""
    for status in (pod.get("status", {}) for pod in job.pods()):
        ends = [one.get(key, {}).get("terminated", {}) for one in status.get("containerStatuses", [])
                for key in ("state", "lastState")]  # fmt: skip
        killed = any(end.get("reason") == "OOMKilled" and end.get("exitCode") for end in ends)
        if killed or status.get("reason") == "Evicted":
            return True
    return False


@fault("ranks killed for the node's memory")
def _ranks_killed(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    ranks = [lab.wait("the worker's rank", functools.partial(each.trainer, "worker"), CAUSE_S) for each in jobs]
    guaranteed = {"limits": {"cpu": "1", "memory": "4Gi"}}  # the kernel kills pods without such limits before it
    with contextlib.ExitStack() as short:
        nodes = {each.node("worker") for each in jobs}
        take = ROOM + RANK * 2
        hogs = [short.enter_context(short_of_memory(lab, node, take, guaranteed)) for node in nodes]
        lab.wait("the ranks are killed", lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks), CAUSE_S)
        lab.wait("the kernel spares the hogs", lambda: {hog()["phase"] for hog in hogs} == {"Running"})
    lab.wait("the kernel's reason", functools.partial(was_short_of_memory, jobs[BACKENDS.index("indexed")]), CAUSE_S)
    yield


# libfaketime, in every process of the jobs; in a pod with the file, clocks differ by what that says.
SHIFT_S = 300
FAKETIME = {"LD_PRELOAD": "/data/clock/libfaketimeMT.so.1", "FAKETIME_TIMESTAMP_FILE": "/tmp/shift",
            "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}  # fmt: skip
AHEAD = 4  # epochs, of which a checkpoint has the first


@contextmanager
def other_clock(lab: Lab) -> Iterator[None]:
    """The folder that the jobs share, with Debian's libfaketime."""
    volume = lab.get("pvc", "shared", "-n", NAMESPACE)["spec"]["volumeName"]
    spec = lab.get("pv", volume)["spec"]
    folder = STATE / "shared" / Path((spec.get("hostPath") or spec["local"])["path"]).name / "clock"
    folder.mkdir(exist_ok=True)
    root = Path(build([], print, roots=("faketime",))["roots"]["faketime"])
    shutil.copy(next(root.glob("usr/lib/*/faketime/libfaketimeMT.so.1")), folder)
    yield


def shift_clock(jobs: Sequence[Job], seconds: int) -> None:
    """Set the clock of each job's worker, until its container ends."""
    for each in jobs:
        pid = each.lab.wait("the worker's process", functools.partial(each.trainer, "worker"), CAUSE_S)
        Path("/proc", str(pid), "root", "tmp", "shift").write_text(f"{seconds:+d}s")


@fault("a rank's clock 5 min behind", around=other_clock, env=FAKETIME,
       unproven="the clock of rank 1 was [0-9]+ s behind another's")  # fmt: skip
def _behind(_: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    shift_clock(jobs, -SHIFT_S)
    yield


def epochs_ahead(job: Job) -> bool:
    """Whether the worker has finished epochs in the future."""
    now = time.time()
    future = [one for one in job.records() if one["kind"] == "epoch" and float(str(one["time"])) > now + SHIFT_S / 2]
    return len(future) >= AHEAD


# After its restart, the worker has the right time: it continues a chain of records that ends in the future.
@fault("a rank's clock 5 min ahead until it is killed", around=other_clock, env=FAKETIME)
def _ahead(lab: Lab, jobs: Sequence[Job]) -> Iterator[None]:
    shift_clock(jobs, SHIFT_S)
    for job in jobs:
        lab.wait(f"{job.name} has epochs of the future", functools.partial(epochs_ahead, job), CAUSE_S)
    lose_rank(jobs)
    yield


def program(lab: Lab, name: str, *, runs: bool) -> None:
    """Start or stop a program of the lab."""
    with lab.supervisor() as server:
        (server.startProcess if runs else server.stopProcess)(name)


def disk_of(folder: str) -> str:
    """The file behind a small file system."""
    return f"/var/lib/containerd/{Path(folder).name}-disk"


def mount(lab: Lab, folder: str, size: str) -> None:
    """Mount a new file system of this size, of a loop device, over a folder of a node."""
    disk = disk_of(folder)
    lab.inside(SMALL, "truncate", "-s", size, disk)
    inside = Path("/proc", str(lab.programs()[f"containerd-{SMALL}"]["pid"]), "root")  # a node has no mkfs of its own
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", inside / disk.lstrip("/")], check=True)
    lab.inside(SMALL, "mount", "-o", "loop", disk, folder)


def unmount(lab: Lab, folder: str) -> None:
    """Undo it."""
    lab.inside(SMALL, "umount", "-R", folder)
    lab.inside(SMALL, "rm", disk_of(folder))


@contextmanager
def full(lab: Lab, folder: str) -> Iterator[None]:
    """A folder of that node without a free byte."""
    fill = [*lab.enter(SMALL), "sh", "-c", f"LC_ALL=C cat /dev/zero > {folder}/full"]
    done = subprocess.run(fill, capture_output=True, text=True, check=False)
    try:
        assert "No space left on device" in done.stderr, done.stderr
        yield
    finally:
        lab.inside(SMALL, "rm", f"{folder}/full")


@contextmanager
def stopped_kubelet(lab: Lab) -> Iterator[None]:
    """The node without pods and without its kubelet, which starts again afterwards."""
    lab.kubectl("drain", SMALL, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=600s")
    program(lab, f"kubelet-{SMALL}", runs=False)
    try:
        yield
    finally:
        program(lab, f"kubelet-{SMALL}", runs=True)
        lab.kubectl("uncordon", SMALL)


@contextmanager
def small_kubelet(lab: Lab) -> Iterator[None]:
    """The kubelet of a node with its folder on a file system of 64 MiB."""
    with stopped_kubelet(lab):
        mount(lab, KUBELET, "64M")
    try:
        yield
    finally:
        with stopped_kubelet(lab):
            unmount(lab, KUBELET)


@fault("the node's folder full", around=small_kubelet, hold_s=60)
def _full(lab: Lab, _: Sequence[Job]) -> Iterator[None]:
    with full(lab, KUBELET):
        lab.wait("the kubelet reports it", lambda: any(
            item["type"] == "DiskPressure" and item["status"] == "True"
            for item in lab.get("node", SMALL)["status"]["conditions"]), CAUSE_S)  # fmt: skip
        yield


@contextmanager
def small_volume(lab: Lab) -> Iterator[None]:
    """A folder of a node, on a file system of 24 MiB for each job, for a volume."""
    lab.inside(SMALL, "mkdir", "-p", VOLUME)
    mount(lab, VOLUME, f"{24 * len(BACKENDS)}M")
    lab.inside(SMALL, "chmod", "777", VOLUME)
    yield  # it stays: the proof reads it


def without_volumes(lab: Lab) -> None:
    """Remove the volumes of one node that were made, once nothing uses them."""
    names = [volume["metadata"]["name"] for volume, _ in (OWN, SMALL_VOLUME)]
    lab.kubectl("delete", "pv", *names, "--ignore-not-found", "--timeout=60s")
    lab.inside(SMALL, "rm", "-rf", KEPT)
    if subprocess.run([*lab.enter(SMALL), "mountpoint", "-q", VOLUME], check=False).returncode == 0:
        unmount(lab, VOLUME)
        lab.inside(SMALL, "rmdir", VOLUME)


@fault("the volume full", around=small_volume, own=SMALL_VOLUME,
       warns="the checkpoint of step [0-9]+ is not written: .*No space left on device")  # fmt: skip
def _volume_full(lab: Lab, _: Sequence[Job]) -> Iterator[None]:
    with full(lab, VOLUME):
        yield


CLAIM = claim("shared", accessModes=["ReadWriteMany"], storageClassName="local-shared",
              resources={"requests": {"storage": "1Gi"}})  # fmt: skip
QUEUE_OBJECT: Json = {
    "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": QUEUE},
    "spec": {"weight": 1, "reclaimable": True}}  # fmt: skip
TAINT = "node-role.kubernetes.io/control-plane:NoSchedule"
EPOCHS = 60  # on two quiet cores, 30 had ended before a playbook made the fault
ARGS = ("--checkpoint-interval", "20", "--collective-timeout", "20", "--rendezvous-timeout", "30")
BEYOND = 40  # steps before a fault: past the second checkpoint
CAUSE_S = 300.0  # a lost node is noticed after 50 s, and its pods are gone after a minute more
END_S = 420.0  # from the fault's end to the job's: nothing here waits for more than half a minute, but cores are shared


@contextmanager
def prepared(lab: Lab, *, free_node: bool = True) -> Iterator[Lab]:
    """The lab with what all faults need: a namespace, a shared claim, a queue, perhaps a control plane without jobs."""
    lab.kubectl("create", "namespace", NAMESPACE)
    lab.kubectl("create", "-f", "-", stdin=json.dumps(CLAIM))
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(QUEUE_OBJECT))
    lab.wait("the queue is open", lambda: lab.get("queue.scheduling.volcano.sh", QUEUE)["status"]["state"] == "Open")
    if free_node:
        lab.kubectl("taint", "node", CONTROL_PLANE, "--overwrite", TAINT)
    try:
        yield lab
    finally:
        lab.kubectl("delete", "namespace", NAMESPACE, "--timeout=600s")
        lab.kubectl("delete", "queue.scheduling.volcano.sh", QUEUE, "--timeout=60s")
        without_volumes(lab)
        if free_node:
            lab.kubectl("taint", "node", CONTROL_PLANE, f"{TAINT}-")


def description(name: str, backend: str, **change: object) -> Json:
    """What is otherwise than in DESCRIPTION in a job whose files are where every node finds them."""
    volume = {"claim": "shared", "mount": "/data", "on": "all", "access": "ReadWriteMany"}
    queue = {"queue": QUEUE} if "queue" not in ALL_BACKENDS[backend].refuses else {}
    parameters = {**DESCRIPTION["hyperparameters"], "epochs": EPOCHS}
    own = {"hyperparameters": parameters, "args": list(ARGS), "volumes": [volume], "output": f"/data/{name}"}
    return {**own, "max_retries": 9, **queue, **change}


def job(lab: Lab, name: str, backend: str, **change: object) -> Job:
    """Such a job."""
    name = f"{name}-{backend}"
    return Job(lab, name, description(name, backend, **change), backend=backend)


@dataclass
class Outcome:
    """A job that a fault happened to, as `playbooks/train.yml` follows it."""

    job: Job
    made: float = 0.0
    """When the fault was made, in seconds since 1970."""
    healed: float = 0.0
    lost: float = 0.0
    """When Kubernetes took the fault's node for lost, 0 if it was not or is back."""
    lines: list[tuple[float, str]] = field(default_factory=list)
    """What who follows the job reads, and when."""
    said: str = ""
    """What gangplank said of it meanwhile, if it had to name a cause."""
    end: Phase | None = None

    def follow(self) -> None:
        """Read to the job's end."""
        watch = JobWatch(self.job.manifest, self.job.kube)
        self.end = follow(watch, lambda line: self.lines.append((time.time(), line)), 2 * END_S)

    def verdict(self, unproven: str) -> str:
        """What is wrong with the proof, "" if it is as it has to be."""
        done = self.job.command("proof")
        if not unproven:
            return "" if done.returncode == 0 and "PROVEN" in done.stdout else done.stdout + done.stderr
        failed = re.findall(r"^FAILED .*", done.stdout, re.MULTILINE)
        as_said = done.returncode == 1 and len(failed) == 1 and re.search(unproven, failed[0])
        return "" if as_said else done.stdout + done.stderr

    def names(self, cause: str, code: str) -> str:
        """What gangplank says of the one cause of a standstill, once who follows the job has read it too."""
        assert self.reads(cause), self.lines[-8:]
        answer = json.loads(self.job.command("why", "-o", "json").stdout)
        assert answer["needed"] == [code], answer
        self.said = "\n".join((answer["summary"], *answer["evidence"]))
        assert re.search(cause, self.said), self.said
        return self.said

    def reads(self, cause: str) -> str:
        """What who follows the job has read of a cause since the fault."""
        return next((line for when, line in self.lines if when > self.made and re.search(cause, line)), "")

    def warned(self, cause: str) -> bool:
        """Whether who follows the job has read of a cause; keeps what."""
        self.said = self.reads(cause)
        return bool(self.said)


def under(one: Fault, backend: str) -> Json:
    """What a fault's job has otherwise than others.

    Of a claim on one node, the master alone mounts it, and the worker is on another node.
    Where all replicas share one template, all mount it, on that node.
    """
    change: Json = {"env": dict(one.env), "args": [*ARGS, *one.args]}
    if not one.own:
        return change
    volume = {"claim": one.own[-1]["metadata"]["name"], "mount": "/data"}
    if ALL_BACKENDS[backend].one_template:
        return {**change, "volumes": [{**volume, "on": "all"}], "node_selector": {HOSTNAME: SMALL}}
    own: Json = DESCRIPTION["resources"]
    apart = {"master_resources": own, "resources": {**own, "cpu": "1"}}
    return {**change, "volumes": [{**volume, "on": "master"}], **apart}


def undergo(lab: Lab, one: Fault) -> dict[str, Outcome]:
    """Train a job per back-end, make the fault under all of them, heal it, and wait for their ends."""
    jobs = [job(lab, one.slug, backend, **under(one, backend)) for backend in one.backends]
    outcomes = {each.backend: Outcome(each) for each in jobs}
    with one.around(lab), ThreadPoolExecutor(len(jobs)) as pool:
        for item in one.own:
            lab.kubectl("create", "-f", "-", stdin=json.dumps(item))
        for each in jobs:
            each.submit()
        followed = [pool.submit(outcome.follow) for outcome in outcomes.values()]
        for each in jobs:
            lab.wait(f"{each.name} trains", functools.partial(each.trains, beyond=BEYOND), END_S)
        made = time.time()
        for outcome in outcomes.values():
            outcome.made = made
        with one.make(lab, jobs):
            early = [outcome.job.name for outcome in outcomes.values() if outcome.end]
            assert not early, f"{', '.join(early)}: got an end before {one.name}, expected a training"
            for outcome in outcomes.values():
                if one.cause:
                    lab.wait(f"the cause of {one.name}", functools.partial(outcome.names, one.cause, one.code), CAUSE_S)
                if one.warns:
                    lab.wait(f"a word on {one.name}", functools.partial(outcome.warned, one.warns), CAUSE_S)
            if one.forever:
                wait(followed)
                for outcome in outcomes.values():
                    outcome.lost = taken_for_lost(lab)
            time.sleep(max(0.0, made + one.hold_s - time.time()))  # the fault lasts that long
        for outcome in outcomes.values():
            outcome.healed = time.time()
        for follower in followed:
            follower.result()
    return outcomes
