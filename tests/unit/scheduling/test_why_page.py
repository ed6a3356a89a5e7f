"""docs/troubleshooting.md shows what why prints, as far as no lab is needed; tests/cluster compares the rest."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.ranks import idle
from gangplank.scheduling.cause import Cause
from gangplank.scheduling.demand import demand
from gangplank.scheduling.why import Situation, diagnose
from tests.support.why_page import PAGE, alike, shown
from tests.support.why_stories import IMAGE, Story, in_container, manifests
from tests.unit.scheduling.states import cluster, node, pod

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
    "webhook": (Story(""), {"live": False, "refusals": (REFUSAL,)}),
    "image": (Story(""), {"pods": begun("image", "ErrImagePull", "no host")}),
    "mount": (Story(""), {"pods": begun("mount", "ContainerCreating"), "events": (failed_mount(),)}),
    "stuck": (Story(""), {"pods": RUNNING, "ranks": HANG}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_page_shows_what_why_says(name: str) -> None:
    story, more = CASES[name]
    job = manifests(name, story)[-1]
    backend = BACKENDS[story.backend]
    wanted = demand(name, f"why-{name}", backend.objects(job), backend.queue(job).name)
    now = {"demand": wanted, "state": cluster(NODE_0, NODE_1), "age_s": 12.0, "phase": "Running", **more}
    assert alike(diagnose(Situation(name, **now)).text() + "\n") == alike(shown()[name])


def test_no_name_is_shown_twice() -> None:
    assert len(shown()) == sum(line.startswith("<!-- why: ") for line in PAGE.read_text().splitlines())
