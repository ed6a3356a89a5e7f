"""Parts of devices, and taints on devices, by claim: on a lab whose Kubernetes has them switched on, with Volcano's
scheduler and with Kubernetes' own.

The driver publishes each GPU as one device and as two halves: while a half is used, the whole is not given out. This
needs feature gates that Kubernetes 1.35 has off. The lab has them on while these tests run, and off again afterwards.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.backends.device_claims import API_VERSION
from gangplank.cluster import submit
from gangplank.cluster.situation import situation
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site
from gangplank.k8s.plan import Plan
from gangplank.scheduling.fit import Verdict, fit
from tests.cluster.conftest import STATE
from tests.cluster.differential.live import Cluster, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.conftest import Lab

Json = dict[str, Any]
DRIVER = "gpu.example.com"
GPUS = 2  # of the node; each has two halves
HALF, WHOLE = "half.example.com", "whole.example.com"  # device classes
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
ALPHA = "resource.k8s.io/v1alpha3"
RULES = f"/apis/{ALPHA}/devicetaintrules"
ON: Json = {
    "lab_cluster_feature_gates": ["DRAPartitionableDevices", "DRADeviceTaints", "DRADeviceTaintRules"],
    "lab_cluster_api_versions": [ALPHA],
    "volcano_values": {"custom": {"scheduler_feature_gates": "DRAPartitionableDevices=true,DRADeviceTaints=true"}},
    "site_components": ["volcano", "gpu_dra_driver"],
    "gpu_allocation": "dra",
    "gpu_dra_driver_devices": GPUS,
    "gpu_dra_driver_taints": [],
    "gpu_dra_driver_values": {"kubeletPlugin": {"gpuPartitions": 2}},
}
# It does not end with 0 when its pod is evicted: Volcano would take the job for complete.
RUNS = "trap 'exit 143' TERM; while true; do sleep 0.2; done"
each_scheduler = pytest.mark.parametrize("backend", ["volcano", "indexed"])


@contextlib.contextmanager
def device_classes(cluster: Cluster) -> Iterator[None]:
    """A class for halves, and one for whole GPUs."""
    for name, sign in ((HALF, "!"), (WHOLE, "")):
        cel = f"device.driver == '{DRIVER}' && {sign}has(device.attributes['{DRIVER}'].full)"
        body: Json = {"apiVersion": API_VERSION, "kind": "DeviceClass", "metadata": {"name": name}}
        cluster.call("POST", CLASSES, {**body, "spec": {"selectors": [{"cel": {"expression": cel}}]}})
    try:
        yield
    finally:
        for name in (HALF, WHOLE):
            cluster.call("DELETE", f"{CLASSES}/{name}")


@pytest.fixture(scope="module")
def parted(lab: Lab) -> Iterator[str]:
    """The kubeconfig of the lab with the gates, the driver, and a class for halves and for whole GPUs."""
    lab.playbook("playbooks/lab.yml", "playbooks/site.yml", "-e", json.dumps(ON))
    kubeconfig = str(STATE / "admin.kubeconfig")
    try:
        with device_classes(Cluster(kubeconfig, "")):
            yield kubeconfig
    finally:
        lab.playbook("playbooks/uninstall.yml", "-e", json.dumps({"site_components": ["gpu_dra_driver"]}))
        lab.playbook("playbooks/lab.yml", "playbooks/site.yml")


@pytest.fixture
def cluster(parted: str) -> Iterator[Cluster]:
    """A namespace for each test."""
    with opened(parted, "device-parts") as live:
        yield live


def manifests(cluster: Cluster, backend: str, name: str, of_class: str, pods: int) -> list[Json]:
    """A job whose pods claim a device of this class each."""
    job: Json = {"name": name, "namespace": cluster.namespace, "backend": backend, "workers": pods - 1}
    job |= {"image": "gangplank.dev/trainer:0.1.0", "command": ["sh", "-c", RUNS]}
    job |= {"collective": "gloo", "processes_per_node": 1, "resources": {"cpu": "10m", "memory": "8Mi", "gpus": 1}}
    spec = on_site(parse_job(job), Gpus(allocation="dra", device_class=of_class))
    return BACKENDS[backend].manifests(spec)


def start(cluster: Cluster, *job: Any) -> Json:
    """Submit it as a user does; the job itself."""
    described = manifests(cluster, *job)
    submit.carry_out(cluster.kube, Plan(write=tuple(described)), dry_run=False)
    return described[-1]


def end(cluster: Cluster, job: Json) -> None:
    """Delete a job, and wait until its devices are free."""
    name, where = job["metadata"]["name"], cluster.path("Job", job["apiVersion"]).format(ns=cluster.namespace)
    cluster.call("DELETE", f"{where}/{name}", {"propagationPolicy": "Background"})
    cluster.wait(lambda: not any(owner == name for owner, _ in devices(cluster)), "ResourceClaim")
    cluster.wait(lambda: pods_of(cluster, name) == [], "Pod")


def devices(cluster: Cluster) -> list[tuple[str, str]]:
    """Every device that a claim has, after the job that has it."""
    jobs = {pod["metadata"]["uid"]: pod["metadata"]["labels"].get("gangplank.dev/job") for pod in cluster.items("Pod")}
    return [
        (jobs.get(claim["metadata"]["ownerReferences"][0]["uid"], ""), result["device"])
        for claim in cluster.items("ResourceClaim")
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    ]


def of(cluster: Cluster, name: str) -> list[str]:
    """The devices of one job, sorted."""
    return sorted(device for owner, device in devices(cluster) if owner == name)


def pods_of(cluster: Cluster, name: str) -> list[Json]:
    """The pods of one job that are not being deleted."""
    own = [pod for pod in cluster.items("Pod") if pod["metadata"]["labels"].get("gangplank.dev/job") == name]
    return [pod for pod in own if "deletionTimestamp" not in pod["metadata"]]


def run(cluster: Cluster, name: str, pods: int) -> None:
    """Wait until the pods of a job run: their driver has prepared devices for them."""
    cluster.wait(lambda: [pod["status"].get("phase") for pod in pods_of(cluster, name)] == ["Running"] * pods, "Pod")


def waits(cluster: Cluster, name: str) -> bool:
    """Whether a scheduler has looked at a job, or at its gang, and has a place for no pod."""
    groups = [group for group in cluster.items("PodGroup") if group["metadata"]["name"].startswith(name)]
    looked = [item.get("status", {}) for item in [*groups, *pods_of(cluster, name)]]
    conditions = [condition for status in looked for condition in status.get("conditions", [])]
    said = {condition.get(key) for condition in conditions for key in ("type", "reason")}
    return "Unschedulable" in said and not any(pod["spec"].get("nodeName") for pod in pods_of(cluster, name))


@contextlib.contextmanager
def tainted(cluster: Cluster, device: str, effect: str) -> Iterator[None]:
    """A rule of an administrator that taints one device."""
    name = f"{cluster.namespace}-{device}"
    rule: Json = {"apiVersion": ALPHA, "kind": "DeviceTaintRule", "metadata": {"name": name}}
    taint = {"key": "example.com/broken", "effect": effect}
    rule["spec"] = {"deviceSelector": {"driver": DRIVER, "device": device}, "taint": taint}
    cluster.call("POST", RULES, rule)
    try:
        yield
    finally:
        cluster.call("DELETE", f"{RULES}/{name}")


@each_scheduler
def test_halves_leave_no_whole_gpu_and_a_whole_one_no_halves(cluster: Cluster, backend: str) -> None:
    halves = start(cluster, backend, "halves", HALF, 3)
    run(cluster, "halves", 3)
    assert len({*of(cluster, "halves")}) == 3, "none is given twice"
    whole = start(cluster, backend, "whole", WHOLE, 2)  # of each GPU a half is used
    cluster.wait(lambda: waits(cluster, "whole"), "Pod")
    assert of(cluster, "whole") == []
    end(cluster, halves)
    run(cluster, "whole", 2)
    assert of(cluster, "whole") == [f"gpu-{number}-full" for number in range(GPUS)]
    start(cluster, backend, "late", HALF, 1)
    cluster.wait(lambda: waits(cluster, "late"), "Pod")
    end(cluster, whole)
    run(cluster, "late", 1)


@each_scheduler
def test_a_tainted_device_is_given_to_nobody(cluster: Cluster, backend: str) -> None:
    with tainted(cluster, "gpu-0-full", "NoSchedule"):
        start(cluster, backend, "first", WHOLE, 1)
        run(cluster, "first", 1)
        assert of(cluster, "first") == ["gpu-1-full"]
        start(cluster, backend, "second", WHOLE, 1)
        cluster.wait(lambda: waits(cluster, "second"), "Pod")
        assert of(cluster, "second") == []
    run(cluster, "second", 1)
    assert of(cluster, "second") == ["gpu-0-full"]


@each_scheduler
def test_a_device_that_breaks_loses_its_pod_and_the_job_continues_on_another(cluster: Cluster, backend: str) -> None:
    start(cluster, backend, "moves", WHOLE, 1)
    run(cluster, "moves", 1)
    (before,) = of(cluster, "moves")
    with tainted(cluster, before, "NoExecute"):
        cluster.wait(lambda: of(cluster, "moves") not in ([], [before]), "ResourceClaim")
        run(cluster, "moves", 1)
        (after,) = of(cluster, "moves")
    assert {before, after} == {f"gpu-{number}-full" for number in range(GPUS)}


def test_fit_does_not_guess_about_parts(cluster: Cluster) -> None:
    """Counters are not modelled."""
    *beside, job = manifests(cluster, "volcano", "asked", WHOLE, GPUS)
    now = situation(cluster.kube, job, live=False, others=beside)
    assert now.demand is not None
    assert fit(now.demand, now.state).verdict is Verdict.CANNOT_TELL
