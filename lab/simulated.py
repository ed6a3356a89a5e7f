"""Nodes that KWOK keeps ready on a cluster, and whose pods it says are running: for tests and figures of many pods."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gangplank.k8s.conditions import has_condition
from gangplank.wait import late, polls
from lab.build.parts import build
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
NODE_STAGES = ("node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease")
READY, DELETE = "pod/fast/pod-ready", "pod/fast/pod-delete"
COMPLETE = "pod/fast/pod-complete"
# As a kubelet does, a pod that is deleted fails before it goes: a Job may keep it for a while, and its node is free by
# then. KWOK's own stage leaves it running.
HELD = {"key": ".metadata.finalizers", "operator": "Exists"}
FAILED: dict[str, Any] = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": "pod-failed"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {"matchExpressions": [
            {"key": ".metadata.deletionTimestamp", "operator": "Exists"}, HELD,
            {"key": ".status.phase", "operator": "In", "values": ["Pending", "Running"]},
        ]},
        "next": {"statusTemplate": "phase: Failed\n"},
    },
}  # fmt: skip
KEY = "kwok.x-k8s.io/node"
TAINT = {"key": KEY, "value": "fake", "effect": "NoSchedule"}
TOLERATION = {"key": KEY, "operator": "Exists"}
READY_S = 120
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# By default four pods start at once: the nodes would be slower than the scheduler. And they have no leases: the cluster
# would take each for lost after 50 s, and mark all of its pods. A quarter of this time passes between two renewals;
# at a kubelet's 10 s, those of 1,000 nodes would be half of the work of a processor.
SETTINGS = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration",
    "options": {"podPlayStageParallelism": 16, "nodePlayStageParallelism": 16,
                "nodeLeaseParallelism": 16, "nodeLeaseDurationSeconds": 120},
}  # fmt: skip


def stages(folder: Path, lasts: str) -> Iterator[Json]:
    """What nodes and pods do, and when."""
    for name in (*NODE_STAGES, READY):
        yield yaml.safe_load((folder / f"{name}.yaml").read_text())
    yield FAILED
    removed = yaml.safe_load((folder / f"{DELETE}.yaml").read_text())
    removed["spec"]["selector"]["matchExpressions"].append({**HELD, "operator": "DoesNotExist"})
    yield removed
    if lasts:
        ends = yaml.safe_load((folder / f"{COMPLETE}.yaml").read_text())
        ends["spec"]["delay"] = {"durationFrom": {"expressionFrom": f'.metadata.annotations["{lasts}"]'}}
        yield ends


@contextlib.contextmanager
def kwok(kubeconfig: str, folder: Path, lasts: str = "") -> Iterator[int]:
    """KWOK, for as long as the block runs; its process.

    Pods run until they are deleted, or, with `lasts`, for as long as this annotation of theirs says.
    """
    built = build(["kwok"], lambda line: print(line, file=sys.stderr, flush=True), roots=())
    config = folder / "kwok.yaml"
    config.write_text(yaml.safe_dump_all([SETTINGS, *stages(Path(built["charts"]["kwok-stages"]), lasts)]))
    command = [  # it ends with this process, also if that is killed
        "setpriv", "--pdeathsig=TERM",
        f"{built['bin']['kwok']}/kwok", f"--kubeconfig={kubeconfig}", f"--config={config}",
        "--manage-all-nodes=false", f"--manage-nodes-with-annotation-selector={KEY}=fake",
    ]  # fmt: skip
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


@contextlib.contextmanager
def nodes(
    kube: Kube, name: str, sizes: Sequence[Mapping[str, str]], labels: Mapping[str, str], taints: Sequence[Json] = ()
) -> Iterator[list[str]]:
    """Nodes of these sizes that are ready; only pods that tolerate them, and their further taints, come.

    Raises LabError afterwards if the cluster has taken one for lost meanwhile: it has marked the node's pods, and begun
    to replace them.
    """
    names = [f"{name}-{number}" for number in range(len(sizes))]
    released(kube, names)
    uids = set()
    try:
        for one, size in zip(names, sizes, strict=True):
            full = {"ephemeral-storage": "1Ti", "pods": "110", **size}
            meta = {"name": one, "labels": dict(labels), "annotations": {KEY: "fake"}}
            status = {"allocatable": full, "capacity": full}
            spec = {"taints": [TAINT, *taints]}
            node = kube.call("POST", "/api/v1/nodes", {"metadata": meta, "spec": spec, "status": status})
            uids.add(node["metadata"]["uid"])
        for _ in polls(READY_S, 0.5):
            if not (waiting := {*names} - ready(kube)):
                break
        else:
            raise LabError(late("simulated nodes", f"{len(waiting)} that are not ready", "all ready", READY_S))
        yield names
        if gone := uids & lost(kube):
            got = f"{len(gone)} that the cluster took for lost"
            raise LabError(f"simulated nodes: got {got}, expected none; repeat it on an idle machine")
    finally:
        for one in names:
            if kube.get(f"/api/v1/nodes/{one}"):
                kube.call("DELETE", f"/api/v1/nodes/{one}")
        released(kube, names)


def released(kube: Kube, names: Sequence[str]) -> None:
    """None of these nodes has a lease: while an ended KWOK holds one, another leaves the node alone."""
    for lease in kube.call("GET", LEASES)["items"]:
        meta = lease["metadata"]
        if meta["name"] in names:
            kube.delete_at(f"{LEASES}/{meta['name']}", meta["uid"])


def lost(kube: Kube) -> set[str]:
    """The uids of the nodes that the cluster took for lost, as far as its events say."""
    events = kube.call("GET", "/api/v1/events", query={"fieldSelector": "reason=NodeNotReady"})["items"]
    return {event["involvedObject"].get("uid") for event in events}


def ready(kube: Kube) -> set[str]:
    """The nodes that are ready."""
    items = kube.call("GET", "/api/v1/nodes")["items"]
    return {node["metadata"]["name"] for node in items if has_condition(node, "Ready")}
