"""Flyte's page on PyTorch tasks: what its decorator asks for, by jobs/mnist-gpu.yml, which has the same numbers.

flytekit itself belongs into the user's image, and nothing of it is needed here. As on the page, gloo joins ranks that
have GPUs: so they train, on simulated GPUs too. The page downloads MNIST; here `gangplank data` brings files of its
format and size.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job
from tests.cluster.conftest import ROOT
from tests.guides.conftest import devices, proven
from tests.support import documents
from tests.support.claims import Files
from tests.support.event_files import scalars
from tests.support.mnist_files import write_mnist

if TYPE_CHECKING:
    from tests.guides.conftest import Shell

TASK: dict[str, Any] = {  # the decorator's arguments, and the task's inputs
    "workers": 2,
    "resources": {"cpu": {"request": "500m"}, "memory": {"request": "4Gi", "limit": "8Gi"}, "gpus": 1},
    "hyperparameters": {
        "batch_size", "test_batch_size", "epochs", "learning_rate", "sgd_momentum", "seed", "log_interval", "dir",
    },
}  # fmt: skip
OUTPUTS = {"epoch_accuracies", "model_state"}
IMAGES = 1920, 500  # of the two splits
CLAIMS = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec: {{storageClassName: {cls}, accessModes: {modes}, resources: {{requests: {{storage: 1Gi}}}}}}
---
"""


def described() -> dict[str, Any]:
    description: dict[str, Any] = yaml.safe_load((ROOT / "jobs/mnist-gpu.yml").read_text())["training_job"]
    return description


def numbers(page: str) -> dict[str, str]:
    """The arguments of the page's decorator."""
    return dict(re.findall(r"(\w+)=\"?([^\",]+)", page[page.index("@pytorch_task(") : page.index("def ")]))


def as_printed() -> dict[str, Any]:
    """Our job with the numbers that the page prints; it has no limit of CPUs."""
    asked = numbers(documents.printed("@pytorch_task("))
    resources = {
        "cpu": {"request": asked["per_replica_cpu_request"]},
        "memory": {"request": asked["per_replica_memory_request"], "limit": asked["per_replica_memory_limit"]},
        "gpus": int(asked["per_replica_gpu_limit"]),
    }
    return described() | {"workers": int(asked["workers_count"]), "resources": resources}


def test_our_job_is_the_pages_task() -> None:
    job = described()
    assert job["workers"] == TASK["workers"]
    assert job["masters"] == 1, "in addition to the single master"
    assert job["resources"]["cpu"].pop("limit") == "2", "the page has none; a team's quota may ask for one"
    assert job["resources"] == TASK["resources"]
    assert job["hyperparameters"].keys() == TASK["hyperparameters"]


def test_the_numbers_are_those_that_the_page_prints() -> None:
    page = documents.printed("@pytorch_task(")
    inputs, outputs = (re.search(rf"@{name}\((.*?)\)\n", page, re.DOTALL) for name in ("inputs", "outputs"))
    assert inputs
    assert outputs
    assert set(re.findall(r"(\w+)=", inputs[1])) == TASK["hyperparameters"]
    assert set(re.findall(r"(\w+)=", outputs[1])) == OUTPUTS
    cpu, memory = TASK["resources"]["cpu"], TASK["resources"]["memory"]
    assert numbers(page) == {
        "workers_count": str(TASK["workers"]), "per_replica_cpu_request": cpu["request"],
        "per_replica_memory_request": memory["request"], "per_replica_memory_limit": memory["limit"],
        "per_replica_gpu_limit": str(TASK["resources"]["gpus"]),
    }  # fmt: skip


def test_the_task_is_accepted_by_the_cluster(shell: Shell) -> None:
    """Our job with the numbers that the page prints: the API server and the operator's webhook take it."""
    job = as_printed() | {"namespace": shell.namespace}
    (manifest,) = BACKENDS["pytorchjob"].manifests(parse_job(job))
    (shell.folder / "task.yaml").write_text(yaml.safe_dump(manifest))
    said = shell("kubectl apply --dry-run=server -f task.yaml")
    assert said == "pytorchjob.kubeflow.org/mnist-gpu created (server dry run)\n"


@pytest.mark.usefixtures("gpus")
def test_three_replicas_get_a_gpu_each_train_on_mnist_and_leave_both_outputs(shell: Shell) -> None:
    """With the page's own numbers; by gloo, since CUDA does not run on simulated GPUs."""
    images = shell.folder / "mnist"
    images.mkdir()
    write_mnist(images, *IMAGES)
    claims = [("mnist", "local-shared", "[ReadWriteMany, ReadOnlyMany]"), ("data", "local-path", "[ReadWriteOnce]")]
    text = "".join(CLAIMS.format(name=name, cls=cls, modes=modes) for name, cls, modes in claims)
    (shell.folder / "claims.yaml").write_text(text)
    shell("kubectl apply -f claims.yaml")
    gangplank = f"{ROOT}/.venv/bin/gangplank"
    access = "-n $USER_NAMESPACE --kubeconfig $KUBECONFIG"
    assert "4 files" in shell(f"{gangplank} data mnist/ mnist {access}", 900)
    job = as_printed() | {"collective": "gloo", "namespace": shell.namespace}
    (shell.folder / "flyte.yaml").write_text(yaml.safe_dump({"training_job": job}))
    shell(f"{gangplank} submit flyte.yaml {access}")

    pods = devices(shell, "mnist-gpu", 3)
    for pod in pods:
        asked = pod["spec"]["containers"][0]["resources"]
        assert asked["requests"] == {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": "1"}
        assert asked["limits"] == {"memory": "8Gi", "nvidia.com/gpu": "1"}
    logs = shell.logs("mnist-gpu-master-0", "mnist-gpu-worker-0", "mnist-gpu-worker-1")
    proven(logs, job["hyperparameters"]["epochs"])
    shell("kubectl wait --for=condition=Succeeded pytorchjob/mnist-gpu --timeout=110s")

    shell(f"{gangplank} fetch mnist-gpu -o fetched {access}", 900)
    fetched = shell.folder / "fetched"
    result = json.loads((fetched / "result.json").read_text())
    accuracies = result["epoch_accuracies"]
    assert len(accuracies) == job["hyperparameters"]["epochs"]
    assert accuracies[-1] > 0.9, "the bars are easily told apart"
    model = (fetched / result["model_state"]).read_bytes()
    tensors = json.loads(model[8 : 8 + int.from_bytes(model[:8], "little")])
    assert any(shape[-2:] == [3, 3] for shape in (row["shape"] for name, row in tensors.items() if name[0] != "_"))
    (events,) = (fetched / "events").iterdir()
    points = [value for tag, _, value in scalars(events) if tag == "accuracy"]
    assert points == pytest.approx(accuracies, abs=1e-4)
    assert f"mnist-gpu/events/{events.name}" in Files(shell.lab, shell.namespace, "data").hashes()
