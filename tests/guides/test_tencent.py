"""Tencent's page on PyTorch-Operator: the chart by its values, instead of the lab's own release, and the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import ROOT
from tests.guides.conftest import COMPONENTS, devices, proven
from tests.support import documents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.conftest import Lab
    from tests.guides.conftest import Shell

JOB = "pytorch-dist-mnist-nccl"
INSTALL = f"helm install pytorch-operator {ROOT}/charts/training-operator"
OURS = "--set image.repository=ghcr.io/kubeflow/training-v1/training-operator --set image.tag=v1-93c5489"


@pytest.fixture(scope="module")
def alone(shell: Shell, running: Lab) -> Iterator[None]:
    """A cluster with the CRDs and without an operator."""
    shell("helm uninstall training-operator -n kubeflow --wait")
    try:
        yield
    finally:
        shell("helm uninstall pytorch-operator --ignore-not-found --wait")
        running.playbook("playbooks/site.yml", "--tags", "training_operator", "-e", COMPONENTS)


@pytest.fixture(scope="module")
def installed(shell: Shell, alone: None) -> None:  # noqa: ARG001  # before it
    """`Deploy`, with its four values."""
    namespace = "--set namespace.create=true --set namespace.name=pytorch-operator"
    said = shell(f"{INSTALL} {OURS} {namespace} --wait --timeout 110s")
    assert "kubectl --namespace pytorch-operator get deployment training-operator" in said


def test_the_tag_that_the_page_has_is_refused(shell: Shell) -> None:
    said = shell.refused(f"{INSTALL} --set image.tag=latest --dry-run")
    assert "image.tag: got latest" in said
    assert "Fix: leave image.tag out" in said


@pytest.mark.usefixtures("installed")
def test_the_operator_runs_in_its_own_namespace(shell: Shell) -> None:
    assert "1/1" in shell("kubectl --namespace pytorch-operator get deployment training-operator")
    assert "pytorchjobs.kubeflow.org" in shell("kubectl get crd pytorchjobs.kubeflow.org")


@pytest.mark.usefixtures("installed", "gpus")
def test_the_job_is_placed_and_given_its_devices(shell: Shell) -> None:
    shell(documents.printed("kubectl create -f ./pytorch_job"))
    devices(shell, JOB, 2)
    assert JOB in shell("kubectl get pytorchjobs")
    assert JOB in shell(f"kubectl describe pytorchjob {JOB}")
    shell("kubectl delete -f ./pytorch_job_mnist_nccl.yaml")
    shell.lab.wait("its pods are gone", lambda: not shell.get("pods"))


@pytest.mark.usefixtures("installed")
def test_without_a_gpu_it_trains_with_gloo(shell: Shell) -> None:
    """As the page says below the job: another backend where no GPU is asked for."""
    words = {"limits:": "limits: {}", "nvidia.com/gpu: 1": "", '"nccl"': '"gloo"'}
    shell.change("pytorch_job_mnist_nccl.yaml", **words)
    shell(documents.printed("kubectl create -f ./pytorch_job"))
    proven(shell.logs(f"{JOB}-master-0", f"{JOB}-worker-0"))
    shell(f"kubectl wait --for=condition=Succeeded pytorchjob/{JOB} --timeout=60s")
    shell(f"kubectl delete pytorchjob {JOB}")


@pytest.mark.usefixtures("installed")
def test_removing_it_takes_its_namespace_and_no_crd(shell: Shell) -> None:
    shell("helm uninstall pytorch-operator --wait")
    shell("kubectl wait --for=delete namespace/pytorch-operator --timeout=100s")
    shell("kubectl get crd pytorchjobs.kubeflow.org")
