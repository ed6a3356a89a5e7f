"""vSphere's guide to PyTorchJob, from its first command to its comparison with one pod."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gangplank.proof.verdict import compare
from tests.guides.conftest import devices, proven, result
from tests.support import documents

if TYPE_CHECKING:
    from tests.guides.conftest import Shell

JOB = "pytorchjob-distributed-training"
PODS = [f"{JOB}-{name}" for name in ("master-0", "worker-0", "worker-1")]
CPU, GPU = "# Deploy the PyTorchJob resource with CPU", "# Deploy the PyTorchJob resource with GPU"


def first_command(words: str) -> str:
    """Of a printed session, what is typed."""
    return documents.printed(words).splitlines()[0].removeprefix("$ ")


@pytest.fixture(scope="module")
def claim(shell: Shell) -> None:
    """`Create a new volume`."""
    command = documents.adapted("kind: PersistentVolumeClaim")
    assert "USER_NAMESPACE=user #" in command, "replace it with your namespace"
    shell(command.replace("USER_NAMESPACE=user #", f"USER_NAMESPACE={shell.namespace} #"))


@pytest.fixture(scope="module")
def trained(shell: Shell, claim: None) -> dict[str, str]:  # noqa: ARG001  # what the job mounts
    """`Create a PyTorch training job`, with CPU, and its logs by rank."""
    shell(documents.adapted(CPU).replace("\n  EOF\n", "\nEOF\n"))
    return shell.logs(*PODS)


def test_the_operator_is_verified(shell: Shell) -> None:
    assert re.search(r"^pytorchjobs\.kubeflow\.org ", shell(first_command("kubectl get crd\n")), re.MULTILINE)
    said = shell(first_command("kubectl get pods -n kubeflow"))
    assert re.search(r"^training-operator-\S+ +1/1 +Running", said, re.MULTILINE), "training-operator-0, 2/2 there"


def test_an_indented_end_ends_nothing(shell: Shell) -> None:
    """As the CPU job is printed: its last EOF is indented, and so part of the manifest."""
    said = shell.refused(documents.adapted(CPU))
    assert "error" in said
    assert shell.get("pytorchjobs") == []


def test_the_job_trains(shell: Shell, trained: dict[str, str]) -> None:
    proven(trained)
    said = shell(documents.printed("| grep pytorchjob").splitlines()[0])
    assert sorted(line.split()[0] for line in said.splitlines()) == PODS
    shell(f"kubectl wait --for=condition=Succeeded pytorchjob/{JOB} --timeout=60s")
    shell(f"kubectl describe pytorchjob {JOB}")
    (volume,) = shell.get("pvc")
    assert (volume["metadata"]["name"], volume["status"]["phase"]) == ("data", "Bound")


@pytest.mark.usefixtures("trained")
def test_its_pods_are_found_by_the_operators_label_alone(shell: Shell) -> None:
    assert "No resources found" in shell(documents.printed("kubectl get pods -l job-name"))
    said = shell(f"kubectl get pods --no-headers -l training.kubeflow.org/job-name={JOB} -n $USER_NAMESPACE")
    assert len(said.splitlines()) == 3


def test_three_ranks_share_the_steps_of_one_pod(shell: Shell, trained: dict[str, str]) -> None:
    """The guide's own comparison, there 48 steps and 16: each of three ranks takes a third, the same accuracy.

    Two lines more: our image trains alone only if asked to, and a pod that has trained must not start again.
    """
    command = documents.adapted('name: "pytorch-training-single-pod"')
    for old, new in {"  containers:\n": "  restartPolicy: Never\n  containers:\n",
                     "- name: pytorch\n": "- name: pytorch\n      args: [--standalone]\n"}.items():
        assert old in command
        command = command.replace(old, new)
    shell(command)
    (log,) = shell.logs("pytorch-training-single-pod").values()
    verdict = compare(result(log), result(trained[PODS[0]]))
    assert verdict.passed, verdict.text()


@pytest.mark.usefixtures("claim", "gpus")
def test_the_gpu_job_is_placed_and_given_its_devices(shell: Shell) -> None:
    """CUDA does not run on simulated GPUs, so that nccl has to be where it ends."""
    job = f"{JOB}-gpu"
    shell(documents.adapted(GPU))
    devices(shell, job, 2)
    refusal = "--backend nccl needs a GPU and this process sees none"
    shell.lab.wait("nccl is what it asks for", lambda: refusal in shell(f"kubectl logs {job}-master-0"), 120)
    shell(f"kubectl delete pytorchjob {job}")
