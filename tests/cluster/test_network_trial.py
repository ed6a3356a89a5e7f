"""`gangplank preflight --try-network`: a network that enforces policies, one that does not, pods that do not run."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from gangplank.cluster import network_trial
from gangplank.cluster.client import Kube
from tests.cluster.conftest import ROOT, STATE

if TYPE_CHECKING:
    import pytest

    from tests.cluster.conftest import Lab

ADMIN = str(STATE / "admin.kubeconfig")


def gone(lab: Lab) -> bool:
    """Whether the trial's namespace is removed, or about to be."""
    spaces: list[dict[str, Any]] = lab.get("namespaces")
    return all(item["metadata"]["name"] != network_trial.SPACE for item in spaces)


def test_the_lab_enforces_them_and_nothing_of_the_trial_stays(lab: Lab) -> None:
    lab.wait("no trial", lambda: gone(lab))
    command = [sys.executable, "-m", "gangplank", "preflight", "--kubeconfig", ADMIN, "--try-network", "-o", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["network policies"]["state"] == "ok", done.stdout
    assert "a pod that a policy closes was not reached" in checks["network policies"]["finding"]
    lab.wait("the trial's namespace is gone", lambda: gone(lab))


def test_a_pod_that_is_reached_in_spite_of_the_policy_is_a_problem(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that closes nothing is to the pods what a network is that enforces none."""
    lab.wait("no trial", lambda: gone(lab))
    spec = {**network_trial.POLICY["spec"], "podSelector": {"matchLabels": {"app": "nobody"}}}
    monkeypatch.setattr(network_trial, "POLICY", {**network_trial.POLICY, "spec": spec})
    (problem,) = network_trial.trial(Kube(ADMIN), "gangplank.dev/trainer:0.1.0").problems
    assert str(problem).startswith("network policies: got a pod was reached that a policy closes, expected ")
    lab.wait("the trial's namespace is gone", lambda: gone(lab))


def test_pods_that_do_not_run_are_a_problem_with_their_reason(lab: Lab) -> None:
    lab.wait("no trial", lambda: gone(lab))
    (problem,) = network_trial.trial(Kube(ADMIN), "registry.example.org/absent:1", limit_s=15).problems
    assert "registry.example.org/absent:1" in str(problem)
    lab.wait("the trial's namespace is gone", lambda: gone(lab))
