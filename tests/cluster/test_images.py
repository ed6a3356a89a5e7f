"""docs/images.md, typed as printed: images go to a registry that asks who you are, and a job's pods come from there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cluster.client import Kube  # noqa: TC001  pytest reads the annotations of fixtures
from lab.build.cache import cache_home
from lab.build.versions import load_pins
from tests.cluster.conftest import ROOT, STATE, Lab
from tests.cluster.test_registry import has, on_node
from tests.support.registry import PASSWORD, Registry, registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "198.18.0.254:5001"
PAGE = ROOT / "docs/images.md"


def commands() -> list[str]:
    """The commands of the page for this registry, without those that start the lab or need Docker."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line.replace("registry.example.org", HOST) for block in blocks for line in block.splitlines()]
    lines = [f"{line} --insecure" if "lab.build.push " in line else line for line in lines]
    return [line for line in lines if "ansible-playbook" not in line and not line.startswith("docker ")]


def type_in(folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Type lines in the checkout, as a user whose home is another one, with kubectl on the PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("K8S_", "KUBE", "DOCKER_"))}
    env = {**kept, "HOME": str(folder), "XDG_CACHE_HOME": str(cache_home().parent),
           "KUBECONFIG": str(STATE / "admin.kubeconfig"),
           "PATH": f"{Lab().parts['bin']['kubernetes']}:{kept['PATH']}"}  # fmt: skip
    text = "\n".join(["set -eu", *lines]).replace("password.txt", shlex.quote(f"{folder}/password.txt"))
    text = text.replace("mine.tar", shlex.quote(f"{folder}/mine.tar"))
    return subprocess.run(
        ["bash", "-c", text], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.fixture
def private(kubeconfig: str, tmp_path: Path) -> Iterator[Registry]:  # noqa: ARG001  the fixture: the lab is up
    """A registry that asks who you are, from which the nodes pull."""
    lab = Lab()
    (tmp_path / "password.txt").write_text(PASSWORD)
    with registry(tmp_path / "registry", HOST, private=True) as running:
        lab.playbook("playbooks/lab.yml", "--tags=cluster", "-e", f"lab_cluster_registry=http://{HOST}")
        try:
            yield running
        finally:
            lab.kubectl("delete", "secret", "registry", "--ignore-not-found")
            for node in lab.ready():
                if names := {name for name in has(lab, node) if name.startswith(HOST)}:
                    on_node(lab, node, "rm", *names)
            lab.playbook("playbooks/lab.yml", "--tags=cluster")


def job(name: str, **more: Any) -> str:
    """Variables of a job that trains in a moment, with the image in the registry."""
    own = {"name": name, "image": f"{HOST}/trainer:0.1.0", "script": "/opt/gangplank/trainer/train.py", "workers": 1,
           "resources": {"cpu": "300m", "memory": "700Mi"}, "hyperparameters": {"epochs": 1}, **more}  # fmt: skip
    return json.dumps({"training_job": own, "training_job_replace": True})


def test_images_are_pushed_as_printed_and_a_job_with_the_pull_secret_trains(
    private: Registry, kube: Kube, tmp_path: Path
) -> None:
    lab = Lab()
    login, push, *others = commands()
    refused = type_in(tmp_path, push)
    assert refused.returncode == 1
    (line,) = (line for line in refused.stderr.splitlines() if line.startswith("error: "))
    assert re.search(rf"{HOST}/trainer:\S+: got .*401.*, expected that the registry takes it\. Fix: ", line)
    done = type_in(tmp_path, login, push, *others)
    assert done.returncode == 0, done.stderr
    digests = {image["name"]: image["digest"] for image in lab.parts["images"]}
    (trainer,) = (name for name in digests if name.startswith("gangplank.dev/trainer:"))
    assert f"{HOST}/{trainer.partition('/')[2]}@{digests[trainer]}" in done.stdout.splitlines()
    with_login = {**os.environ, "DOCKER_CONFIG": str(tmp_path / ".docker")}
    config = json.loads(subprocess.run([private.crane, "config", "--insecure", f"{HOST}/mine:1"], env=with_login,
                                       capture_output=True, text=True, check=True).stdout)["config"]  # fmt: skip
    (image,) = load_pins().parts["trainer"].images
    assert (config["Entrypoint"], config["User"]) == (image.entrypoint, image.user)

    lab.kubectl("create", "namespace", "elsewhere")  # without the Secret
    try:
        more = ("-e", "training_job_wait=false")
        lab.playbook("playbooks/train.yml", "-e", job("no-secret", namespace="elsewhere"), *more)
        pod = lab.wait("the image is refused", lambda: refusal(lab, "elsewhere"))
    finally:
        lab.kubectl("delete", "namespace", "elsewhere", "--timeout=600s")
    assert "authorization failed: no basic auth credentials" in pod
    text = lab.playbook("playbooks/train.yml", "-e", job("secret", pull_secrets=["registry"]))
    try:
        assert "PROVEN" in text
        # The layers are on the nodes, under the image's other name: only the manifest is asked for.
        assert "containerd" in private.clients("trainer", "HEAD")
        # The name that the nodes have it by is still theirs: nothing asks a registry for that.
        assert "PROVEN" in lab.playbook("playbooks/train.yml", "-e", job("own", image=trainer))
    finally:
        for item in kube.call("GET", "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs")["items"]:
            if (name := item["metadata"]["name"]) in {"secret", "own"}:
                lab.kubectl("delete", "jobs.batch.volcano.sh", name)


def refusal(lab: Lab, namespace: str) -> str:
    """What a pod of a namespace says about the image that it cannot pull."""
    for pod in lab.get("pods", f"--namespace={namespace}"):
        for status in pod["status"].get("containerStatuses", []):
            message = str(status["state"].get("waiting", {}).get("message"))
            if "failed: " in message:  # of ErrImagePull, and of ImagePullBackOff too
                return message
    return ""


def test_the_field_of_the_page_is_one_of_a_job_and_of_a_teams_defaults() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert yaml.safe_load(block) == {"pull_secrets": ["registry"]}
