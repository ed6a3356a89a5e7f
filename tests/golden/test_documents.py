"""The jobs of the documents that people follow expand to what these jobs really become."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gangplank.backends import BACKENDS, backend_of, wiring
from gangplank.backends.base import Site
from tests.support import documents
from tests.support.documents import job

ROOT = Path(__file__).resolve().parents[2]
WORDS = {  # of the block that has the job
    "volcano-site": "name: pytorch-job\n",
    "pytorch-job-with-configmap": 'title="pytorch-job-with-configmap.yaml"',
    "vsphere-cpu": "# Deploy the PyTorchJob resource with CPU",
    "pytorch_job_mnist_nccl": 'name: "pytorch-dist-mnist-nccl"',
}
Json = dict[str, Any]


def load(name: str) -> tuple[str, Json]:
    manifest = job(WORDS[name])
    backend = backend_of(manifest)
    assert backend
    return backend, manifest


@pytest.mark.parametrize(
    ("name", "master", "world", "pods"),
    [
        ("volcano-site", "pytorch-job-master-0.pytorch-job:23456", 3, "pytorch-job"),
        # the study prints master-0.pytorch-job-with-configmap; the plugin sets the whole pod's name
        (
            "pytorch-job-with-configmap",
            "pytorch-job-with-configmap-master-0.pytorch-job-with-configmap:23456",
            3,
            "pytorch-job-with-configmap",
        ),
        ("vsphere-cpu", "pytorchjob-distributed-training-master-0:23456", 3, "pytorchjob-distributed-training"),
        ("pytorch_job_mnist_nccl", "pytorch-dist-mnist-nccl-master-0:23456", 2, "pytorch-dist-mnist-nccl"),
    ],
)
def test_expands_to_the_pods_and_the_wiring_of_the_document(name: str, master: str, world: int, pods: str) -> None:
    backend, manifest = load(name)
    objects = [item for item in BACKENDS[backend].objects(manifest, Site()) if item["kind"] == "Pod"]
    expected = [f"{pods}-master-0", *(f"{pods}-worker-{index}" for index in range(world - 1))]
    assert [pod["metadata"]["name"] for pod in objects] == expected
    assert [wiring.pod_wiring(pod) for pod in objects] == [
        {"rank": str(rank), "master": master, "world_size": str(world)} for rank in range(world)
    ]


def test_one_service_serves_a_whole_volcano_job_and_each_replica_of_a_pytorchjob() -> None:
    def services(name: str) -> list[str]:
        backend, manifest = load(name)
        return [i["metadata"]["name"] for i in BACKENDS[backend].objects(manifest, Site()) if i["kind"] == "Service"]

    assert services("pytorch-job-with-configmap") == ["pytorch-job-with-configmap"]
    assert len(services("vsphere-cpu")) == 3


def test_a_gang_of_one_is_a_gang_of_one() -> None:
    backend, manifest = load("volcano-site")
    group = next(i for i in BACKENDS[backend].objects(manifest, Site(uid="U")) if i["kind"] == "PodGroup")
    assert group["spec"]["minMember"] == 1


def test_one_process_per_cpu_is_noted() -> None:
    backend, manifest = load("vsphere-cpu")
    assert any("one process per CPU" in text for text in BACKENDS[backend].pitfalls(manifest))


def test_our_demo_has_the_numbers_of_the_studys_script() -> None:
    """Epochs, points, batch size, learning rate; then the slope and the noise of the line."""
    script, ours = documents.printed('title="pytorch-demo.py"'), (ROOT / "trainer/linear.py").read_text()
    patterns = (r"epochs = (\d+)", r"SimpleDataset\(size=(\d+)\)", r"batch_size=(\d+)", r"lr=([\d.]+)")
    numbers = [float(text) for pattern in patterns for text in re.findall(pattern, script)]
    (constants,) = re.findall(r"^EPOCHS, POINTS, BATCH_SIZE, LEARNING_RATE = (.*)$", ours, re.MULTILINE)
    assert [float(text) for text in constants.split(", ")] == numbers
    (line,) = re.findall(r"self\.data \* (\S+) \+ (\S+) \* torch\.randn", script)
    assert re.findall(r"(\S+) \* x \+ (\S+) \* torch\.randn", ours) == [line]
