"""Simulated nodes on a live cluster: they renew leases, and figures of a cluster that has lost one are refused."""

from __future__ import annotations

import contextlib
import functools
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from lab.errors import LabError
from lab.simulated import LEASES, kwok, lost, nodes, ready
from tests.support.teams_live import until

if TYPE_CHECKING:
    from pathlib import Path

    from gangplank.cluster.client import Kube

SILENT = timedelta(seconds=50)  # Kubernetes' default: a node that has been silent for longer is lost
WITHIN_S = 180  # for a lease that is renewed each 30 s, and for a node that has none
SIZE = {"cpu": "1", "memory": "1Gi"}


def renewed(kube: Kube, name: str) -> bool:
    """Whether a node's lease was renewed after the node would have been lost without one."""
    node, lease = kube.get(f"/api/v1/nodes/{name}"), kube.get(f"{LEASES}/{name}")
    if not node or not lease:
        return False
    created, last = node["metadata"]["creationTimestamp"], lease["spec"]["renewTime"]
    return datetime.fromisoformat(last) - datetime.fromisoformat(created) > SILENT


def lose_a_node(kubeconfig: str, kube: Kube, folder: Path) -> None:
    """A run in which KWOK ends before its node is removed."""
    earlier = lost(kube)
    with contextlib.ExitStack() as running:
        running.enter_context(kwok(kubeconfig, folder))
        with nodes(kube, "lost", [SIZE], {}):
            running.close()
            until(lambda: lost(kube) - earlier, "a lost node", WITHIN_S)


def test_a_node_stays_ready_while_kwok_runs_and_a_run_that_lost_one_is_refused(
    kubeconfig: str, kube: Kube, tmp_path: Path
) -> None:
    with kwok(kubeconfig, tmp_path), nodes(kube, "kept", [SIZE], {}) as names:
        until(functools.partial(renewed, kube, *names), "a renewed lease", WITHIN_S)
        assert {*names} <= ready(kube)
    with pytest.raises(LabError, match="got 1 that the cluster took for lost"):
        lose_a_node(kubeconfig, kube, tmp_path)
    assert kube.get("/api/v1/nodes/lost-0") is None
