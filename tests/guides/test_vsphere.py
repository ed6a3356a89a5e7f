"""vSphere's guide to PyTorchJob, from its first command to its comparison with one pod: its manifests to the letter.

Images of the printed names are loaded into the lab (tests/support/guide_images.py). The storage class is the lab's.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from gangplank.cluster.progress import events
from gangplank.proof.verdict import compare
from tests.guides.conftest import devices, proven, result
from tests.support import documents, guide_images
from tests.support.claims import Files
from tests.support.event_files import scalars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.guides.conftest import Json, Shell

JOB, SINGLE = "pytorchjob-distributed-training", "pytorch-training-single-pod"
PODS = [f"{JOB}-{name}" for name in ("master-0", "worker-0", "worker-1")]
ALONE = f'name: "{SINGLE}"'
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
def images(shell: Shell) -> None:
    """Images of the names that the job and the single pod print."""
    for words, alone in ((CPU, False), (ALONE, True)):
        (name,) = set(re.findall(r"image: (\S+)", documents.printed(words)))
        archive = guide_images.image(shell.folder, name, alone=alone)
        shell.lab.playbook("playbooks/lab-load.yml", "-e", f"lab_cluster_load={archive}")
        archive.unlink()


@pytest.fixture(scope="module")
def trained(shell: Shell, claim: None, images: None) -> dict[str, str]:  # noqa: ARG001  # what the job needs
    """`Create a PyTorch training job`, with CPU, and its logs by rank."""
    shell(documents.printed(CPU).replace("\n  EOF\n", "\nEOF\n"))
    return shell.logs(*PODS)


@pytest.fixture(scope="module")
def alone(shell: Shell, trained: dict[str, str]) -> Iterator[str]:  # noqa: ARG001  # one after the other, as in the guide
    """The log of the single pod; as printed, it would restart forever."""
    shell(documents.printed(ALONE))
    (log,) = shell.logs(SINGLE).values()
    yield log
    shell(f"kubectl delete pod {SINGLE} -n $USER_NAMESPACE --grace-period=1 --timeout=110s")


def epochs(log: str) -> list[Json]:
    """What a rank says at the end of each epoch."""
    return [event for event in events(log) if event["event"] == "epoch"]


def steps(log: str) -> list[int]:
    """How often a rank trained the model in each epoch."""
    return [event["steps"] for event in epochs(log)]


def test_the_operator_is_verified(shell: Shell) -> None:
    assert re.search(r"^pytorchjobs\.kubeflow\.org ", shell(first_command("kubectl get crd\n")), re.MULTILINE)
    said = shell(first_command("kubectl get pods -n kubeflow"))
    assert re.search(r"^training-operator-\S+ +1/1 +Running", said, re.MULTILINE), "training-operator-0, 2/2 there"


def test_an_indented_end_ends_nothing(shell: Shell) -> None:
    """As the CPU job is printed: its last EOF is indented, and so part of the manifest."""
    said = shell.refused(documents.printed(CPU))
    assert "error" in said
    assert shell.get("pytorchjobs") == []


def test_the_job_is_accepted_as_it_is_printed(shell: Shell) -> None:
    """Its manifest to the letter: the API server and the operator's webhook take it, in a dry run."""
    command = documents.printed(CPU).replace("\n  EOF\n", "\nEOF\n")
    assert command.count("kubectl create") == 1
    said = shell(command.replace("kubectl create", "kubectl create --dry-run=server"))
    assert f"pytorchjob.kubeflow.org/{JOB} created (server dry run)" in said


def test_the_job_trains(shell: Shell, trained: dict[str, str]) -> None:
    proven(trained, guide_images.EPOCHS)
    said = shell(documents.printed("| grep pytorchjob").splitlines()[0])
    assert sorted(line.split()[0] for line in said.splitlines()) == PODS
    shell(f"kubectl wait --for=condition=Succeeded pytorchjob/{JOB} --timeout=110s")
    shell(f"kubectl describe pytorchjob {JOB}")
    (volume,) = shell.get("pvc")
    assert (volume["metadata"]["name"], volume["status"]["phase"]) == ("data", "Bound")


@pytest.mark.usefixtures("trained", "alone")  # the single pod is not the job's
def test_its_pods_are_found_by_the_operators_label_alone(shell: Shell) -> None:
    assert "No resources found" in shell(documents.printed("kubectl get pods -l job-name"))
    said = shell(f"kubectl get pods --no-headers -l training.kubeflow.org/job-name={JOB} -n $USER_NAMESPACE")
    assert len(said.splitlines()) == 3


def test_three_ranks_share_the_steps_of_one_pod(trained: dict[str, str], alone: str) -> None:
    """The guide's own comparison: 48 steps of one pod, 16 of each of three ranks, for 6 epochs; the same accuracy.

    Fewer and larger steps end elsewhere, so that accuracies are the same within the 0.05 of `compare`.
    """
    assert steps(alone) == [48] * 6
    assert [steps(trained[pod]) for pod in PODS] == [[16] * 6] * 3
    verdict = compare(result(alone), result(trained[PODS[0]]))
    assert verdict.passed, verdict.text()
    accuracies = {str([event["accuracy"] for event in epochs(trained[pod])]) for pod in PODS}
    assert len(accuracies) == 1, "the same on each rank, after the master communicates with the two workers"


@pytest.mark.usefixtures("alone")
def test_logs_and_model_file_lie_in_the_volume(shell: Shell) -> None:
    """`The training job saves logs and model file in the volume`: of the job and of the single pod."""
    files = Files(shell.lab, shell.namespace, "data")
    names = files.hashes()
    for folder in ("job", "single"):
        (logs,) = (name for name in names if name.startswith(f"{folder}/logs/events.out.tfevents."))
        place = shell.folder / "events"
        place.write_bytes(files.content(logs))
        saved = json.loads(files.content(f"{folder}/result.json"))
        points = [value for tag, _, value in scalars(place) if tag == "accuracy"]
        assert points == pytest.approx(saved["epoch_accuracies"], abs=1e-4)
        assert f"{folder}/{saved['model_state']}" in names
    assert names["job/model.safetensors"] != names["single/model.safetensors"], "a file of each training"


@pytest.mark.usefixtures("claim", "gpus")
def test_the_gpu_job_is_placed_and_given_its_devices(shell: Shell) -> None:
    """CUDA does not run on simulated GPUs, so that nccl has to be where it ends."""
    job = f"{JOB}-gpu"
    shell(documents.adapted(GPU))
    devices(shell, job, 2)
    refusal = "--backend nccl needs a GPU and this process sees none"
    shell.lab.wait("nccl is what it asks for", lambda: refusal in shell(f"kubectl logs {job}-master-0"), 300)
    shell(f"kubectl delete pytorchjob {job}")
