"""Flyte's page on PyTorch tasks: what its decorator asks for, by jobs/mnist-gpu.yml, which has the same numbers.

flytekit itself belongs into the user's image, and nothing of it is needed here. As on the page, gloo joins ranks that
have GPUs: so they train, on simulated GPUs too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job
from tests.cluster.conftest import ROOT
from tests.guides.conftest import devices, proven

if TYPE_CHECKING:
    from tests.guides.conftest import Shell

TASK = {  # the decorator's arguments, and the task's inputs
    "workers": 2,
    "resources": {"cpu": {"request": "500m"}, "memory": {"request": "4Gi", "limit": "8Gi"}, "gpus": 1},
    "hyperparameters": {
        "batch_size", "test_batch_size", "epochs", "learning_rate", "sgd_momentum", "seed", "log_interval",
    },
}  # fmt: skip


def described() -> dict[str, Any]:
    description: dict[str, Any] = yaml.safe_load((ROOT / "jobs/mnist-gpu.yml").read_text())["training_job"]
    return description


def test_our_job_is_the_pages_task() -> None:
    job = described()
    assert job["workers"] == TASK["workers"]
    assert job["masters"] == 1, "in addition to the single master"
    assert job["resources"]["cpu"].pop("limit") == "2", "the page has none; a team's quota may ask for one"
    assert job["resources"] == TASK["resources"]
    assert job["hyperparameters"].keys() == TASK["hyperparameters"]


@pytest.mark.usefixtures("gpus")
def test_three_replicas_get_a_gpu_each_and_train(shell: Shell) -> None:
    """With the digits of the image, as no MNIST can be downloaded here; dir is the image's own folder."""
    job = described() | {"collective": "gloo", "args": [], "volumes": [], "namespace": shell.namespace, "output": ""}
    job["hyperparameters"] |= {"epochs": 3}
    (manifest,) = BACKENDS["pytorchjob"].manifests(parse_job(job))
    (shell.folder / "flyte.yaml").write_text(yaml.safe_dump(manifest))
    shell("kubectl create -f flyte.yaml")
    pods = devices(shell, "mnist-gpu", 3)
    for pod in pods:
        asked = pod["spec"]["containers"][0]["resources"]
        assert asked["requests"] == {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": "1"}
        assert asked["limits"] == {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
    proven(shell.logs("mnist-gpu-master-0", "mnist-gpu-worker-0", "mnist-gpu-worker-1"))
