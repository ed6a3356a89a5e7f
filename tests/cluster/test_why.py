"""`gangplank why` on a live cluster: causes made real, each named by the first line and no other; nobody else blamed.

Jobs whose causes do not disturb one another are submitted together. The others, which change a node or a component,
come one after the other.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.pace import is_pace, window
from gangplank.errors import KubeError
from tests.cluster.faults import program
from tests.support.raw_jobs import INDEXED_JOB, VOLCANO_JOB, by_hand
from tests.support.teams_live import ROOT, gangplank, until
from tests.support.teams_ways import command
from tests.support.why_page import is_shown, shown
from tests.support.why_stories import (
    APART,
    JOBS,
    LIMIT_S,
    SMALL,
    Story,
    affine,
    asked,
    changed,
    claim,
    crashing,
    healthy,
    holder,
    in_container,
    kubeconfig_of_nobody,
    manifests,
    mounting,
    named,
    named_after_s,
    named_cause,
    near,
    queue,
    story,
    submit,
    suspended,
    under_way,
    volume,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gangplank.cluster.client import Kube
    from gangplank.scheduling.why import Diagnosis
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
MOUNT = {"volumes": [{"claim": "data", "mount": "/data", "on": "all", "access": "ReadWriteMany"}]}
MISSING_CLASS = claim(spec={"storageClassName": "no-such-class"})
HERE = {"hostPath": {"path": "/tmp"}}
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


MOUNTING = {"volumeMounts": [{"name": "more", "mountPath": "/more"}]}  # in a container
DATA = {"volumes": [{"name": "more", "persistentVolumeClaim": {"claimName": "data"}}]}
MOUNTED = mounting(persistentVolumeClaim={"claimName": "data"})  # by the job
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
FILLS = ["sh", "-c", "head -c 16M /dev/zero > /more/zeros; sleep 900"]
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
TORCHRUN = (
    "exec python3 -m torch.distributed.run --nnodes=2 --node-rank=$RANK --master-addr=$MASTER_ADDR"
    " --master-port=$MASTER_PORT --rdzv-conf=timeout=15 /tmp/a.py"
)
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
EQUAL = TRAINS.replace("LATE", "True").replace("STEPS", "90")
DIGITS = TORCHRUN.replace("timeout=15", "timeout=300").replace(
    "/tmp/a.py", "/opt/gangplank/trainer/train.py --epochs 9999 --batch-size 128 --log-interval 0 --threads 1"
)


def throttled(manifest: Json) -> None:
    """The worker has a tenth of a CPU."""
    pod = manifest["spec"]["tasks"][1]["template"]["spec"]
    pod["containers"][0]["resources"] = {"requests": SMALL, "limits": {"cpu": "100m"}}


# Causes for which a scheduler has to try, in a namespace of their own alone
TRIED = (
    "too-small", "too-large", "too-large-indexed", "no-device", "selector", "affinity", "volume-missing",
    "spread", "spread-indexed", "apart", "apart-indexed", "together", "repelled",
)  # fmt: skip
GOAL_S = 5.0
REASON = r"(?m)^ *(\d+) s  waits: waits does not start because too few nodes have the label disk=ssd"
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
    "image": Story("image", {"image": "gangplank.dev/no-such-image:1"}),
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
    "stuck": Story("stuck", {"command": ["sh", "-c", HANGS + TORCHRUN]}, words="a.py:4, in <module>: time.sleep(900)"),
    "slow": Story(
        "slow", {"command": ["sh", "-c", SLOW + TORCHRUN]},
        words="slow is slow: rank 1 (slow-worker-0) is behind the others by 0.",
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


@pytest.fixture(scope="module")
def stories(lab: Lab, kubeconfig: str) -> Iterator[None]:  # noqa: ARG001  the site is installed before
    """All stories under way at once."""
    with under_way(lab, STORIES):
        yield


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("name", STORIES)
def test_the_first_line_names_the_cause_and_no_other(kube: Kube, name: str) -> None:
    story = STORIES[name]
    diagnosis = named_cause(kube, manifests(name, story)[-1], story.code, live=story.submitted)
    assert diagnosis.cause is not None
    assert diagnosis.cause.text in diagnosis.first_line
    assert story.words in diagnosis.first_line
    assert diagnosis.cause.fix


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("name", [name for name in shown() if name in STORIES])
def test_the_page_on_troubleshooting_shows_what_why_says(kube: Kube, name: str) -> None:
    """GANGPLANK_GOLDEN=write rewrites the page. The tests of causes that come alone compare theirs themselves."""
    story = STORIES[name]
    is_shown(name, named_cause(kube, manifests(name, story)[-1], story.code, live=story.submitted))


ON_NODE_1 = {"node_selector": {"kubernetes.io/hostname": "node-1"}}
ROOM = {"cpu": "2", "memory": "2Gi", "pods": "10"}
NODES = {
    "taint": ("taint", ("taint", "node", "node-1", "why=test:NoSchedule"), ("taint", "node", "node-1", "why-")),
    "cordoned": ("node-cordoned", ("cordon", "node-1"), ("uncordon", "node-1")),
}


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("backend", ["volcano", "indexed"])
def test_a_node_that_takes_nobody_is_named(lab: Lab, kube: Kube, name: str, backend: str) -> None:
    code, make, undo = NODES[name]
    try:
        lab.kubectl(*make)
        with story(lab, f"{name}-{backend}", Story(code, ON_NODE_1, backend)) as job:
            diagnosis = named_cause(kube, job, code)
            if backend == "volcano":
                is_shown(f"{name}-{backend}", diagnosis)
    finally:
        lab.kubectl(*undo)


SILENT = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "why-silent", "labels": {"kubernetes.io/hostname": "why-silent"}},
    "status": {
        "capacity": ROOM,
        "allocatable": ROOM,
        "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}],  # without, it may get pods
    },
}


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("backend", ["volcano", "indexed"])
def test_a_node_whose_kubelet_does_not_answer_is_named(lab: Lab, kube: Kube, backend: str) -> None:
    """A node that no kubelet has ever reported Ready."""
    there = {"node_selector": {"kubernetes.io/hostname": "why-silent"}}
    with story(lab, f"silent-{backend}", Story("node-not-ready", there, backend, (SILENT,))) as job:
        named_cause(kube, job, "node-not-ready")
    lab.wait("the node is gone", lambda: "why-silent" not in {one["metadata"]["name"] for one in lab.get("nodes")})


@pytest.mark.usefixtures("kubeconfig")
def test_a_queue_that_is_closed_is_named(lab: Lab, kube: Kube) -> None:
    """Volcano's webhook refuses a job of such a queue, so it is asked about before it is submitted."""
    one = Story("queue-closed", {"queue": "why-closed"}, beside=(queue("why-closed"),), submitted=False)
    with story(lab, "closed", one) as job:
        body = command("scheduling.volcano.sh/v1beta1", "Queue", "why-closed", "CloseQueue")
        body["metadata"] = {"name": "close"}
        body["target"]["uid"] = lab.get("queue.scheduling.volcano.sh", "why-closed")["metadata"]["uid"]
        lab.kubectl("create", "-n", "why-closed", "-f", "-", stdin=json.dumps(body))
        lab.wait("it is closed", lambda: closed(lab, "why-closed"))
        diagnosis = named_cause(kube, job, "queue-closed", live=False)
        assert diagnosis.first_line == "closed would not start because its queue why-closed is Closed"
        is_shown("closed", diagnosis)


