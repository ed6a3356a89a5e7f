"""Source `release` as a site has it: charts from a repository, images that the nodes pull from a registry.

Both are on this machine: upstream's own chart, packaged, and a registry (distribution) that the lab's nodes take for
every other. Nothing of Volcano or of the trainer is on the nodes before.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.build.image_store import import_image
from lab.build.parts import build
from tests.cluster.conftest import ROOT, Lab
from tests.support.loopback import chart_repository, served
from tests.support.registry import Registry, registry

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "198.18.0.254:5000"  # of this machine, on the nodes' link
NAMES = {"scheduler": "vc-scheduler", "controller": "vc-controller-manager", "admission": "vc-webhook-manager"}


def ctr(lab: Lab, node: str) -> list[str]:
    """The command that talks to the containerd of a node."""
    program = f"/mnt/parts/{Path(lab.parts['bin']['containerd']).parent.name}/bin/ctr"
    return [*lab.enter(node), program, "-n", "k8s.io"]


def on_node(lab: Lab, node: str, *words: str) -> str:
    command = [*ctr(lab, node), "images", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


def images() -> dict[str, dict[str, str]]:
    """Volcano's images and the trainer's, by name."""
    return {image["name"]: image for image in build(["volcano", "trainer"], print, roots=())["images"]}


def forget(lab: Lab, node: str, digests: set[str]) -> None:
    """Remove images from a node, under whatever names it has them."""
    lines = [line.split() for line in on_node(lab, node, "ls").splitlines()[1:]]
    on_node(lab, node, "rm", "--sync", *(words[0] for words in lines if words[2] in digests))


def has(lab: Lab, node: str) -> set[str]:
    return set(on_node(lab, node, "ls", "-q").split())


@pytest.fixture(scope="module")
def mirror(kubeconfig: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:  # noqa: ARG001  the lab is up
    """A registry with the images, which the nodes lack. Afterwards the lab is as before."""
    lab = Lab()
    ours = images()
    assert len(ours) == 4
    with registry(tmp_path_factory.mktemp("registry"), HOST) as running:
        for name, image in ours.items():
            assert running.push(Path(image["archive"]), name.partition("/")[2]) == image["digest"]
        lab.playbook("playbooks/uninstall.yml", "-e", json.dumps({"site_components": ["volcano"]}))
        try:
            lab.playbook("playbooks/lab.yml", "--tags=cluster", "-e", f"lab_cluster_registry=http://{HOST}")
            for node in lab.ready():
                forget(lab, node, {image["digest"] for image in ours.values()})
                assert not ours.keys() & has(lab, node)
            yield running
        finally:
            for node in lab.ready():
                for name, image in images().items():
                    if name not in has(lab, node):
                        import_image(ctr(lab, node), Path(image["archive"]))
            lab.playbook("playbooks/lab.yml", "--tags=cluster")
            lab.playbook("playbooks/site.yml")


def test_volcano_and_a_training_come_from_a_repository_and_a_registry(mirror: Registry, tmp_path: Path) -> None:
    lab = Lab()
    ours = images()
    digests = {key: image["digest"] for key, name in NAMES.items() for tag, image in ours.items() if f"/{name}:" in tag}
    archive = chart_repository(lab.parts["bin"]["helm"], lab.parts["charts"]["volcano"], tmp_path / "charts")
    with served(tmp_path / "charts") as address:
        site = {
            "site_components": ["volcano"],
            "volcano_source": "release",
            "volcano_chart_repository": address,
            "volcano_chart_sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "volcano_image_digests": digests,
        }
        texts = [lab.playbook("playbooks/site.yml", "-e", json.dumps(site)) for _ in range(2)]
    assert ["changed=0" in text for text in texts] == [False, True]
    pods: list[dict[str, Any]] = lab.get("pods", "--namespace=volcano-system", "--field-selector=status.phase=Running")
    version = archive.stem.rpartition("-")[2]
    expected = {f"docker.io/volcanosh/{NAMES[key]}:v{version}@{digest}" for key, digest in digests.items()}
    assert {part["image"] for pod in pods for part in pod["spec"]["containers"]} == expected
    job = yaml.safe_load((ROOT / "jobs/digits.yml").read_text())
    job["training_job"]["name"] = "from-registry"  # one that nobody ran before
    try:
        assert "PROVEN" in lab.playbook("playbooks/train.yml", "-e", json.dumps(job))
    finally:
        lab.kubectl("delete", "jobs.batch.volcano.sh", "from-registry", "--ignore-not-found")
    for repository in (*(f"volcanosh/{name}" for name in NAMES.values()), "trainer"):
        assert mirror.clients(repository) == {"containerd"}, repository


def test_an_image_that_the_registry_lacks_is_named(mirror: Registry) -> None:
    lab = Lab()
    lab.kubectl("run", "absent", "--image=registry.example.org/absent:1", "--restart=Never")
    try:
        status = lab.wait("the image is refused", lambda: waiting(lab, "absent"))
    finally:
        lab.kubectl("delete", "pod", "absent", "--wait=false")
    assert "registry.example.org/absent:1" in status
    assert "/v2/absent/manifests/1" in mirror.log


def waiting(lab: Lab, pod: str) -> str:
    """Why the first container of a pod waits for its image; empty if it does not."""
    (status,) = lab.get("pod", pod)["status"]["containerStatuses"]
    state = status["state"].get("waiting", {})
    return str(state.get("message", "")) if state.get("reason") in ("ErrImagePull", "ImagePullBackOff") else ""
