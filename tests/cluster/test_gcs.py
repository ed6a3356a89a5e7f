"""docs/storage.md, Google Cloud Storage: an image as the page builds it, and a server of that API in a pod."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.build.own_image import write_own_image
from lab.build.parts import build
from tests.cluster.conftest import ROOT, Lab
from tests.cluster.jobs import CLAIM
from tests.support.teams_live import gangplank, until

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
NAMESPACE, IMAGE, SERVER = "gcs", "registry.example.org/trainer-gcs:1", "gangplank.dev/fake-gcs-server:test"
ADDRESS = "gs://runs/digits"
# What a pod needs to find the server; credentials take the place of these on Google's own.
VARIABLES = {"STORAGE_EMULATOR_HOST": "http://gcs:4443", "FSSPEC_GCS_TOKEN": "anon",
             "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}  # fmt: skip
SERVE = (
    "mkdir -p /tmp/buckets/runs && exec /opt/bin/fake-gcs-server -scheme=http -port=4443 -public-host=gcs:4443"
    " -external-url=http://gcs:4443 -backend=filesystem -filesystem-root=/tmp/buckets"
)
JOB: Json = {
    "name": "saves", "namespace": NAMESPACE, "backend": "indexed", "image": IMAGE, "workers": 1,
    "script": "/opt/gangplank/trainer/train.py", "resources": {"cpu": "100m", "memory": "512Mi"},
    "output": ADDRESS, "secrets": ["bucket"],
    "hyperparameters": {"epochs": 2, "batch_size": 64, "seed": 1, "log_interval": 10},
}  # fmt: skip


def objects() -> Iterator[Json]:
    """The server, its address and a claim."""
    meta = {"name": "gcs", "namespace": NAMESPACE, "labels": {"app": "gcs"}}
    probe = {"tcpSocket": {"port": 4443}, "periodSeconds": 1}
    server = {"name": "server", "image": SERVER, "command": ["sh", "-c", SERVE], "readinessProbe": probe,
              "volumeMounts": [{"name": "buckets", "mountPath": "/tmp"}]}  # fmt: skip
    volumes = [{"name": "buckets", "emptyDir": {}}]
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": "bucket"}, "stringData": VARIABLES}
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta,
           "spec": {"terminationGracePeriodSeconds": 0, "containers": [server], "volumes": volumes}}  # fmt: skip
    yield {"apiVersion": "v1", "kind": "Service", "metadata": meta,
           "spec": {"selector": {"app": "gcs"}, "ports": [{"port": 4443}]}}  # fmt: skip
    yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**meta, "name": "brought"}, "spec": CLAIM}


@pytest.fixture(scope="module")
def server(kubeconfig: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster with both images and a server with one bucket; its kubeconfig."""
    folder, lab = tmp_path_factory.mktemp("gcs"), Lab()
    page = (ROOT / "docs/storage.md").read_text().partition("### Google Cloud Storage")[2]
    (lines,) = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    lines = re.sub(r"(?<=[ =])(gcs|trainer-gcs\.tar)(?=\s)", rf"{folder}/\1", lines)
    subprocess.run(["bash", "-euc", lines], cwd=ROOT, check=True, timeout=580)
    parts, archive = build(["fake-gcs-server", "busybox"], print, roots=()), folder / "server.tar"
    base = Path(next(image["archive"] for image in parts["images"] if "/busybox:" in image["name"]))
    write_own_image(SERVER, base, Path(parts["bin"]["fake-gcs-server"]), archive)
    lab.playbook("playbooks/lab-load.yml", "-e", f"lab_cluster_load={archive}")
    lab.kubectl("create", "namespace", NAMESPACE)
    try:
        for item in objects():
            lab.kubectl("create", "-f", "-", stdin=json.dumps(item))
        lab.kubectl("wait", "--for=condition=Ready", "pod/gcs", "-n", NAMESPACE, "--timeout=60s")
        yield kubeconfig
    finally:
        lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_a_job_writes_to_a_bucket_that_is_fetched_and_brought_onto_a_claim(server: str, tmp_path: Path) -> None:
    def ask(*words: str) -> str:
        done = gangplank(*words, "-n", NAMESPACE, kubeconfig=server)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    (tmp_path / "job.yml").write_text(yaml.safe_dump({"training_job": JOB}))
    ask("submit", str(tmp_path / "job.yml"))
    until(lambda: "Complete" in ask("status", "saves").split("\n")[0], lambda: ask("status", "saves"), 180)
    assert "PROVEN" in ask("proof", "saves")
    ask("fetch", "saves", "--output", str(tmp_path / "fetched"))
    model = hashlib.sha256((tmp_path / "fetched/model.safetensors").read_bytes()).hexdigest()
    brought = ask("data", ADDRESS, "brought", "--secret", "bucket", "--image", IMAGE)
    assert f"{model}  model.safetensors" in brought
