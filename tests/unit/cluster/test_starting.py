"""A helper pod gets the time that its node needs to pull a large image; what cannot start does not get it."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.cluster.data_pod import PULL_S, PUSH_S
from gangplank.cluster.patience import Patience
from gangplank.cluster.reader import DEADLINE_S
from gangplank.cluster.starting import IMAGE_S, LOOK_S, START_S, Start
from gangplank.errors import KubeError
from gangplank.k8s.nodes import UNREACHABLE

Json = dict[str, Any]
UNPLACED = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
HEAD = "pod vision/data-mnist, which writes to the claim: got"


class Cluster:
    """What is asked of a cluster beside the pod itself."""

    def __init__(self, *events: Json, taints: tuple[str, ...] = (), status: int = 0) -> None:
        self.events, self.taints, self.status = events, taints, status
        self.notes: list[str] = []
        self.asked = 0
        self.patience = Patience(say=self.notes.append)

    def call(self, _method: str, _where: str, query: Json) -> Json:
        assert query == {"fieldSelector": "involvedObject.uid=u"}
        self.asked += 1
        if self.status:
            raise KubeError("no", self.status)
        return {"items": list(self.events)}

    def get(self, _where: str) -> Json:
        return {"spec": {"taints": [{"key": key} for key in self.taints]}}


def pod(reason: str = "ContainerCreating", message: str = "", node: str = "node-1", **status: Any) -> Json:
    waiting = {"name": "data", "image": "img", "state": {"waiting": {"reason": reason, "message": message}}}
    started = {"phase": "Pending", **({"containerStatuses": [waiting]} if node else {}), **status}
    spec = {"containers": [{"name": "data", "image": "img"}], **({"nodeName": node} if node else {})}
    return {"metadata": {"namespace": "vision", "name": "data-mnist", "uid": "u"}, "spec": spec, "status": started}


def event(reason: str, message: str, uid: str = "u") -> Json:
    about = {"kind": "Pod", "name": "data-mnist", "uid": uid}
    return {"reason": reason, "message": message, "involvedObject": about, "lastTimestamp": "2026-01-01T00:00:00Z"}


def waited(cluster: Any, live: Json) -> tuple[float, str]:
    """When the wait for a pod that stays as it is ends, and what the command says."""
    start = Start(cluster, "writes to the claim")
    for second in range(2 * IMAGE_S):
        try:
            start.check(live, second)
        except KubeError as error:
            return second, str(error)
    raise AssertionError("it is waited for without end")


@pytest.mark.parametrize("status", [0, 403])
def test_an_image_of_many_gib_gets_its_time_and_one_line_says_so(status: int) -> None:
    cluster = Cluster(event("Pulling", 'Pulling image "img"'), status=status)
    ended_s, text = waited(cluster, pod())
    assert 15 * 60 < ended_s <= 15 * 60 + 2 * LOOK_S
    work = "while node node-1 mounts its volumes and pulls its image img"
    assert cluster.notes == [f"pod vision/data-mnist, which writes to the claim: waiting up to {IMAGE_S} s {work}"]
    assert text.startswith(f"{HEAD} Pending on node node-1, expected its start within {IMAGE_S} s. Fix: see what")
    fix = "(kubectl events -n vision --for pod/data-mnist), or bring the image img to it, then try again"
    assert text.endswith(fix)
    assert cluster.asked <= IMAGE_S / LOOK_S + 1, "the API server is asked now and then"


MOUNT = event("FailedMount", "MountVolume.SetUp failed: no such disk")


@pytest.mark.parametrize(
    ("cluster", "live", "got", "fix"),
    [
        (Cluster(), pod(node="", conditions=[UNPLACED]),
         "data-mnist: not scheduled: 0/2 nodes are available", "free a place on the claim's node"),
        (Cluster(), pod(node=""), "Pending", "free a place on the claim's node"),
        (Cluster(), pod("ErrImagePull", "not found"),
         "the image img cannot be had (data-mnist: ErrImagePull: not found)", "correct the image's name, or bring it"),
        (Cluster(), pod("CreateContainerConfigError", 'secret "keys" not found'),
         'a container of data-mnist cannot be created: secret "keys" not found', "correct what this line names, then"),
        (Cluster(MOUNT), pod(), "a volume of data-mnist cannot be mounted (FailedMount: MountVolume", "correct what"),
        (Cluster(taints=(UNREACHABLE,)), pod(), "its node node-1 does not answer", "bring the node back, then"),
    ],
)  # fmt: skip
def test_what_does_not_start_is_not_waited_for_as_if_it_pulled_an_image(
    cluster: Any, live: Json, got: str, fix: str
) -> None:
    ended_s, text = waited(cluster, live)
    assert START_S < ended_s <= START_S + 2 * LOOK_S
    assert text.startswith(f"{HEAD} {got}")
    assert f"expected its start within {START_S} s. Fix: {fix}" in text
    assert text.endswith(", then try again")
    assert cluster.notes == []


def test_what_is_said_of_another_pod_does_not_count() -> None:
    assert waited(Cluster({**MOUNT, "involvedObject": {"uid": "other"}}), pod())[0] > IMAGE_S


def test_a_pod_has_time_for_its_work_after_the_longest_pull() -> None:
    """Its own deadline counts from when its node takes it."""
    assert min(DEADLINE_S, PUSH_S, PULL_S) >= IMAGE_S + 900
