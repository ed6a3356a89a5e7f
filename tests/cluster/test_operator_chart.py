"""Every object of charts/training-operator is one that the API server takes, no field unknown, in each shape of it.

A dry run on the live API server: stricter than a schema, which knows neither defaults nor what fits together.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.conftest import ROOT, Lab

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ["pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob"]
SHAPES: dict[str, dict[str, object]] = {
    "defaults": {"namespace": {"create": True}},
    "everything": {
        "kinds": KINDS,
        "gangScheduler": "volcano",
        "replicas": 3,
        "networkPolicy": {"enabled": True, "metricsFrom": {"kubernetes.io/metadata.name": "monitoring"}},
        "image": {"pullSecrets": ["mirror"]},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    },
    "OpenShift": {
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None},
        "initContainer": {"securityContext": {"runAsUser": None}},
    },
    "nothing optional": {
        "metrics": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "aggregateRoles": False,
        "priorityClassName": "",
    },
}


def rendered(lab: Lab, values: dict[str, object], folder: Path) -> str:
    """By the lab's Helm, for an existing namespace."""
    (folder / "values.yaml").write_text(yaml.safe_dump({"namespace": {"create": False, "name": "default"}, **values}))
    words = [
        f"{lab.parts['bin']['helm']}/helm",
        "template",
        "training-operator",
        str(ROOT / "charts/training-operator"),
    ]
    version = lab.parts["versions"]["kubernetes"]  # else Helm takes it for one that the chart refuses
    command = [*words, "--values", str(folder / "values.yaml"), "--namespace", "kube-system", "--kube-version", version]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("full_kubeconfig")
def test_the_api_server_takes_every_object(shape: str, tmp_path: Path) -> None:
    lab = Lab()
    text = rendered(lab, SHAPES[shape], tmp_path)
    count = sum(item is not None for item in yaml.safe_load_all(text))
    words = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
    said = lab.kubectl(*words, stdin=text.replace("namespace: pytorch-operator", "namespace: default"))
    assert said.count("serverside-applied (server dry run)") == count > 8
