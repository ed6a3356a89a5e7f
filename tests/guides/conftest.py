"""The documents' commands in a shell, on the lab: GANGPLANK_KUBECONFIG where it is up, else one of our own.

Manifests, scripts and commands come out of the documents while the tests run (tests/support/documents.py), with the
lab's images and storage class.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.proof.records import read_records
from gangplank.proof.verdict import Expected, prove
from tests.cluster.conftest import ROOT, STATE, THREE, Lab
from tests.support import documents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]
FILES = {  # what the documents say to keep in a file, and words of its block
    "pytorch-job-with-configmap.yaml": 'title="pytorch-job-with-configmap.yaml"',
    "pytorch-demo.py": 'title="pytorch-demo.py"',
    "pytorch_job_mnist_nccl.yaml": 'name: "pytorch-dist-mnist-nccl"',
    "volcano-site.yaml": "name: pytorch-job\n",
}
COMPONENTS = json.dumps({"site_components": ["volcano", "storage", "training_operator"]})
EPOCHS = 3  # of trainer/train.py, which stands in for the documents' images and is given nothing else


class Shell:
    """A shell in a folder with the documents' manifests, with a kubeconfig of its own, in a namespace of its own."""

    def __init__(self, lab: Lab, folder: Path, namespace: str) -> None:
        self.lab, self.folder, self.namespace = lab, folder, namespace
        for name, words in FILES.items():
            (folder / name).write_text(documents.adapted(words))
        config = folder / "kubeconfig"
        shutil.copy(os.environ.get("GANGPLANK_KUBECONFIG") or STATE / "admin.kubeconfig", config)
        binaries = lab.parts["bin"]
        programs = f"{binaries['kubernetes']}:{binaries['helm']}:{os.environ['PATH']}"
        self.env = {**os.environ, "KUBECONFIG": str(config), "PATH": programs, "USER_NAMESPACE": namespace}

    def start(self, command: str) -> subprocess.Popen[str]:
        """Begin a command."""
        words = ["bash", "-euo", "pipefail", "-c", command]
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        return subprocess.Popen(words, cwd=self.folder, env=self.env, stdout=pipe, stderr=both, text=True)

    def __call__(self, command: str, timeout_s: float = 120) -> str:
        """What a command prints; fails with it."""
        running = self.start(command)
        said, _ = running.communicate(timeout=timeout_s)
        assert running.returncode == 0, f"{command}\n{said}"
        return said

    def refused(self, command: str) -> str:
        """What a command prints that has to fail."""
        running = self.start(command)
        said, _ = running.communicate(timeout=120)
        assert running.returncode != 0, f"{command}\n{said}"
        return said

    def change(self, name: str, **replace: str) -> None:
        """Put other words into a manifest in the shell's folder: what the lab cannot do as it is written."""
        text = (self.folder / name).read_text()
        for old, new in replace.items():
            assert old in text
            text = text.replace(old, new)
        (self.folder / name).write_text(text)

    def get(self, what: str) -> list[Json]:
        """Objects of the namespace."""
        items: list[Json] = json.loads(self(f"kubectl get {what} -n {self.namespace} -o json"))["items"]
        return items

    def logs(self, *pods: str) -> dict[str, str]:
        """What these pods say to their end, by `kubectl logs -f`, all at once: some jobs end with their master."""

        def running() -> bool:
            there = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in self.get("pods")}
            return all(there.get(pod) in {"Running", "Succeeded"} for pod in pods)

        self.lab.wait(f"{', '.join(pods)} run", running, 300)
        begun = {pod: self.start(f"kubectl logs -f {pod} -n $USER_NAMESPACE") for pod in pods}
        return {pod: following.communicate(timeout=900)[0] for pod, following in begun.items()}


def proven(logs: dict[str, str], epochs: int = EPOCHS) -> None:
    """That the trainer's ranks in these logs trained together, each on its own part of the data."""
    verdict = prove(read_records("\n".join(logs.values())), Expected(len(logs), epochs=epochs))
    assert verdict.passed, verdict.text()


