"""Stories of causes, by name: those that disturb no other job, and those that come one after the other."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.support.raw_jobs import INDEXED_JOB, VOLCANO_JOB, by_hand
from tests.support.teams_ways import command
from tests.support.why_stories import (
    APART,
    JOBS,
    NO_IMAGE,
    SMALL,
    Story,
    affine,
    changed,
    claim,
    crashing,
    holder,
    in_container,
    mounting,
    named,
    near,
    queue,
    silent,
    story,
    suspended,
    volume,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tests.cluster.conftest import Lab

Json = dict[str, Any]
MOUNT = {"volumes": [{"claim": "data", "mount": "/data", "on": "all", "access": "ReadWriteMany"}]}
MISSING_CLASS = claim(spec={"storageClassName": "no-such-class"})
HERE = {"hostPath": {"path": "/tmp"}}
MOUNTING = {"volumeMounts": [{"name": "more", "mountPath": "/more"}]}  # in a container
DATA = {"volumes": [{"name": "more", "persistentVolumeClaim": {"claimName": "data"}}]}
MOUNTED = mounting(persistentVolumeClaim={"claimName": "data"})  # by the job
ONE_POD = {"accessModes": ["ReadWriteOncePod"], "storageClassName": ""}
ELSEWHERE = volume("why-elsewhere", "ReadWriteMany", **HERE, nodeAffinity={"required": affine("no-such-label")})
BOUND_ELSEWHERE = claim(spec={"storageClassName": "", "volumeName": "why-elsewhere"})
ABSENT = "absent.gangplank.dev"  # a CSI driver that runs nowhere
UNATTACHED = {  # a kubelet mounts its volumes at once
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIDriver",
    "metadata": {"name": ABSENT},
    "spec": {"attachRequired": False},
}


def driverless(name: str) -> tuple[Json, Json]:
    """A volume of that driver, and the claim that is bound to it."""
    source = {"driver": ABSENT, "volumeHandle": name}
    return volume(name, "ReadWriteMany", csi=source), claim(spec={"storageClassName": "", "volumeName": name})


SPREAD = {  # each pod on a node of its own, as long as the cluster has fewer than nine
    "maxSkew": 1,
    "minDomains": 9,
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": JOBS,
    "whenUnsatisfiable": "DoNotSchedule",
}
ALONE = holder(nodeName="node-1", affinity={"podAntiAffinity": near("kubernetes.io/os")})  # in the whole cluster
FULL_RANGE = named("LimitRange", spec={"limits": [{"type": "Container", "default": {"cpu": "5m"}}]})
NO_RUNTIME = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "why-no-runtime"},
    "handler": "no-such-handler",
}
ON_NODE_1 = {"node_selector": {"kubernetes.io/hostname": "node-1"}}
PORTS = [{"containerPort": 18080, "hostPort": 18080}]
FILLS = ["sh", "-c", "head -c 16M /dev/zero > /more/zeros; sleep 900"]
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
TORCHRUN = (
    "exec python3 -m torch.distributed.run --nnodes=2 --node-rank=$RANK --master-addr=$MASTER_ADDR"
    " --master-port=$MASTER_PORT --rdzv-conf=timeout=15 /tmp/a.py"
)
TOGETHER = TORCHRUN.replace("timeout=15", "timeout=300")  # where a late rank is not the cause
LATE = f"test $RANK = 0 || {{ echo fetching; sleep 900; }}; {TORCHRUN}"
HANGS = """cat > /tmp/a.py <<'END'
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank():
    time.sleep(900)
