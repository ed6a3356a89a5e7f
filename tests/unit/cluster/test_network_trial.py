"""The trial of a network: its namespace is removed whatever happens, and two trials do not meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gangplank.cluster.client import Kube
from gangplank.cluster.network_trial import PODS, SPACE, judged, trial
from gangplank.errors import KubeError

if TYPE_CHECKING:
    from tests.unit.conftest import Api

HERE = f"/api/v1/namespaces/{SPACE}"


@pytest.mark.parametrize("result", ["open", "unreachable", "pods that did not run (open: ErrImagePull)", "x"])
def test_only_a_closed_pod_that_was_not_reached_is_no_problem(result: str) -> None:
    assert judged("enforced").state == "ok"
    (problem,) = judged(result).problems
    assert "Fix: " in str(problem)


def test_the_namespace_is_removed_if_no_pod_ever_runs(api: Api) -> None:
    (problem,) = trial(Kube(api.kubeconfig), "image", limit_s=0).problems
    assert "did not run" in str(problem)
    assert HERE not in api.objects
    assert f"DELETE {HERE}" in api.seen
    assert f"POST {PODS}" in " ".join(api.seen)


def test_a_pod_whose_program_cannot_start_ends_the_trial_with_its_reason(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image without python3: waiting longer shows nothing more."""
    ended = {"terminated": {"reason": "StartError", "message": 'exec: "python3": not found'}}
    asked, status = Kube.get, {"phase": "Failed", "containerStatuses": [{"state": ended}]}

    def get(kube: Kube, where: str) -> object:
        live = asked(kube, where)
        return {**live, "status": status} if live and where == f"{PODS}/open" else live

    monkeypatch.setattr(Kube, "get", get)
    (problem,) = trial(Kube(api.kubeconfig), "image", limit_s=3600).problems
    assert 'a pod that failed (open: StartError: exec: "python3": not found)' in str(problem)


def test_a_trial_begins_once_the_namespace_of_the_last_is_gone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = {"name": SPACE, "uid": "first", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    api.objects[HERE] = {"metadata": meta}
    asked = Kube.get

    def get(kube: Kube, where: str) -> object:
        live = asked(kube, where)
        if where == HERE and api.objects.get(HERE, {}).get("metadata", {}).get("uid") == "first":
            del api.objects[HERE]
        return live

    monkeypatch.setattr(Kube, "get", get)
    (problem,) = trial(Kube(api.kubeconfig), "image", limit_s=1).problems
    assert "did not run" in str(problem)
    assert sum(line == "POST /api/v1/namespaces" for line in api.seen) == 2


def test_what_a_trial_left_that_was_killed_is_removed(api: Api) -> None:
    meta = {"name": SPACE, "uid": "first", "creationTimestamp": "2026-01-01T00:00:00Z"}
    api.objects[HERE] = {"metadata": meta}
    (problem,) = trial(Kube(api.kubeconfig), "image", limit_s=1).problems
    assert "did not run" in str(problem)
    assert HERE not in api.objects


def test_a_second_trial_is_refused_and_leaves_the_first_alone(api: Api) -> None:
    api.objects[HERE] = {"metadata": {"name": SPACE, "uid": "first"}}
    with pytest.raises(KubeError, match="kubectl delete namespace"):
        trial(Kube(api.kubeconfig), "image", limit_s=0)
    assert HERE in api.objects
