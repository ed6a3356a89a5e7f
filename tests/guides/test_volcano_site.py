"""Volcano's page on PyTorch: its job, with the one wrong word corrected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.guides.conftest import proven

if TYPE_CHECKING:
    from tests.guides.conftest import Shell


def test_the_example_as_it_is_printed_is_no_manifest(shell: Shell) -> None:
    assert "apiVersion" in shell.refused("kubectl apply -f volcano-site.yaml")
    assert shell.get("vcjob") == []


def test_the_example_trains(shell: Shell) -> None:
    shell.change("volcano-site.yaml", yamlapiVersion="apiVersion")
    shell("kubectl apply -f volcano-site.yaml")
    logs = shell.logs("pytorch-job-master-0", "pytorch-job-worker-0", "pytorch-job-worker-1")
    shell("kubectl wait --for=jsonpath='{.status.state.phase}'=Completed vcjob/pytorch-job --timeout=110s")
    proven(logs)