def result(log: str) -> Json:
    """What the trainer's rank 0 says in the end, with its steps."""
    event: Json = next(json.loads(line) for line in log.splitlines() if line.startswith('{"event":"result"'))
    return {**event, "steps": event["ranks"][0]["steps"]}


@pytest.fixture(scope="session")
def running() -> Iterator[Lab]:
    """The lab with what the documents need; removed where it was not there before."""
    documents.folder()  # without them nothing is installed for tests that are then skipped
    lab = Lab()
    if os.environ.get("GANGPLANK_KUBECONFIG"):
        yield lab
        return
    there = (STATE / "admin.kubeconfig").exists()
    try:
        lab.playbook("playbooks/lab.yml", "playbooks/site.yml", "-e", COMPONENTS)
        yield lab
    finally:
        if not there:
            lab.playbook("playbooks/lab-down.yml")


@pytest.fixture(scope="session")
def three_nodes(running: Lab) -> Lab:
    """The lab with a third node, which goes with the lab."""
    running.more = (str(ROOT / "tests/cluster/three.yml"),)
    if len(running.ready()) < len(THREE):
        running.playbook("playbooks/lab.yml", "-e", COMPONENTS)
        running.wait("the third node is ready", lambda: len(running.ready()) == len(THREE), 120)
    return running


@pytest.fixture(scope="module")
def shell(running: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell for one document."""
    opened = Shell(running, tmp_path_factory.mktemp("shell"), f"gangplank-seeds-{uuid.uuid4().hex[:8]}")
    opened("kubectl create namespace $USER_NAMESPACE")
    opened("kubectl config set-context --current --namespace=$USER_NAMESPACE")  # vSphere's guide
    try:
        yield opened
    finally:
        opened("kubectl delete namespace $USER_NAMESPACE --timeout=600s", 700)


@pytest.fixture(scope="session")
def gpus(running: Lab) -> Iterator[Lab]:
    """Two simulated GPUs on each node, without the taint that the Flyte document's site has: the other documents' jobs
    do not tolerate it."""
    nodes = sorted(node["metadata"]["name"] for node in running.get("nodes"))
    untainted = json.dumps({"gpu_device_plugin_taints": [], "gpu_device_plugin_nodes": nodes})
    running.playbook("molecule/gpu/converge.yml", "-e", untainted)
    yield running
    if (STATE / "admin.kubeconfig").exists():  # else tests of the lab itself came after these, and have removed it
        running.playbook("molecule/gpu/cleanup.yml", "-e", untainted)


def devices(shell: Shell, job: str, count: int) -> list[Json]:
    """A PyTorchJob's pods, when each has come onto a node and has a GPU that is nobody else's there."""

    def pods_with_gpus() -> list[Json]:
        pods_of_job = shell.get(f"pods -l training.kubeflow.org/job-name={job}")
        assert len(pods_of_job) == count
        ids = [
            (pod["spec"]["nodeName"], identifier)
            for pod in pods_of_job
            for identifier in allocated(shell.lab, pod["spec"]["nodeName"], pod["metadata"]["uid"])
        ]
        return pods_of_job if len(ids) == len(set(ids)) == count else []

    pods: list[Json] = shell.lab.wait(f"a GPU for each pod of {job}", pods_with_gpus, 300)
    return pods


def allocated(lab: Lab, node: str, uid: str) -> list[str]:
    """The devices that a node's kubelet has given a pod, from its own notes."""
    notes = json.loads(lab.inside(node, "cat", "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"))
    entries = notes["Data"]["PodDeviceEntries"] or []
    mine = [entry for entry in entries if entry["PodUID"] == uid and entry["ResourceName"] == "nvidia.com/gpu"]
    return [identifier for entry in mine for numa in entry["DeviceIDs"].values() for identifier in numa]
