"""`gangplank preflight --try-network` and team_network_trial: networks that enforce policies, and others."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from gangplank.cluster import network_trial
from gangplank.cluster.client import Kube
from tests.cluster.conftest import ROOT, STATE
from tests.support.inventories import write_inventory
from tests.support.teams_live import teams

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cluster.conftest import Lab

ADMIN, IMAGE = str(STATE / "admin.kubeconfig"), "gangplank.dev/trainer:0.1.0"


def gone(lab: Lab) -> bool:
    """Whether the trial's namespace is removed, or about to be."""
    spaces: list[dict[str, Any]] = lab.get("namespaces")
    return all(item["metadata"]["name"] != network_trial.SPACE for item in spaces)


def test_the_lab_enforces_them_and_nothing_of_the_trial_stays(lab: Lab) -> None:
    lab.wait("no trial", lambda: gone(lab))
    command = [sys.executable, "-m", "gangplank", "preflight", "--kubeconfig", ADMIN, "--try-network", "-o", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["network policies"]["state"] == "ok", done.stdout
    assert "a pod that a policy closes was not reached" in checks["network policies"]["finding"]
    lab.wait("the trial's namespace is gone", lambda: gone(lab))


def test_a_pod_that_is_reached_in_spite_of_the_policy_is_a_problem(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that closes nothing is to the pods what a network is that enforces none."""
    lab.wait("no trial", lambda: gone(lab))
    spec = {**network_trial.POLICY["spec"], "podSelector": {"matchLabels": {"app": "nobody"}}}
    monkeypatch.setattr(network_trial, "POLICY", {**network_trial.POLICY, "spec": spec})
    (problem,) = network_trial.trial(Kube(ADMIN), IMAGE).problems
    assert str(problem).startswith("network policies: got a pod was reached that a policy closes, expected ")
    lab.wait("the trial's namespace is gone", lambda: gone(lab))


def test_pods_that_do_not_run_are_a_problem_with_their_reason(lab: Lab) -> None:
    lab.wait("no trial", lambda: gone(lab))
    (problem,) = network_trial.trial(Kube(ADMIN), "registry.example.org/absent:1", limit_s=60).problems
    assert "registry.example.org/absent:1" in str(problem)
    lab.wait("the trial's namespace is gone", lambda: gone(lab))


def test_teams_are_changed_only_if_the_network_enforces_policies(kubeconfig: str, lab: Lab, tmp_path: Path) -> None:
    cap = {"cpu": "1", "memory": "2Gi", "ephemeral_storage": "20Gi", "pods": 40}
    site = write_inventory(tmp_path / "site", {"tried": {"members": [{"user": "zoe", "role": "lead"}], "cap": cap}})
    tried = "trying whether its network enforces NetworkPolicies"
    try:
        without_python = "docker.io/library/busybox:1.37"
        refused = teams(site, team_kubeconfig=kubeconfig, team_network_trial=without_python)
        assert refused.returncode != 0
        assert "Nothing was changed:" in refused.stdout
        assert "network policies: got " in refused.stdout
        assert all(item["metadata"]["name"] != "tried" for item in lab.get("namespaces"))
        said = [teams(site, team_kubeconfig=kubeconfig, team_network_trial=IMAGE) for _ in range(2)]
        assert [done.returncode for done in said] == [0, 0], said[0].stdout + said[1].stdout
        assert [tried in done.stdout for done in said] == [True, False]  # the second run writes no policy
        lab.get("networkpolicies", "-n", "tried")
    finally:
        write_inventory(site, {})
        done = teams(site, team_kubeconfig=kubeconfig, teams_remove=["tried"])
    assert done.returncode == 0, done.stdout + done.stderr
    lab.wait("the trial's namespace is gone", lambda: gone(lab))
