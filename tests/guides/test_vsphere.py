"""vSphere's guide to PyTorchJob, from its first command to its comparison with one pod."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gangplank.proof.verdict import compare
from tests.guides.conftest import devices, proven, result

if TYPE_CHECKING:
    from tests.guides.conftest import Shell

JOB = "pytorchjob-distributed-training"
PODS = [f"{JOB}-{name}" for name in ("master-0", "worker-0", "worker-1")]
CLASS = (
    "export storageClassName=local-path"  # k8s-storage-policy there, "replace it with your environment storageclass"
)


def here(command: str, shell: Shell, manifest: str, end: str = "EOF") -> str:
    """The guide's way to submit: the manifest within the command."""
    return f"{command}\n{(shell.folder / manifest).read_text()}{end}\n"


@pytest.fixture(scope="module")
def claim(shell: Shell) -> None:
    """`Create a new volume`."""
    shell(here(f"{CLASS}\ncat << EOF | kubectl apply -f -", shell, "vsphere-claim.yaml"))


@pytest.fixture(scope="module")
def trained(shell: Shell, claim: None) -> dict[str, str]:  # noqa: ARG001  # what the job mounts
    """`Create a PyTorch training job`, with CPU, and its logs by rank."""
    shell(here("cat <<EOF | kubectl create -n $USER_NAMESPACE -f -", shell, "vsphere-cpu.yaml"))
    return shell.logs(*PODS)


def test_the_operator_is_verified(shell: Shell) -> None:
    assert re.search(r"^pytorchjobs\.kubeflow\.org ", shell("kubectl get crd"), re.MULTILINE)
    said = shell("kubectl get pods -n kubeflow")
    assert re.search(r"^training-operator-\S+ +1/1 +Running", said, re.MULTILINE), "training-operator-0, 2/2 there"


def test_an_indented_end_ends_nothing(shell: Shell) -> None:
    """As the CPU job is printed: its last EOF is indented, and so part of the manifest."""
    said = shell.refused(here("cat <<EOF | kubectl create -n $USER_NAMESPACE -f -", shell, "vsphere-cpu.yaml", "  EOF"))
    assert "error" in said
    assert shell.get("pytorchjobs") == []


def test_the_job_trains(shell: Shell, trained: dict[str, str]) -> None:
    proven(trained)
    said = shell(f"kubectl get pods -n $USER_NAMESPACE | grep {JOB}")
    assert sorted(line.split()[0] for line in said.splitlines()) == PODS
    shell(f"kubectl wait --for=condition=Succeeded pytorchjob/{JOB} --timeout=60s")
    shell(f"kubectl describe pytorchjob {JOB}")
    (volume,) = shell.get("pvc")
    assert (volume["metadata"]["name"], volume["status"]["phase"]) == ("data", "Bound")


@pytest.mark.usefixtures("trained")
def test_its_pods_are_found_by_the_operators_label_alone(shell: Shell) -> None:
    assert "No resources found" in shell(f"kubectl get pods -l job-name={JOB} -n $USER_NAMESPACE")
    said = shell(f"kubectl get pods --no-headers -l training.kubeflow.org/job-name={JOB} -n $USER_NAMESPACE")
    assert len(said.splitlines()) == 3


def test_three_ranks_share_the_steps_of_one_pod(shell: Shell, trained: dict[str, str]) -> None:
    """The guide's own comparison: 48 steps alone, 16 on each of three ranks, the same accuracy.

    Two lines more: our image trains alone only if asked to, and a pod that has trained must not start again.
    """
    words = {"  containers:\n": "  restartPolicy: Never\n  containers:\n"}
    words["- name: pytorch\n"] = "- name: pytorch\n      args: [--standalone]\n"
    shell.change("vsphere-single-pod.yaml", **words)
    shell(here("cat <<EOF | kubectl create -n $USER_NAMESPACE -f -", shell, "vsphere-single-pod.yaml"))
    (log,) = shell.logs("pytorch-training-single-pod").values()
    verdict = compare(result(log), result(trained[PODS[0]]))
    assert verdict.passed, verdict.text()


@pytest.mark.usefixtures("claim", "gpus")
def test_the_gpu_job_is_placed_and_given_its_devices(shell: Shell) -> None:
    """CUDA does not run on simulated GPUs, so that nccl has to be where it ends."""
    job = f"{JOB}-gpu"
    shell(here("cat <<EOF | kubectl create -n $USER_NAMESPACE -f -", shell, "vsphere-gpu.yaml"))
    devices(shell, job, 2)
    refusal = "--backend nccl needs a GPU and this process sees none"
    shell.lab.wait("nccl is what it asks for", lambda: refusal in shell(f"kubectl logs {job}-master-0"), 120)
    shell(f"kubectl delete pytorchjob {job}")
