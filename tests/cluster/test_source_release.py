"""Fault C4: source `release` on the lab: Volcano runs from a chart and images with the site's hashes.

A server on the loopback has upstream's own chart and CRDs, from the modules that go.sum names. Chart repositories and
registries on the internet were not tried.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.conftest import ROOT, Lab
from tests.support.loopback import chart_repository, served

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = {"scheduler": "vc-scheduler", "controller": "vc-controller-manager", "admission": "vc-webhook-manager"}
OPERATOR_CRD = "pytorchjobs.kubeflow.org"


@pytest.fixture
def digests(kubeconfig: str) -> Iterator[dict[str, str]]:  # noqa: ARG001  the fixture: the lab is up, with Volcano
    """Digests of Volcano's images by the chart's names. The nodes have these images; others would pull them.

    Afterwards Volcano is that of the lab again.
    """
    lab = Lab()
    images = {image["name"]: image["digest"] for image in lab.parts["images"]}
    names = {key: next(item for item in images if f"/{name}:" in item) for key, name in NAMES.items()}
    ctr = (f"/mnt/parts/{Path(lab.parts['bin']['containerd']).parent.name}/bin/ctr", "-n", "k8s.io", "images")
    nodes = lab.ready()
    pinned = {name: f"{name.rpartition(':')[0]}@{images[name]}" for name in names.values()}
    for node in nodes:
        for name, target in pinned.items():
            lab.inside(node, *ctr, "tag", "--force", name, target)
    yield {key: images[name] for key, name in names.items()}
    lab.playbook("playbooks/site.yml", "--tags=volcano")
    for node in nodes:
        lab.inside(node, *ctr, "rm", *pinned.values())


def test_c4_volcano_runs_from_a_chart_and_images_of_the_sites_hashes(
    digests: dict[str, str], tmp_path: Path
) -> None:
    lab = Lab()
    archive = chart_repository(lab.parts["bin"]["helm"], lab.parts["charts"]["volcano"], tmp_path)
    with served(tmp_path) as address:
        site = {
            "volcano_source": "release",
            "volcano_chart_repository": address,
            "volcano_chart_sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "volcano_image_digests": digests,
        }
        said = [lab.playbook("playbooks/site.yml", "--tags=volcano", "-e", json.dumps(site)) for _ in range(2)]
    assert ["changed=0" in text for text in said] == [False, True]
    version = archive.stem.rpartition("-")[2]
    expected = {f"docker.io/volcanosh/{NAMES[key]}:v{version}@{digest}" for key, digest in digests.items()}
    pods: list[dict[str, Any]] = lab.get("pods", "--namespace=volcano-system", "--field-selector=status.phase=Running")
    assert {part["image"] for pod in pods for part in pod["spec"]["containers"]} == expected


def test_c4_one_changed_byte_of_an_operators_crd_is_refused_and_nothing_is_changed(lab: Lab, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lab.build", "--show", "charts.training-operator-crds"]
    crds = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    folder = tmp_path / "v1.9.4/manifests/base/crds"
    shutil.copytree(crds, folder)
    path = folder / "kubeflow.org_pytorchjobs.yaml"
    path.write_bytes(path.read_bytes() + b"#")
    before = lab.kubectl("get", "crds,namespaces", "--output=name")
    with served(tmp_path) as address:
        site = {
            "site_components": ["training_operator"],
            "training_operator_source": "release",
            "training_operator_crds_repository": address,
            "training_operator_gang_scheduler": "none",
        }
        with pytest.raises(AssertionError) as failure:
            lab.playbook("playbooks/site.yml", "-e", json.dumps(site))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"{path.name}: got sha256 {digest}, expected " in str(failure.value)
    assert lab.kubectl("get", "crds,namespaces", "--output=name") == before
