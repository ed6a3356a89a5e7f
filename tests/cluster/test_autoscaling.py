"""An elastic PyTorchJob with `metrics` scales by itself: up while its workers work hard, down while they are idle.

Upstream's metrics-server measures what they use.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.client import path
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from lab.build.parts import build
from tests.cluster.conftest import Lab
from tests.cluster.differential.live import SHARED_CLAIM, Cluster, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
MEASURED = "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods"
# As its chart has it, but for the certificates: both of them are checked.
VALUES: Json = {
    "image": {"tag": "v0.9.0"},  # the chart of this version still names an earlier one
    "args": ["--kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"],
    "tls": {"type": "helm"},
    "apiService": {"insecureSkipTLSVerify": False},
}
TARGET = {"type": "Utilization", "averageUtilization": 80}
METRICS = [{"type": "Resource", "resource": {"name": "cpu", "target": TARGET}}]
IDLE: Json = {
    "backend": "pytorchjob",
    "image": "gangplank.dev/trainer:0.1.0",
    "masters": 0,
    "elastic": {"min": 2, "max": 3, "metrics": METRICS},
    "resources": {"cpu": "50m", "memory": "256Mi"},
    "collective": "gloo",
    "script": "idle.py",
}
SCRIPTS = {"idle.py": "import time\n\ntime.sleep(3600)\n"}
# It trains until it is removed, and needs more than the tenth of a processor that two workers ask for.
BUSY: Json = {
    **{key: value for key, value in IDLE.items() if key != "collective"},
    "script": "/opt/gangplank/trainer/train.py",
    "volumes": [{"claim": "shared", "mount": "/data", "access": "ReadWriteMany"}],
    "output": "/data/out",
    "hyperparameters": {"epochs": 100000, "batch_size": 6, "seed": 1, "log_interval": 10},
    "args": ["--checkpoint-interval", "50"],
}


@pytest.fixture(scope="module")
def measured(full_kubeconfig: str) -> Iterator[str]:
    """The cluster, with metrics-server."""
    parts, lab = build(["metrics-server"], print, roots=()), Lab()
    lab.playbook("playbooks/lab-load.yml", "-e", f"lab_cluster_load={parts['images'][0]['archive']}")

    def helm(*words: str, values: str = "") -> None:
        place = ("--kubeconfig", full_kubeconfig, "--namespace", "kube-system")
        line = [f"{lab.parts['bin']['helm']}/helm", *words, *place]
        done = subprocess.run(line, input=values, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr

    chart = parts["charts"]["metrics-server"]
    helm("install", "metrics-server", chart, "--values=-", "--wait", "--timeout=240s", values=json.dumps(VALUES))
    try:
        yield full_kubeconfig
    finally:
        helm("uninstall", "metrics-server", "--wait")


@pytest.fixture
def cluster(measured: str) -> Iterator[Cluster]:
    with opened(measured, "autoscaling") as live:
        live.create(SHARED_CLAIM)
        yield live


def submit(cluster: Cluster, name: str, description: Json, workers: int) -> None:
    spec = parse_job({**description, "name": name, "namespace": cluster.namespace, "workers": workers}, scripts=SCRIPTS)
    for manifest in BACKENDS["pytorchjob"].manifests(spec):
        cluster.create(manifest)


def replicas(cluster: Cluster, name: str) -> int:
    """The number of workers that the job asks for."""
    job = cluster.call("GET", path("kubeflow.org/v1", "PyTorchJob", cluster.namespace, name))
    return int(job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"])


def running(cluster: Cluster, name: str) -> list[str]:
    """Its pods that run."""
    return sorted(
        pod["metadata"]["name"]
        for pod in cluster.items("Pod")
        if pod["metadata"]["name"].startswith(f"{name}-")
        and pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
    )


def events(cluster: Cluster, pod: str, kind: str) -> list[Json]:
    """What a pod's ranks have said of one kind; nothing before it runs."""
    with contextlib.suppress(KubeError):
        lines = cluster.kube.log({"metadata": {"name": pod, "namespace": cluster.namespace}})
        said = [json.loads(line) for line in lines if line.startswith('{"event"')]
        return [event for event in said if event["event"] == kind]
    return []


def reasons(cluster: Cluster, name: str) -> list[str]:
    """What the autoscaler of a job has said."""
    items = cluster.call("GET", f"/api/v1/namespaces/{cluster.namespace}/events")["items"]
    return [
        f"{item['reason']}: {item['message']}"
        for item in items
        if (item["involvedObject"]["kind"], item["involvedObject"]["name"]) == ("HorizontalPodAutoscaler", name)
    ]


def test_workers_that_work_hard_become_more_and_idle_ones_fewer(cluster: Cluster) -> None:
    wait = Lab().wait
    submit(cluster, "idle", IDLE, 3)
    submit(cluster, "busy", BUSY, 2)
    wait("three workers do nothing", lambda: len(running(cluster, "idle")) == 3, 180)
    wait("two workers train", lambda: all(events(cluster, f"busy-worker-{at}", "step") for at in (0, 1)), 180)
    assert replicas(cluster, "busy") == 2, "before anything was measured"
    wait("both are measured", lambda: len(cluster.call("GET", MEASURED.format(cluster.namespace))["items"]) >= 5, 180)

    wait("three workers train", lambda: events(cluster, "busy-worker-2", "step"), 300)
    assert replicas(cluster, "busy") == 3
    assert any("New size: 3" in reason and "above target" in reason for reason in reasons(cluster, "busy"))
    resumed = [event for at in (0, 1) for event in events(cluster, f"busy-worker-{at}", "resume") if event["rank"] == 0]
    assert [event["world_size_before"] for event in resumed] == [2]

    # Kubernetes waits for five minutes before it believes that less is enough.
    wait("an idle worker goes", lambda: running(cluster, "idle") == ["idle-worker-0", "idle-worker-1"], 480)
    assert replicas(cluster, "idle") == 2
    assert any("New size: 2" in reason and "below target" in reason for reason in reasons(cluster, "idle"))
    assert replicas(cluster, "busy") == 3, "the busy ones stay"