def code_of(diagnosis: Diagnosis) -> str:
    """The code of its cause, "" if it has none."""
    return diagnosis.cause.code if diagnosis.cause else ""


def closed(lab: Lab, name: str) -> bool:
    """Whether Volcano has closed a queue."""
    return bool(lab.get("queue.scheduling.volcano.sh", name)["status"]["state"] == "Closed")


@pytest.mark.usefixtures("kubeconfig")
def test_a_pod_that_its_node_refuses_is_named(lab: Lab, kube: Kube) -> None:
    """It skips the scheduler, and asks for more than its node has."""
    raw = in_container(resources={"requests": {"cpu": "9"}})

    def placed(manifest: Json) -> None:
        raw(manifest)
        changed(nodeName="node-1")(manifest)

    with story(lab, "refused-there", Story("device", {"max_retries": 0}, "indexed", raw=placed)) as job:
        lab.wait("its node has refused it", lambda: any(
            pod["status"].get("reason") == "OutOfcpu" for pod in lab.get("pods", "-n", "why-refused-there")
        ))  # fmt: skip
        assert "OutOfcpu" in named_cause(kube, job, "device").first_line


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("backend", ["volcano", "indexed"])
def test_that_the_retries_of_a_job_are_used_up_is_said(lab: Lab, kube: Kube, backend: str) -> None:
    """An Indexed Job that fails removes its pods, and with them the exit code."""
    one = Story("failed", {"command": ["sh", "-c", "exit 7"], "max_retries": 1}, backend)
    with story(lab, f"used-up-{backend}", one) as job:
        lab.wait("it has failed", lambda: code_of(asked(kube, job)) == "failed", LIMIT_S)
        line = asked(kube, job).first_line
        assert line.endswith("; it failed 2 times, its `max_retries` are used up")
        assert backend == "indexed" or " failed first: Error, exit code 7; " in line


