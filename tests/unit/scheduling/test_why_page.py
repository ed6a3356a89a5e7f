"""docs/troubleshooting.md shows what why prints, as far as no lab is needed; tests/cluster compares the rest."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.failure import LastWords
from gangplank.cluster.pace import behind
from gangplank.cluster.ranks import idle, meeting
from gangplank.scheduling.cause import Cause
from gangplank.scheduling.demand import demand
from gangplank.scheduling.why import Failure, Situation, diagnose
from tests.support.teams_live import ROOT
from tests.support.why_causes import ONE_BY_ONE, STORIES
from tests.support.why_page import PAGE, alike, shown
from tests.support.why_stories import (
    APART,
    HARD,
    IMAGE,
    Story,
    changed,
    in_container,
    manifests,
    mounting,
    suspended,
)  # fmt: skip
from tests.unit.scheduling.states import cluster, node, pod, queue

Json = dict[str, Any]
ON_NODE_1 = {"node_selector": {"kubernetes.io/hostname": "node-1"}}
PORTS = [{"containerPort": 18080, "hostPort": 18080}]
HALF = {"resources": {"cpu": "1200m", "memory": "32Mi"}}
NODE_0, NODE_1 = (node(f"node-{number}", cpu="1800m") for number in (0, 1))
NO_POD = "deployment volcano-system/{} has no ready pod"


def holder(where: str, cpu: str) -> Json:
    item = pod(f"holder-{where}", where, cpu=cpu)
    item["spec"]["containers"][0]["ports"] = PORTS if cpu == "10m" else []
    return item


def begun(name: str, reason: str, message: str = "") -> tuple[Json, ...]:
    """The master of a story whose container waits, and what its kubelet says in an event."""
    item = pod(f"{name}-master-0", "node-0")
    image = "gangplank.dev/no-such-image:1" if name == "image" else IMAGE
    container = {"name": "m", "image": image, "state": {"waiting": {"reason": reason, "message": message}}}
    item["status"] = {"phase": "Pending", "containerStatuses": [container]}
    return (item, {**item, "metadata": {**item["metadata"], "name": f"{name}-worker-0", "uid": "other"}})


def failed_mount() -> Json:
    words = 'MountVolume.SetUp failed for volume "more" : hostPath type check failed: /no/such/file is not a file'
    about = {"kind": "Pod", "uid": "mount-master-0"}
    return {"type": "Warning", "reason": "FailedMount", "message": words, "involvedObject": about}


def elsewhere() -> Json:
    words = 'Multi-Attach error for volume "why-attached"  Volume is already used by pod(s) holder'
    about = {"kind": "Pod", "uid": "volume-elsewhere-master-0"}
    return {"type": "Warning", "reason": "FailedAttachVolume", "message": words, "involvedObject": about}


def unplaced(name: str, rule: str) -> tuple[Json, ...]:
    """A pod on each node, and one that the scheduler has refused."""
    item = {**pod(f"{name}-2-x1x1x", ""), "spec": {"containers": []}}
    condition = {"type": "PodScheduled", "status": "False", "message": f"2 node(s) didn't match pod {rule}"}
    refused = {**item, "status": {"phase": "Pending", "conditions": [condition]}}
    return (*(pod(f"{name}-{rank}-x1x1x", f"node-{rank}") for rank in range(2)), refused)


def unlooked() -> tuple[Json, ...]:
    """A pod that nobody has tried to place."""
    return ({**pod("ignored", ""), "spec": {"containers": []}, "status": {"phase": "Pending"}},)


STUCK = "gangplank: rank {}: no step and no exchange for 5 s; it is at a.py:{}"
HANG = idle({
    "stuck-master-0": [STUCK.format(0, "5, in <module>: dist.all_reduce(torch.ones(1))")],
    "stuck-worker-0": [STUCK.format(1, "4, in <module>: time.sleep(900)")],
}, 2)  # fmt: skip
RUNNING = tuple(
    {**pod(f"stuck-{name}-0", "node-0"), "status": {"phase": "Running"}} for name in ("master", "worker")
)  # fmt: skip
WORDS = 'Internal error occurred: failed calling webhook "mutatejob.volcano.sh": failed to call webhook'
REFUSAL = Cause("webhook", "a webhook does not answer", (WORDS,), "check that the webhook's pods run")
TAINTED = {**NODE_1, "spec": {"taints": [{"key": "why", "value": "test", "effect": "NoSchedule"}]}}
CORDONED = {**NODE_1, "spec": {"unschedulable": True}}
MOUNT = {"volumes": [{"claim": "data", "mount": "/data", "on": "all", "access": "ReadWriteMany"}]}
UNBOUND = {
    "metadata": {"name": "data"}, "status": {"phase": "Pending"},
    "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "no-such-class"},
}  # fmt: skip
BOUND = {**UNBOUND, "status": {"phase": "Bound"}, "spec": {"accessModes": ["ReadWriteMany"], "volumeName": "v"}}
DRIVERLESS = {"metadata": {"name": "v"}, "spec": {"csi": {"driver": "absent.gangplank.dev"}}}
ADMISSION = (
    'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true), hostPort (container "trainer" uses '
    "hostPort 23456)"
)
LATE = "torch.distributed.DistStoreError: Timed out after 16 seconds waiting for clients. 1/2 clients joined."
PACE = "gangplank: rank {}: 75 steps in 30.000 s: data {:.3f} s, compute 0.000 s, exchange {:.3f} s"


def room(**fields: Any) -> Any:
    """A cluster with two nodes, and what else a case needs."""
    return cluster(NODE_0, NODE_1, **fields)


def of_namespace(used: Json | None = None, **spec: Any) -> Json:
    """The quota or limits of a namespace."""
    return {"metadata": {"name": "more"}, "spec": spec, "status": {"used": used}}


def needing(name: str, node: str = "node-0") -> tuple[Json, ...]:
    """The pods of a story as they wait for what does not exist, on their node if they have one."""
    job = manifests(name, CASES[name][0])[-1]
    return tuple(
        {**one, "metadata": {**one["metadata"], "uid": one["metadata"]["name"]},
         "spec": {**one["spec"], "nodeName": node}, "status": {"phase": "Pending"}}
        for one in BACKENDS["volcano"].objects(job) if one["kind"] == "Pod"
    )  # fmt: skip


WAITING = {"needing": "node-0", "unplaced": ""}


def killed() -> tuple[Json, ...]:
    """A pod that used more than its limit."""
    item = pod("memory-master-0", "node-0")
    item["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
    ends = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    return ({**item, "status": {"phase": "Failed", "containerStatuses": [{"name": "a", "state": ends}]}},)


def crashing() -> tuple[Json, ...]:
    """A master that gives up again and again, and a worker that runs."""
    waits, ends = {"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {"exitCode": 1}}
    state = {"name": "a", "state": waits, "lastState": ends}
    return tuple(
        {**pod(f"rendezvous-{name}-0", "node-0"), "status": {"phase": "Running", "containerStatuses": states}}
        for name, states in (("master", [state]), ("worker", []))
    )


def ended(name: str, **status: Any) -> tuple[Json, ...]:
    """The first pod of an Indexed Job."""
    return ({**pod(f"{name}-0-abcde", "node-0"), "status": status},)


AGAIN: Json = {
    "name": "a", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"reason": "Error", "exitCode": 3}},
}  # fmt: skip
NO_SANDBOX: Json = {
    "type": "Warning", "reason": "FailedCreatePodSandBox", "message": "Failed to create pod sandbox: no runtime",
    "involvedObject": {"kind": "Pod", "uid": "sandbox-master-0"},
}  # fmt: skip
NO_DEVICES: Json = {
    "type": "Warning", "reason": "FailedPrepareDynamicResources", "message": "DRA driver a is not registered",
    "involvedObject": {"kind": "Pod", "uid": "device-master-0"},
}  # fmt: skip
CLAIMED = mounting(persistentVolumeClaim={"claimName": "data"})
HOLDER = pod("holder", "node-0", namespace="why-in-use")
HOLDER["spec"]["volumes"] = [{"name": "more", "persistentVolumeClaim": {"claimName": "data"}}]
ONE_POD = {**BOUND, "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "v"}}
ATTACHED = {"metadata": {"name": "v"}, "spec": {"csi": {"driver": "attached.gangplank.dev"}}}
FULL = tuple(
    {"metadata": {"name": f"node-{number}"},
     "spec": {"drivers": [{"name": "attached.gangplank.dev", "allocatable": {"count": 0}}]}}
    for number in (0, 1)
)  # fmt: skip
CRITICAL = tuple({"metadata": {"name": f"system-{of}-critical"}, "value": 2 * 10**9} for of in ("cluster", "node"))
NOWHERE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "no-such-label", "operator": "Exists"}]}]}
TERMINATING = {**UNBOUND, "metadata": {"name": "data", "deletionTimestamp": "2026-11-24T12:00:00Z"}}


def last_words(name: str, *lines: str) -> LastWords:
    words = LastWords(name)
    for line in lines:
        words.take(line)
    return words


CASES: dict[str, tuple[Story, Json]] = {
    "taint-volcano": (Story("", ON_NODE_1), {"state": cluster(NODE_0, TAINTED)}),
    "cordoned-volcano": (Story("", ON_NODE_1), {"state": cluster(NODE_0, CORDONED)}),
    "host-port": (
        Story("", ON_NODE_1 | {"workers": 0}, "indexed", raw=in_container(ports=PORTS)),
        {"state": cluster(NODE_0, NODE_1, pods=(holder("node-1", "10m"),))},
    ),
    "waiter": (
        Story("", HALF),
        {"state": cluster(NODE_0, NODE_1, pods=(holder("node-0", "1200m"), holder("node-1", "1200m")))},
    ),
    "controller": (Story(""), {
        "answered": False, "controller": "the controller of Jobs",
        "unavailable": (NO_POD.format("volcano-controllers"),),
    }),
    "scheduler": (Story(""), {"group": {"status": {}}, "unavailable": (NO_POD.format("volcano-scheduler"),)}),
    "scheduler-name": (Story("", backend="indexed", raw=changed(schedulerName="nobody")), {
        "age_s": 61.0, "pods": unlooked(), "state": room(schedulers=frozenset({"default-scheduler"})),
    }),
    "gang-lost": (Story(""), {"pods": "unplaced", "lost_group": "gang-lost-4f6c"}),
    "webhook": (Story(""), {"live": False, "refusals": (REFUSAL,)}),
    "image": (Story(""), {"pods": begun("image", "ErrImagePull", "no host")}),
    "mount": (Story(""), {"pods": begun("mount", "ContainerCreating"), "events": (failed_mount(),)}),
    "stuck": (Story(""), {"pods": RUNNING, "ranks": HANG}),
    "quota": (Story(""), {
        "state": room(quotas=(of_namespace(hard={"requests.cpu": "15m"}, used={"requests.cpu": "0"}),)),
    }),
    "limit-range": (Story(""), {
        "state": room(limits=(of_namespace(limits=[{"type": "Container", "default": {"cpu": "5m"}}]),)),
    }),
    "queue-over": (Story("", {"queue": "why-cap"}), {
        "state": room(queues=(queue("root"), queue("default"), queue("why-cap", capability={"cpu": "15m"}))),
    }),
    "pod-security": (Story(""), {"refusals": (Cause(
        "refused", "the API server refuses its pods: " + ADMISSION, (), "correct what this line names",
    ),)}),
    "too-small": (Story("", {"workers": 60, "resources": {"cpu": "100m", "memory": "32Mi"}}), {}),
    "too-large": (Story("", {"resources": {"cpu": "9", "memory": "32Mi"}}), {}),
    "no-device": (Story("", {"resources": {"cpu": "10m", "memory": "32Mi", "gpus": 1}}), {}),
    "selector": (Story("", {"node_selector": {"disk": "ssd"}}), {}),
    "affinity": (Story("", raw=changed(affinity={"nodeAffinity": {HARD: NOWHERE}})), {}),
    "class": (Story("", backend="indexed", raw=changed(priorityClassName="no-such-class")), {
        "live": False, "state": room(priorities=CRITICAL),
    }),
    "in-use": (Story("", {"workers": 0}, raw=CLAIMED), {
        "live": False, "state": room(claims=(ONE_POD,), pods=(HOLDER,)),
    }),
    "attach-limit": (Story("", {"workers": 0}, "indexed", raw=CLAIMED), {"state": room(
        claims=(BOUND,), volumes=(ATTACHED,), csi_nodes=FULL, ignored=frozenset(),
    )}),
    "used-up-volcano": (Story(""), {
        "ended": "failed", "failure": Failure("used-up-volcano-master-0", "Error, exit code 7", ("last words",)),
        "retries": "it failed 2 times, its `max_retries` are used up",
    }),
    "volume-missing": (Story("", MOUNT), {}),
    "volume-unbound": (Story("", MOUNT), {"state": room(
        claims=(UNBOUND,), classes=tuple({"metadata": {"name": f"local-{kind}"}} for kind in ("path", "shared")),
    )}),
    "volume-driver": (Story("", MOUNT), {"state": room(
        claims=(BOUND,), volumes=(DRIVERLESS,), csi_nodes=(), ignored=frozenset(),
    )}),
    "spread-indexed": (Story("", {"workers": 3}, "indexed", raw=changed(topologySpreadConstraints=[
        {"whenUnsatisfiable": "DoNotSchedule"},
    ])), {"pods": unplaced("spread-indexed", "topology spread constraints")}),
    "apart-indexed": (Story("", {"workers": 3}, "indexed", raw=APART.raw), {
        "pods": unplaced("apart-indexed", "anti-affinity rules"),
    }),
    "volume-elsewhere": (Story("", {"workers": 0}), {
        "pods": begun("volume-elsewhere", "ContainerCreating")[:1], "events": (elsewhere(),),
    }),
    "node-lost": (Story("", ON_NODE_1), {
        "pods": tuple(pod(f"node-lost-{name}-0", "node-1") for name in ("master", "worker")),
        "state": cluster(NODE_0, {**NODE_1, "status": {"conditions": []}}),
    }),
    "secret": (Story("", {"secrets": ["no-such-secret"]}), {
        "pods": "needing", "absent": {("Secret", "no-such-secret"): True},
    }),
    "config-map": (Story("", raw=mounting(configMap={"name": "no-such-map"})), {
        "pods": "needing", "absent": {("ConfigMap", "no-such-map"): True},
    }),
    "queue-missing": (Story("", {"queue": "why-nowhere"}), {"live": False}),
    "closed": (Story("", {"queue": "why-closed"}), {"live": False, "state": room(
        queues=(queue("root"), queue("default"), queue("why-closed", state="Closed")),
    )}),
    "volume-terminating": (Story("", MOUNT), {"state": room(claims=(TERMINATING,))}),
    "key": (Story(""), {"pods": begun(
        "key", "CreateContainerConfigError", "couldn't find key other in Secret why-key/more",
    )}),
    "sandbox": (Story(""), {"pods": begun("sandbox", "ContainerCreating"), "events": (NO_SANDBOX,)}),
    "device": (Story("", {"workers": 0}), {
        "pods": begun("device", "ContainerCreating")[:1], "events": (NO_DEVICES,),
    }),
    "crash": (Story("", {"workers": 0}, "indexed"), {
        "pods": ended("crash", phase="Running", containerStatuses=[AGAIN]),
    }),
    "evicted": (Story("", {"workers": 0}, "indexed"), {"ended": "failed", "pods": ended(
        "evicted", phase="Failed", reason="Evicted",
        message='Usage of EmptyDir volume "more" exceeds the limit "1Mi".',
    )}),
    "suspended": (Story("", backend="indexed", raw=suspended), {"suspended": "it is suspended (spec.suspend is true)"}),
    "memory": (Story("", {"workers": 0}), {"ended": "failed", "pods": killed()}),
    "deadline": (Story("", backend="indexed"), {
        "ended": "failed", "pods": RUNNING, "reason": "Job was active longer than specified deadline",
    }),
    "rendezvous": (Story(""), {"pods": crashing(), "ranks": meeting([
        last_words("rendezvous-master-0", LATE), last_words("rendezvous-worker-0", "fetching"),
    ])}),
    "slow": (Story(""), {"pods": RUNNING, "ranks": behind({
        f"slow-{name}-0": 2 * [PACE.format(rank, *spent)]
        for rank, (name, spent) in enumerate((("master", (0.0, 30.0)), ("worker", (30.0, 0.0))))
    }, 2)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_page_shows_what_why_says(name: str) -> None:
    story, more = CASES[name]
    job = manifests(name, story)[-1]
    backend = BACKENDS[story.backend]
    wanted = demand(name, f"why-{name}", backend.objects(job), backend.queue(job).name)
    if isinstance(how := more.get("pods"), str):
        more = {**more, "pods": needing(name, WAITING[how])}
    now = {"demand": wanted, "state": cluster(NODE_0, NODE_1), "age_s": 12.0, "phase": "Running", **more}
    assert alike(diagnose(Situation(name, **now)).text() + "\n") == alike(shown()[name])


def test_each_block_of_the_page_is_compared_here() -> None:
    assert set(shown()) == set(CASES)


def test_each_block_of_the_page_is_compared_with_an_answer_of_the_lab() -> None:
    """By a story of its name, or by a test that takes it."""
    texts = [file.read_text() for file in (ROOT / "tests/cluster").glob("test_*.py")]
    taken = {name for text in texts for name in re.findall(r'\bis_shown\("([^"]+)", ', text)}
    assert taken <= set(shown()) <= {*STORIES, *ONE_BY_ONE, *taken}


def test_no_name_is_shown_twice() -> None:
    assert len(shown()) == sum(line.startswith("<!-- why: ") for line in PAGE.read_text().splitlines())
