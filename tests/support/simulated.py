"""Nodes that KWOK keeps ready on the lab, and whose pods it says are running."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.bare_site import shown
from tests.support.teams_live import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
STAGES = (
    "node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready", "pod/fast/pod-delete",
)  # fmt: skip
KEY = "kwok.x-k8s.io/node"
TAINT = {"key": KEY, "value": "fake", "effect": "NoSchedule"}
TOLERATION = {"key": KEY, "operator": "Exists"}


@contextlib.contextmanager
def kwok(kubeconfig: str, folder: Path) -> Iterator[None]:
    """KWOK, for as long as the block runs."""
    stages = [yaml.safe_load((shown("charts.kwok-stages") / f"{name}.yaml").read_text()) for name in STAGES]
    config = folder / "kwok.yaml"
    config.write_text(yaml.safe_dump_all(stages))
    command = [
        shown("bin.kwok") / "kwok", f"--kubeconfig={kubeconfig}", f"--config={config}",
        "--manage-all-nodes=false", f"--manage-nodes-with-annotation-selector={KEY}=fake",
    ]  # fmt: skip
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.terminate()


@contextlib.contextmanager
def nodes(kube: Kube, label: str, cores: list[int]) -> Iterator[list[str]]:
    """Nodes with a label and so many cores each, ready; only pods that tolerate them come."""
    names = [f"{label}-{number}" for number in range(len(cores))]
    try:
        for name, many in zip(names, cores, strict=True):
            sizes = {"cpu": str(many), "memory": f"{4 * many}Gi", "ephemeral-storage": "1Ti", "pods": "110"}
            meta = {"name": name, "labels": {"mix": label}, "annotations": {KEY: "fake"}}
            status = {"allocatable": sizes, "capacity": sizes}
            kube.call("POST", "/api/v1/nodes", {"metadata": meta, "spec": {"taints": [TAINT]}, "status": status})
        until(lambda: ready(kube) >= {*names}, "the simulated nodes are ready", 120)
        yield names
    finally:
        for name in names:
            if kube.get(f"/api/v1/nodes/{name}"):
                kube.call("DELETE", f"/api/v1/nodes/{name}")


def ready(kube: Kube) -> set[str]:
    """The nodes that are ready."""
    return {
        item["metadata"]["name"]
        for item in kube.call("GET", "/api/v1/nodes")["items"]
        if any(one["type"] == "Ready" and one["status"] == "True" for one in item["status"].get("conditions") or [])
    }
