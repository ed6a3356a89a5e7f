"""Gangs of eight pods on the GPUs of four nodes, beside jobs on parts of GPUs: all of a gang's GPUs or none.

One lab has NVIDIA's unchanged device plugin on a simulated driver: MIG splits the first GPU of each node into halves.
The other gives GPUs out by claim, and its driver publishes each as a whole and as two halves. What gives out the
devices and the kubelets are restarted meanwhile.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.backends.device_claims import RESOURCE
from gangplank.cluster import submit
from gangplank.jobs.parse import parse_job
from gangplank.k8s.plan import Plan
from tests.cluster.conftest import STATE
from tests.cluster.differential.live import Cluster, opened
from tests.cluster.test_device_parts import HALF, ON, WHOLE, device_classes, end, pods_of, run, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.conftest import Lab

NODES = ("node-0", "node-1", "node-2", "node-3")
GANG, EACH = 8, 3  # pods of the large gang, and the GPUs of each: two pods are on each node
PARTS = 4  # pods of a job on halves: there are twice as many halves for it
SPLIT = "cd /host/usr/lib64/nvml.d; echo 0 3g.40gb > mig; echo 0 3g.40gb >> mig"
# It does not end with 0 when its pod is evicted: Volcano would take the job for complete.
RUNS = "trap 'exit 143' TERM; while true; do sleep 1 & wait $!; done"


@dataclass(frozen=True)
class Way:
    """How a lab gives out GPUs."""

    whole: str  # the resource of a GPU
    half: str
    namespace: str  # of the pods that give them out
    label: str
    device: str  # what names it in the environment of a rank
    offered: Callable[[Lab], bool]  # whether all nodes offer all of theirs


def advertised(lab: Lab) -> bool:
    """Whether each node has seven GPUs, and the two halves of the eighth."""
    numbers = [node["status"]["allocatable"] for node in lab.get("nodes")]
    return [(each.get(GPU), each.get(MIG_HALF)) for each in numbers] == [("7", "2")] * len(NODES)


def slices(lab: Lab) -> dict[str, str]:
    """The identity of what each node has published, by node."""
    items = [item for item in lab.get("resourceslices") if item["spec"].get("devices")]
    return {item["spec"]["nodeName"]: item["metadata"]["uid"] for item in items}


GPU, MIG_HALF = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb"
PLUGIN = Way(
    GPU,
    MIG_HALF,
    "gpu-device-plugin",
    "app.kubernetes.io/name=nvidia-device-plugin",
    r"NVIDIA_VISIBLE_DEVICES=((?:GPU|MIG)-[^\0]+)",
    advertised,
)
CLAIMS = Way(
    f"{RESOURCE}{WHOLE}",
    f"{RESOURCE}{HALF}",
    "gpu-dra-driver",
    "app.kubernetes.io/component=kubeletplugin",
    r"GPU_DEVICE_[^=\0]*=(gpu-[^\0]+)",
    lambda lab: {*slices(lab)} == {*NODES},
)


@pytest.fixture(scope="module", params=[PLUGIN, CLAIMS], ids=["device plugin", "claims"])
def way(four_nodes: Lab, request: pytest.FixtureRequest) -> Iterator[Way]:
    """Four nodes whose GPUs are given out in one way."""
    lab, chosen = four_nodes, request.param
    nodes = {
        "gpu_device_plugin_nodes": NODES,
        "gpu_device_plugin_taints": [],
        "gpu_device_plugin_mig_strategy": "mixed",
    }
    if chosen is PLUGIN:
        lab.playbook("molecule/gpu/cleanup.yml", "-e", json.dumps(nodes))  # that of the guides
        lab.playbook("molecule/nvml/converge.yml", "-e", json.dumps(nodes))
        drivers = lab.get("pods", "-n", "molecule-nvml-driver", "-l", "app=simulated-driver")
        for pod in drivers:
            lab.kubectl("exec", "-n", "molecule-nvml-driver", pod["metadata"]["name"], "--", "sh", "-c", SPLIT)
        lab.kubectl("delete", "pods", "-n", chosen.namespace, "-l", chosen.label)
        lab.wait("seven GPUs and two halves on each node", lambda: advertised(lab), 150)
        yield chosen
        lab.playbook("molecule/nvml/cleanup.yml", "-e", json.dumps(nodes))
        return
    values = {**ON, "gpu_dra_driver_nodes": NODES, "gpu_dra_driver_devices": 7}
    lab.playbook("playbooks/lab.yml", "playbooks/site.yml", "-e", json.dumps(values))
    with device_classes(Cluster(str(STATE / "admin.kubeconfig"), "")):
        yield chosen
    removed = {"site_components": ["gpu_dra_driver"], "gpu_dra_driver_nodes": NODES, "gpu_dra_driver_taints": []}
    lab.playbook("playbooks/uninstall.yml", "-e", json.dumps(removed))


def start(cluster: Cluster, name: str, pods: int, gpus: int, resource: str) -> Any:
    """Submit a job as a user does; the job itself."""
    job: dict[str, Any] = {"name": name, "namespace": cluster.namespace, "backend": "volcano", "workers": pods - 1}
    job |= {"image": "gangplank.dev/trainer:0.1.0", "command": ["sh", "-c", RUNS], "collective": "gloo"}
    job |= {"processes_per_node": 1}
    job |= {"resources": {"cpu": "10m", "memory": "8Mi", "gpus": gpus, "gpu_resource": resource}}
    described = BACKENDS["volcano"].manifests(parse_job(job))
    submit.carry_out(cluster.kube, Plan(write=tuple(described)), dry_run=False)
    return described[-1]


def reported(lab: Lab, cluster: Cluster, way: Way) -> dict[str, list[tuple[str, str]]]:
    """The devices that the ranks of each pod report, each with its node."""
    devices = {}
    for pod in cluster.items("Pod"):
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
            name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
            environment = lab.kubectl("exec", "-n", cluster.namespace, name, "--", "cat", "/proc/1/environ")
            texts = re.findall(way.device, environment)
            devices[name] = [(node, device) for text in texts for device in text.split(",")]
    return devices


def check(devices: dict[str, list[tuple[str, str]]], gpus: int) -> None:
    """As many devices as all jobs asked for; none is given twice, and no GPU both as a whole and in halves."""
    numbers = Counter(device for each in devices.values() for device in each)
    assert [device for device, number in numbers.items() if number > 1] == [], "given twice"
    assert len(numbers) == gpus, devices
    whole = {(node, name.removesuffix("-full")) for node, name in numbers if name.endswith("-full")}
    halves = {(node, name.partition("-partition-")[0]) for node, name in numbers if "-partition-" in name}
    assert not whole & halves


def running(lab: Lab, way: Way) -> int:
    """How many pods that give out devices run."""
    return [pod["status"]["phase"] for pod in lab.get("pods", "-n", way.namespace, "-l", way.label)].count("Running")


def restart(lab: Lab, way: Way) -> None:
    """Restart every kubelet, and then what gives out the devices."""
    before = {*slices(lab).values()}
    with lab.supervisor() as server:
        for node in NODES:
            server.stopProcess(f"kubelet-{node}")
            server.startProcess(f"kubelet-{node}")
    # A kubelet that starts removes what its driver has published: a driver that starts before that would be silent.
    lab.wait("the kubelets have removed the slices", lambda: not before & {*slices(lab).values()}, 150)
    lab.kubectl("delete", "pods", "-n", way.namespace, "-l", way.label)
    lab.wait("others run on all nodes", lambda: running(lab, way) == len(NODES) and lab.ready() == {*NODES}, 150)
    lab.wait("all devices are offered", lambda: way.offered(lab), 150)


def test_eight_pods_have_all_of_their_gpus_or_none_beside_jobs_on_halves(four_nodes: Lab, way: Way) -> None:
    lab = four_nodes
    with opened(str(STATE / "admin.kubeconfig"), "gpu-gangs") as cluster:
        large = start(cluster, "large", GANG, EACH, way.whole)
        run(cluster, "large", GANG)
        assert Counter(pod["spec"]["nodeName"] for pod in pods_of(cluster, "large")) == dict.fromkeys(NODES, 2)
        start(cluster, "halves", PARTS, 1, way.half)
        run(cluster, "halves", PARTS)
        start(cluster, "small", GANG, 1, way.whole)  # at most four GPUs are left
        cluster.wait(lambda: waits(cluster, "small"), "PodGroup")
        before = reported(lab, cluster, way)
        check(before, GANG * EACH + PARTS)

        restart(lab, way)
        assert reported(lab, cluster, way) == before, "the pods have kept their devices, and no other pod runs"
        start(cluster, "others", PARTS, 1, way.half)
        run(cluster, "others", PARTS)
        check(reported(lab, cluster, way), GANG * EACH + 2 * PARTS)
        assert waits(cluster, "small")

        end(cluster, large)
        run(cluster, "small", GANG)
        check(reported(lab, cluster, way), GANG + 2 * PARTS)
        start(cluster, "again", GANG, EACH, way.whole)  # at most 20 of its 24 GPUs are free
        cluster.wait(lambda: waits(cluster, "again"), "PodGroup")
        check(reported(lab, cluster, way), GANG + 2 * PARTS)