dist.all_reduce(torch.ones(1))
END
export GANGPLANK_STUCK_S=5
"""
PREPARES = """cat > /tmp/a.py <<'END'
import os, time, torch, torch.distributed as dist
time.sleep(900 if os.environ["RANK"] == "1" else 9)  # the first one reports when the other has
dist.init_process_group("gloo")
END
export GANGPLANK_STUCK_S=5
"""
TRAINS = """cat > /tmp/a.py <<'END'
import os, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
class Points(Dataset):
    def __len__(self):
        return 4 * STEPS
    def __getitem__(self, number):
        time.sleep(0.1 if LATE else 0)
        return torch.ones(8)
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
for batch in DataLoader(Points(), 4):
    optimizer.zero_grad()
    net(batch).sum().backward()
    optimizer.step()
END
export GANGPLANK_PACE_S=5
"""
SLOW = TRAINS.replace("LATE", 'os.environ["RANK"] == "1"').replace("STEPS", "2000")
STORIES: dict[str, Story] = {
    "quota": Story("quota", beside=(named("ResourceQuota", spec={"hard": {"requests.cpu": "15m"}}),)),
    "quota-unset": Story(
        "quota", backend="indexed", beside=(named("ResourceQuota", spec={"hard": {"limits.cpu": "1"}}),)
    ),
    "limit-range": Story("limit-range", beside=(FULL_RANGE,)),
    "limit-range-indexed": Story("limit-range", backend="indexed", beside=(FULL_RANGE,)),
    "pod-security": Story("refused", backend="indexed", raw=changed(hostNetwork=True), words="host namespaces"),
    "account": Story(
        "refused", backend="indexed", raw=changed(serviceAccountName="nobody"), words='"nobody" not found'
    ),
    "priority": Story(
        "refused", backend="indexed", raw=changed(priorityClassName="no-such-class"), words="no-such-class"
    ),
    "class": Story(
        "class-missing", backend="indexed", raw=changed(priorityClassName="no-such-class"), submitted=False,
        words="class would not start because its PriorityClass no-such-class does not exist",
    ),
    "queue-over": Story("queue-over", {"queue": "why-cap"}, beside=(queue("why-cap", capability={"cpu": "15m"}),)),
    "queue-missing": Story("queue-missing", {"queue": "why-nowhere"}, submitted=False),
    "queue-inner": Story("queue-inner", {"queue": "why-inner"}, submitted=False, beside=(
        queue("why-inner"), queue("why-inner-leaf", "why-inner"),
    )),
    "too-small": Story("cluster-too-small", {"workers": 60, "resources": {"cpu": "100m", "memory": "32Mi"}}),
    "too-large": Story("pod-too-large", {"resources": {"cpu": "9", "memory": "32Mi"}}),
    "too-large-indexed": Story("pod-too-large", {"resources": {"cpu": "9", "memory": "32Mi"}}, backend="indexed"),
    "no-device": Story("no-device", {"resources": {**SMALL, "gpus": 1}}),
    "selector": Story("selector", {"node_selector": {"disk": "ssd"}}),
    "affinity": Story("affinity", raw=changed(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affine("no-such-label")}}
    )),
    "spread": Story("topology", {"workers": 3}, raw=changed(topologySpreadConstraints=[SPREAD])),
    "spread-indexed": Story("topology", {"workers": 3}, "indexed", raw=changed(topologySpreadConstraints=[SPREAD])),
    "apart": APART,
    "apart-indexed": replace(APART, backend="indexed"),
    "together": Story("pod-affinity", words="its own", raw=changed(
        affinity={"podAffinity": near(selector={"matchLabels": {"app": "nobody"}})}
    )),
    "repelled": Story("pod-affinity", beside=(ALONE,), words="that of other pods"),
    "volume-missing": Story("volume-missing", MOUNT),
    "volume-terminating": Story("volume-terminating", MOUNT, beside=(claim(finalizers=["gangplank.dev/test"]),)),
    "volume-unbound": Story("volume-unbound", MOUNT, beside=(MISSING_CLASS,)),
    "volume-node": Story("volume-node-lost", MOUNT, beside=(ELSEWHERE, BOUND_ELSEWHERE)),
    "volume-driver": Story(
        "volume-driver", MOUNT, beside=driverless("why-driver"),
        words=f"because its volume claim data needs the CSI driver {ABSENT}, which runs on no node",
    ),
    "volume-driver-indexed": Story(
        "volume-driver", MOUNT, "indexed", beside=(UNATTACHED, *driverless("why-driver-indexed")),
        words=f"needs the CSI driver {ABSENT}, which",
    ),
    "volume-one-pod": Story("volume-one-pod", raw=MOUNTED, submitted=False, beside=(
        volume("why-one-pod", "ReadWriteOncePod", **HERE), claim(spec={**ONE_POD, "volumeName": "why-one-pod"}),
    )),
    "image": Story("image", {"image": NO_IMAGE}),
    "secret": Story("secret", {"secrets": ["no-such-secret"]}),
    "config-map": Story("configmap", raw=mounting(configMap={"name": "no-such-map"})),
    "key": Story("config", beside=(named("Secret", stringData={"a": "b"}),), raw=in_container(
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "more", "key": "other"}}}]
    )),
    "mount": Story(
        "mount", raw=mounting(hostPath={"path": "/no/such/file", "type": "File"}), labels=PRIVILEGED
    ),
    "container": Story("container", raw=in_container(
        securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "no/such.json"}}
    )),
    "sandbox": Story("sandbox", beside=(NO_RUNTIME,), raw=changed(runtimeClassName="why-no-runtime")),
    "evicted": Story("evicted", {"command": FILLS, "max_retries": 0}, "indexed", raw=mounting(
        emptyDir={"sizeLimit": "1Mi"}
    )),
    "exit-code": Story("failed", {"command": ["sh", "-c", "echo last words; exit 7"]}, words="exit code 7"),
    "exit-code-indexed": Story("failed", {"command": ["sh", "-c", "exit 7"], "max_retries": 0}, backend="indexed"),
    "memory": Story(
        "memory", {"command": ["python3", "-c", "a = bytearray(2**30)"], "max_retries": 0, "workers": 0},
        raw=in_container(resources={"requests": SMALL, "limits": {"memory": "64Mi"}}),
    ),
    "deadline": Story("deadline", {"deadline_s": 5, "max_retries": 0}, backend="indexed"),
    "crash": Story("crash", {"command": ["sh", "-c", "exit 3"]}, backend="indexed", raw=crashing),
    "rendezvous": Story(
        "rendezvous", {"command": ["sh", "-c", LATE], "max_retries": 99}, raw=changed(restartPolicy="OnFailure"),
        words="does not run: rendezvous-worker-0 did not join the others within",
    ),
    "rendezvous-indexed": Story("rendezvous", {"command": ["sh", "-c", LATE]}, "indexed", raw=crashing),
    "stuck": Story("stuck", {"command": ["sh", "-c", HANGS + TOGETHER]}, words="a.py:4, in <module>: time.sleep(900)"),
    "stuck-apart": Story(
        "stuck", {"command": ["sh", "-c", PREPARES + TOGETHER]}, "indexed",
        words="the first one reports when the other has, before joining",
    ),
    "slow": Story(
        "slow", {"command": ["sh", "-c", SLOW + TOGETHER]},
        words="slow is slow: rank 1 (slow-worker-0) is behind the others by 0.",
    ),
    "host-port": Story(
        "host-port", ON_NODE_1 | {"workers": 0}, "indexed", (holder({"ports": PORTS}, nodeName="node-1"),),
        in_container(ports=PORTS), labels=PRIVILEGED,
    ),
    "scheduler-name": Story(
        "scheduler-name", backend="indexed", raw=changed(schedulerName="nobody"),
        words="does not start: no scheduler named nobody has looked at its pods",
    ),
    "suspended": Story("suspended", backend="indexed", raw=suspended),
    "volcano-by-hand": Story("selector", written=by_hand(VOLCANO_JOB, changed(nodeSelector={"disk": "ssd"}))),
    "indexed-by-hand": Story("pod-too-large", written=by_hand(
        INDEXED_JOB, in_container(resources={"requests": {"cpu": "9"}})
    )),
}  # fmt: skip


@contextlib.contextmanager
def between(make: tuple[str, ...], undo: tuple[str, ...], lab: Lab) -> Iterator[None]:
    """What kubectl does before, and what it does afterwards."""
    lab.kubectl(*make)
    try:
        yield
    finally:
        lab.kubectl(*undo)


TAINTED = partial(between, ("taint", "node", "node-1", "why=test:NoSchedule"), ("taint", "node", "node-1", "why-"))
CORDONED = partial(between, ("cordon", "node-1"), ("uncordon", "node-1"))
ON_SILENT = {"node_selector": {"kubernetes.io/hostname": "why-silent"}}
ROOM = {"cpu": "2", "memory": "2Gi", "pods": "10"}
SILENT = {  # a node that no kubelet has ever reported Ready
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "why-silent", "labels": {"kubernetes.io/hostname": "why-silent"}},
    "status": {
        "capacity": ROOM,
        "allocatable": ROOM,
        "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}],  # without, it may get pods
    },
}


@contextlib.contextmanager
def silent_node(lab: Lab) -> Iterator[None]:
    """A node whose kubelet does not answer."""
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(SILENT))
    try:
        yield
    finally:
        lab.kubectl("delete", "node", "why-silent")


@contextlib.contextmanager
def closed_queue(lab: Lab) -> Iterator[None]:
    """A queue that Volcano has closed."""
    name, kind = "why-closed", "queues.scheduling.volcano.sh"
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(queue(name)))
    try:
        body = command("scheduling.volcano.sh/v1beta1", "Queue", name, "CloseQueue")
        body["metadata"] = {"name": "close", "namespace": "default"}
        body["target"]["uid"] = lab.get(kind, name)["metadata"]["uid"]
        lab.kubectl("create", "-f", "-", stdin=json.dumps(body))
        lab.wait("it is closed", lambda: lab.get(kind, name)["status"]["state"] == "Closed")
        yield
    finally:
        lab.kubectl("delete", kind, name, "--wait=false", check=False)


def without(deployment: str, lab: Lab) -> AbstractContextManager[None]:
    """A component of Volcano is away."""
    return silent(lab, "volcano-system", deployment)


FULL = {"workers": 1, "resources": {"cpu": "1200m", "memory": "32Mi"}}  # a job on both nodes; no room for another


@contextlib.contextmanager
def full_nodes(lab: Lab) -> Iterator[None]:
    """Another job holds both nodes."""
    with story(lab, "holder", Story("", FULL)):
        phases = ["Running", "Running"]
        pods = ("pods", "-n", "why-holder")
        lab.wait("the holder runs", lambda: [pod["status"]["phase"] for pod in lab.get(*pods)] == phases)
        yield


ONE_BY_ONE: dict[str, Story] = {
    "taint-volcano": Story("taint", ON_NODE_1, around=TAINTED),
    "taint-indexed": Story("taint", ON_NODE_1, "indexed", around=TAINTED),
    "cordoned-volcano": Story("node-cordoned", ON_NODE_1, around=CORDONED),
    "cordoned-indexed": Story("node-cordoned", ON_NODE_1, "indexed", around=CORDONED),
    "silent-volcano": Story("node-not-ready", ON_SILENT, around=silent_node),
    "silent-indexed": Story("node-not-ready", ON_SILENT, "indexed", around=silent_node),
    "closed": Story("queue-closed", {"queue": "why-closed"}, submitted=False, around=closed_queue),
    "controller": Story("controller", around=partial(without, "volcano-controllers")),
    "scheduler": Story("scheduler", around=partial(without, "volcano-scheduler")),
    "webhook": Story("webhook", submitted=False, around=partial(without, "volcano-admission")),
    "waiter": Story("short", FULL, around=full_nodes),
}