@pytest.mark.usefixtures("kubeconfig")
def test_a_claim_of_one_pod_that_another_one_mounts_is_named(lab: Lab, kube: Kube) -> None:
    once = {"accessModes": ["ReadWriteOncePod"], "storageClassName": ""}
    bound = claim(spec={**once, "volumeName": "why-once"})
    beside = (volume("why-once", "ReadWriteOncePod", **HERE), bound, holder(MOUNTING, **DATA))
    one = Story("volume-in-use", {"workers": 0}, beside=beside, raw=MOUNTED, submitted=False)
    with story(lab, "in-use", one) as job:
        place = ("pod", "holder", "-n", "why-in-use")
        lab.wait("the holder runs", lambda: lab.get(*place)["status"]["phase"] == "Running")
        diagnosis = named_cause(kube, job, "volume-in-use", live=False)
        assert diagnosis.first_line.startswith("in-use waits because its volume claim data is ReadWriteOncePod")


# Of a driver that nobody runs: the test says in its place that the volume is attached
DRIVER = "attached.gangplank.dev"
ATTACHED = volume("why-attached", "ReadWriteOnce", csi={"driver": DRIVER, "volumeHandle": "why-attached"})
BOUND_ONCE = claim(spec={"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "why-attached"})


def attachments(lab: Lab) -> dict[str, str]:
    """The names of the volume's attachments, by node. Kubernetes' controller makes and removes them."""
    every = [one for one in lab.get("volumeattachments")
             if one["spec"]["source"].get("persistentVolumeName") == "why-attached"]  # fmt: skip
    return {one["spec"]["nodeName"]: one["metadata"]["name"] for one in every}


def attach(lab: Lab, node: str) -> None:
    """Do as the attacher of a driver does."""
    name = lab.wait(f"the volume is to be attached to {node}", lambda: attachments(lab).get(node))
    words = ("--subresource=status", "--type=merge", "-p", '{"status":{"attached":true}}')
    lab.kubectl("patch", "volumeattachment", name, *words)


@pytest.fixture
def registered(lab: Lab, kubeconfig: str) -> Iterator[None]:  # noqa: ARG001  the fixture: the cluster has Volcano
    """The volume's driver on both nodes: without it Volcano counts no place for such a volume on any."""
    others = {node: [one for one in lab.get("csinode", node)["spec"]["drivers"] or () if one["name"] != DRIVER]
              for node in ("node-0", "node-1")}  # fmt: skip

    def have(*drivers: str) -> None:
        for node, before in others.items():
            every = [*before, *({"name": name, "nodeID": node, "topologyKeys": []} for name in drivers)]
            lab.kubectl("patch", "csinode", node, "--type=merge", "-p", json.dumps({"spec": {"drivers": every}}))

    have(DRIVER)
    yield
    have()


@pytest.mark.usefixtures("registered")
def test_a_volume_of_one_node_that_another_one_has_is_named_until_it_is_detached(lab: Lab, kube: Kube) -> None:
    beside = (ATTACHED, BOUND_ONCE, holder(MOUNTING, **DATA, nodeName="node-0"))
    one = Story("volume-elsewhere", ON_NODE_1 | {"workers": 0}, beside=beside, raw=MOUNTED, submitted=False)
    with story(lab, "volume-elsewhere", one) as job:
        attach(lab, "node-0")
        submit(lab, "volume-elsewhere", one)
        diagnosis = named_cause(kube, job, one.code)
        assert "volume-elsewhere-master-0 is attached to another node" in diagnosis.first_line
        assert "wait until holder has ended" in diagnosis.text()
        is_shown("volume-elsewhere", diagnosis)
        lab.kubectl("delete", "pod", "holder", "-n", "why-volume-elsewhere")
        attach(lab, "node-1")
        # no node can mount it without its driver
        lab.wait("the driver is named", lambda: code_of(asked(kube, job)) == "volume-driver")
    lab.wait("the volume is detached", lambda: not attachments(lab))


@pytest.mark.usefixtures("kubeconfig")
def test_a_driver_that_the_kubelet_lacks_is_named_once_kubernetes_scheduler_has_bound_the_pods(
    lab: Lab, kube: Kube
) -> None:
    one = Story("volume-driver", MOUNT, "indexed", beside=(UNATTACHED, *driverless("why-bound")))
    with story(lab, "driver-bound", one) as job:
        text = f"needs the CSI driver {ABSENT}, which does not run on its node node-"
        lab.wait("the kubelet says so", lambda: text in named_cause(kube, job, one.code).first_line)


@pytest.mark.usefixtures("kubeconfig")
def test_a_provisioner_that_volcano_does_not_know_for_one_without_csi_is_named(lab: Lab, kube: Kube) -> None:
    """The site's role has not run since its class exists."""
    late: Json = {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "why-late"},
        "provisioner": "nfs.gangplank.dev/external", "volumeBindingMode": "WaitForFirstConsumer",
    }  # fmt: skip
    one = Story("volume-driver", MOUNT, beside=(late, claim(spec={"storageClassName": "why-late"})))
    with story(lab, "provisioner", one) as job:
        diagnosis = named_cause(kube, job, one.code)
        assert diagnosis.proven
        assert "volcano_ignored_provisioners" in diagnosis.text()


@pytest.mark.usefixtures("kubeconfig")
def test_a_host_port_that_another_pod_has_is_named(lab: Lab, kube: Kube) -> None:
    ports = [{"containerPort": 18080, "hostPort": 18080}]
    few, beside = ON_NODE_1 | {"workers": 0}, (holder({"ports": ports}, nodeName="node-1"),)
    one = Story("host-port", few, "indexed", beside, in_container(ports=ports), labels=PRIVILEGED)
    with story(lab, "host-port", one) as job:
        is_shown("host-port", named_cause(kube, job, "host-port"))


COMPONENTS = {"controller": "volcano-controllers", "scheduler": "volcano-scheduler", "webhook": "volcano-admission"}


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("code", COMPONENTS)
def test_a_component_that_does_not_answer_is_named(lab: Lab, kube: Kube, code: str) -> None:
    deployment, space = COMPONENTS[code], ("-n", "volcano-system")
    lab.kubectl("scale", "deployment", deployment, "--replicas=0", *space)
    try:
        lab.kubectl("wait", "pod", "-l", f"app={deployment.replace('controllers', 'controller')}", "--for=delete",
                    "--timeout=60s", *space)  # fmt: skip
        one = Story(code, submitted=code != "webhook")
        with story(lab, code, one) as job:
            diagnosis = named_cause(kube, job, code, live=one.submitted)
            if code != "webhook":
                assert f"deployment volcano-system/{deployment} has no ready pod" in diagnosis.text()
            is_shown(code, diagnosis)
    finally:
        lab.kubectl("scale", "deployment", deployment, "--replicas=1", *space)
        lab.kubectl("rollout", "status", "deployment", deployment, "--timeout=90s", *space)
        kube.accepts(manifests("after", Story(""))[-1] | {"metadata": {"name": "after", "namespace": "default"}}, 90)


@pytest.mark.usefixtures("kubeconfig")
def test_a_job_that_waits_for_others_waits_and_starts_when_they_end(lab: Lab, kube: Kube) -> None:
    full = {"workers": 1, "resources": {"cpu": "1200m", "memory": "32Mi"}}
    with story(lab, "holder", Story("", full)) as holder:
        lab.wait("the holder runs", lambda: "2 of 2 pods run" in asked(kube, holder).first_line)
        assert asked(kube, holder).cause is None
        with story(lab, "waiter", Story("short", full)) as waiter:
            diagnosis = named_cause(kube, waiter, "short")
            assert diagnosis.first_line.startswith("waiter waits because 2 of its 2 pods have no place")
            assert "holder" not in diagnosis.text()
            is_shown("waiter", diagnosis)
            lab.kubectl("delete", "jobs.batch.volcano.sh", "holder", "-n", "why-holder")
            lab.wait("the waiter runs", lambda: "2 of 2 pods run" in asked(kube, waiter).first_line)


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("backend", ["volcano", "indexed"])
def test_a_healthy_job_is_blamed_at_no_moment(lab: Lab, kube: Kube, backend: str) -> None:
    healthy(lab, kube, backend)


@pytest.mark.usefixtures("kubeconfig")
def test_a_rank_of_the_trainer_that_a_cpu_limit_slows_down_is_named(lab: Lab, kube: Kube) -> None:
    with story(lab, "limited", Story("slow", {"command": ["sh", "-c", DIGITS]}, raw=throttled)) as job:
        diagnosis = named_cause(kube, job, "slow", limit_s=5 * LIMIT_S)
        assert "rank 1 (limited-worker-0) is behind the others by" in diagnosis.first_line
        assert ": compute takes it " in diagnosis.first_line
        assert diagnosis.cause
        assert "CPU limit" in diagnosis.cause.fix


@pytest.mark.usefixtures("kubeconfig")
def test_where_all_ranks_take_long_none_is_behind(lab: Lab, kube: Kube) -> None:
    one = Story("", {"command": ["sh", "-c", EQUAL + TORCHRUN]})
    with story(lab, "equal", one) as job:
        said: set[str] = set()
        until = time.monotonic() + 2 * LIMIT_S
        while "it is Complete" not in (diagnosis := asked(kube, job)).first_line and time.monotonic() < until:
            assert diagnosis.cause is None, diagnosis.text()
            for pod in kube.items("v1", "Pod", "why-equal") if "2 of 2 pods run" in diagnosis.first_line else ():
                said |= set(filter(is_pace, kube.log("why-equal", pod["metadata"]["name"])))
            time.sleep(1)
        assert "it is Complete" in diagnosis.first_line
        ranks = [one.rank for one in map(window, said) if one]
        assert min(ranks.count(0), ranks.count(1)) > 4, "too little was said to blame anybody"


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("name", TRIED)
def test_the_first_answer_after_the_scheduler_s_first_attempt_names_the_cause_and_none_before_another(
    request: pytest.FixtureRequest, lab: Lab, kube: Kube, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The goal is GOAL_S, of which nothing is asserted: others share the machine. Below 0 is before the attempt."""
    with story(lab, f"soon-{name}", STORIES[name]) as job:
        after_s = named_after_s(kube, job, STORIES[name].code)
    if after_s is not None:
        request.node.user_properties.append((f"why_named_after_s.{name}", round(after_s, 1)))
    with capsys.disabled():
        beyond = " (beyond the goal)" if after_s and after_s > GOAL_S else ""
        print(f"\n{name}: named " + ("; no attempt is noted" if after_s is None else f"after {after_s:.1f} s{beyond}"))


@pytest.mark.usefixtures("stories")
def test_the_command_says_the_same_as_text_and_as_json(kubeconfig: str) -> None:
    words = ("why", "selector", "-n", "why-selector")
    text, data = gangplank(*words, kubeconfig=kubeconfig), gangplank(*words, "-o", "json", kubeconfig=kubeconfig)
    assert (text.returncode, data.returncode) == (0, 0), text.stderr + data.stderr
    fields = json.loads(data.stdout)
    assert text.stdout.splitlines()[0] == fields["summary"]
    assert (fields["cause"], fields["proven"]) == ("selector", True)
    assert fields["summary"] == f"selector does not start because {fields['because']}"
    assert gangplank("fit", *words[1:], kubeconfig=kubeconfig).returncode == 5


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("command", ["why", "fit", "when"])
def test_an_account_without_any_rights_cannot_tell(
    lab: Lab, kubeconfig: str, tmp_path: Path, command: str
) -> None:
    nobody = kubeconfig_of_nobody(lab, kubeconfig, tmp_path, "why-selector")
    done = gangplank(command, "selector", "-n", "why-selector", kubeconfig=nobody)
    said = "selector: cannot tell: you may not read jobs in namespace why-selector\n"
    assert (done.returncode, done.stdout) == (6, said), done.stderr


def test_who_submits_a_job_and_waits_is_told_why(lab: Lab, kubeconfig: str, tmp_path: Path) -> None:
    """After 30 s if it does not start, and at its end if it fails; line by line, also behind a pipe or in a file."""
    told = tmp_path / "told"
    waits = Story("", {"node_selector": {"disk": "ssd"}}, submitted=False)
    fails = Story("", STORIES["exit-code"].change, submitted=False)
    with story(lab, "waits", waits) as waiting, story(lab, "fails", fails) as failing:
        for job in (waiting, failing):
            (tmp_path / job["metadata"]["name"]).write_text(json.dumps(job))
        words = [sys.executable, "-m", "gangplank", "submit", str(tmp_path / "waits"), "--wait"]
        with told.open("w") as file:
            follower = subprocess.Popen([*words, f"--kubeconfig={kubeconfig}"], cwd=ROOT, stdout=file)
        try:
            done = gangplank("submit", str(tmp_path / "fails"), "--wait", kubeconfig=kubeconfig)
            until(lambda: re.search(REASON, told.read_text()), told.read_text, 50)
        finally:
            follower.terminate()
            follower.wait(10)
    assert done.returncode == 1
    answer = re.search(r"^why: fails failed: (\S+) failed first: Error, exit code 7$", done.stderr, re.MULTILINE)
    assert answer, done.stderr
    assert f"{answer[1]} failed first (Error, exit code 7); its last lines:" in done.stderr
    assert "last words" in done.stderr
    after_s = re.search(REASON, told.read_text())
    assert after_s is not None
    assert 30 <= int(after_s[1]) < 45


@pytest.mark.usefixtures("stories")
def test_a_viewer_with_nothing_granted_is_told_so(kube: Kube) -> None:
    kube.api.set_default_header("Impersonate-User", "mallory")
    try:
        with pytest.raises(KubeError, match="forbidden"):
            asked(kube, manifests("selector", STORIES["selector"])[-1])
    finally:
        del kube.api.default_headers["Impersonate-User"]


@pytest.mark.usefixtures("kubeconfig")
def test_a_node_that_is_lost_under_a_job_is_named_until_it_is_back(lab: Lab, kube: Kube, kubeconfig: str) -> None:
    """Kubernetes waits for 50 s before it believes that. Its own tolerations leave the pods there for five minutes."""
    with story(lab, "node-lost", Story("node-lost", ON_NODE_1, raw=changed(tolerations=[]))) as job:
        lab.wait("the job runs", lambda: "2 of 2 pods run" in asked(kube, job).first_line)
        program(lab, "kubelet-node-1", runs=False)
        try:
            is_shown("node-lost", named_cause(kube, job, "node-lost"))
            for command in ("status", "metrics"):
                done = gangplank(command, kubeconfig=kubeconfig)
                assert done.returncode == 0, done.stderr
        finally:
            program(lab, "kubelet-node-1", runs=True)
        lab.wait("the job runs again", lambda: "2 of 2 pods run" in asked(kube, job).first_line)
    lab.kubectl("wait", "deployment", "--all", "-A", "--for=condition=Available", "--timeout=90s")
