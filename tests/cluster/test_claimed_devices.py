"""Gangs of pods with devices by claim on a live Volcano: all of a gang's devices or none, and none given twice.

The devices are published by hand, and no driver prepares them: pods get a node and their devices, and wait there. What
runs on devices is molecule `dra`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.backends.device_claims import API_VERSION, RESOURCE
from gangplank.cluster import submit
from gangplank.cluster.situation import situation
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site
from gangplank.k8s.plan import Plan
from gangplank.scheduling.fit import Verdict, fit
from tests.cluster.differential.compare import IMAGE
from tests.cluster.differential.live import Cluster, opened
from tests.support.why_page import is_shown
from tests.support.why_stories import named_cause

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
CLASS = "gpu.by-hand.example.com"
DEVICES = "/apis/resource.k8s.io/v1"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
EACH = 4  # devices of each node


@pytest.fixture(scope="module")
def nodes(full_kubeconfig: str) -> Iterator[list[str]]:
    """The nodes of the cluster, each with its devices of one class."""
    with opened(full_kubeconfig, "devices") as cluster:
        kube = cluster.kube
        names = sorted(node["metadata"]["name"] for node in kube.call("GET", "/api/v1/nodes")["items"])
        cel = {"cel": {"expression": f"device.driver == '{CLASS}'"}}
        kube.call("POST", f"{DEVICES}/deviceclasses", of("DeviceClass", CLASS, {"selectors": [cel]}))
        for name in names:
            devices = [{"name": f"gpu-{number}"} for number in range(EACH)]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": CLASS, "nodeName": name, "pool": pool, "devices": devices}
            kube.call("POST", f"{DEVICES}/resourceslices", of("ResourceSlice", f"{name}-{CLASS}", spec))
        try:
            yield names
        finally:
            for name in names:
                kube.call("DELETE", f"{DEVICES}/resourceslices/{name}-{CLASS}")
            kube.call("DELETE", f"{DEVICES}/deviceclasses/{CLASS}")


def of(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def cluster(full_kubeconfig: str, nodes: list[str]) -> Iterator[Cluster]:
    """A namespace for each test, on a cluster with devices, once those of the test before are free."""
    assert nodes
    with opened(full_kubeconfig, "gangs") as live:
        live.wait(lambda: live.call("GET", f"{DEVICES}/resourceclaims")["items"] == [], "Pod")
        yield live


def manifests(cluster: Cluster, name: str, pods: int, gpus: int, **fields: Any) -> list[Json]:
    job: Json = {"name": name, "namespace": cluster.namespace, "image": IMAGE, "backend": "volcano"}
    job |= {"command": ["/pause"], "queue": "default", "workers": pods - 1, "collective": "gloo"}
    job |= {"processes_per_node": 1, "resources": {"cpu": "10m", "memory": "8Mi", "gpus": gpus}, **fields}
    spec = on_site(parse_job(job), Gpus(allocation="dra", device_class=CLASS))
    return BACKENDS[spec.backend].manifests(spec)


def start(cluster: Cluster, name: str, pods: int, gpus: int, **fields: Any) -> Json:
    """Submit a job as a user does; the job."""
    described = manifests(cluster, name, pods, gpus, **fields)
    submit.carry_out(cluster.kube, Plan(write=tuple(described)), dry_run=False)
    return described[-1]


def placed(cluster: Cluster, name: str) -> list[Json]:
    """The pods of a job that have a node."""
    return [
        pod
        for pod in cluster.items("Pod")
        if pod["metadata"]["labels"].get("gangplank.dev/job") == name and pod["spec"].get("nodeName")
    ]


def allocated(cluster: Cluster) -> list[tuple[str, str]]:
    """Every device that a claim has, by node and name."""
    return [
        (result["pool"], result["device"])
        for claim in cluster.items("ResourceClaim")
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    ]


def waits(cluster: Cluster, name: str) -> bool:
    """Whether Volcano has looked at a gang and found no place for it."""
    return any(
        condition["type"] == "Unschedulable"
        for group in cluster.items("PodGroup")
        if group["metadata"]["name"].startswith(name)
        for condition in group.get("status", {}).get("conditions", [])
    )


def test_gangs_share_the_devices_and_one_that_does_not_fit_waits_whole(cluster: Cluster, nodes: list[str]) -> None:
    total = EACH * len(nodes)
    start(cluster, "ones", total - 4, 1)  # a device for each pod
    start(cluster, "pair", 2, 1)
    cluster.wait(lambda: len(placed(cluster, "ones")) == total - 4 and len(placed(cluster, "pair")) == 2, "Pod")
    assert len(allocated(cluster)) == len({*allocated(cluster)}) == total - 2, "none is given twice"
    start(cluster, "three", 3, 1)  # two are left
    cluster.wait(lambda: waits(cluster, "three"), "PodGroup")
    assert placed(cluster, "three") == []
    assert len(allocated(cluster)) == total - 2, "a gang that waits holds nothing"
    cluster.call("DELETE", f"{cluster.path('Job', 'batch.volcano.sh/v1alpha1').format(ns=cluster.namespace)}/pair")
    cluster.wait(lambda: len(placed(cluster, "three")) == 3, "Pod")
    cluster.wait(lambda: len(allocated(cluster)) == total - 1, "ResourceClaim")
    assert len({*allocated(cluster)}) == total - 1


def test_the_pods_of_a_pytorchjob_have_a_device_each_or_none(cluster: Cluster, nodes: list[str]) -> None:
    total = EACH * len(nodes)
    start(cluster, "operated", total - 1, 1, backend="pytorchjob")
    cluster.wait(lambda: len(placed(cluster, "operated")) == total - 1, "Pod")
    assert len(allocated(cluster)) == len({*allocated(cluster)}) == total - 1
    start(cluster, "waiting", 2, 1, backend="pytorchjob")
    cluster.wait(lambda: waits(cluster, "waiting"), "PodGroup")
    assert placed(cluster, "waiting") == []
    assert len(allocated(cluster)) == total - 1, "a gang that waits holds nothing"
    cluster.call("DELETE", f"{cluster.path('PyTorchJob').format(ns=cluster.namespace)}/operated")
    cluster.wait(lambda: len(placed(cluster, "waiting")) == 2, "Pod")
    kind = "ResourceClaimTemplate"  # the first one's goes with its job
    cluster.wait(lambda: all(item["metadata"]["name"].startswith("waiting-") for item in cluster.items(kind)), kind)


def test_several_devices_of_one_pod_are_on_its_node(cluster: Cluster, nodes: list[str]) -> None:
    start(cluster, "whole", len(nodes), EACH)
    cluster.wait(lambda: len(placed(cluster, "whole")) == len(nodes), "Pod")
    assert sorted(pod["spec"]["nodeName"] for pod in placed(cluster, "whole")) == nodes
    assert len({*allocated(cluster)}) == EACH * len(nodes)


def test_a_queue_holds_its_cap_of_devices(cluster: Cluster) -> None:
    name = cluster.namespace
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    queue["spec"] = {"capability": {f"{RESOURCE}{CLASS}": "2"}, "parent": "root"}
    cluster.call("POST", QUEUES, queue)
    try:
        cluster.wait(lambda: cluster.call("GET", f"{QUEUES}/{name}").get("status", {}).get("state") == "Open", "Pod")
        start(cluster, "within", 2, 1, queue=name)
        cluster.wait(lambda: len(placed(cluster, "within")) == 2, "Pod")
        start(cluster, "beyond", 2, 1, queue=name)
        cluster.wait(lambda: len(cluster.items("PodGroup")) == 2, "PodGroup")
        start(cluster, "elsewhere", 2, 1)  # had it been the cluster that is full, this one would wait too
        cluster.wait(lambda: len(placed(cluster, "elsewhere")) == 2, "Pod")
        assert placed(cluster, "beyond") == []
        jobs = cluster.path("Job", "batch.volcano.sh/v1alpha1").format(ns=cluster.namespace)
        cluster.call("DELETE", f"{jobs}/within")
        cluster.wait(lambda: len(placed(cluster, "beyond")) == 2, "Pod")
        for job in ("beyond", "elsewhere"):
            cluster.call("DELETE", f"{jobs}/{job}")
        cluster.wait(lambda: cluster.items("PodGroup") == [], "PodGroup")
    finally:
        cluster.call("DELETE", f"{QUEUES}/{name}")


def test_fit_and_why_say_what_the_scheduler_does(cluster: Cluster, nodes: list[str]) -> None:
    def verdict(pods: int, gpus: int) -> tuple[Verdict, str]:
        *beside, job = manifests(cluster, "asked", pods, gpus)
        now = situation(cluster.kube, job, live=False, others=beside)
        assert now.demand is not None
        answer = fit(now.demand, now.state)
        return answer.verdict, " ".join(f"{cause.text} {' '.join(cause.evidence)}" for cause in answer.causes)

    assert verdict(len(nodes), EACH)[0] is Verdict.YES
    assert verdict(1, EACH + 1)[0] is Verdict.NO
    start(cluster, "holds", 1, EACH)
    cluster.wait(lambda: len(placed(cluster, "holds")) == 1, "Pod")
    said, text = verdict(len(nodes), EACH)
    assert said is Verdict.NO
    assert f"{RESOURCE}{CLASS}" in text
    start(cluster, "asked", len(nodes), EACH)
    cluster.wait(lambda: waits(cluster, "asked"), "PodGroup")
    assert placed(cluster, "asked") == []


def test_devices_whose_driver_does_not_run_on_their_node_are_named(cluster: Cluster) -> None:
    """As where the driver's pod does not run: the kubelet knows no driver that would prepare them."""
    job = start(cluster, "device", 1, 1)
    cluster.wait(lambda: len(placed(cluster, "device")) == 1, "Pod")
    diagnosis = named_cause(cluster.kube, job, "device")
    assert f"DRA driver {CLASS} is not registered" in diagnosis.text()
    is_shown("device", diagnosis)
