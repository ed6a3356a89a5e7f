"""An elastic PyTorchJob is scaled by hand while it trains: it resumes from its checkpoint, and sees no sample twice."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.cluster import evidence
from gangplank.cluster.client import path
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.proof import expected
from gangplank.proof.claims import CLAIMS
from gangplank.proof.records import select, unpack_ids
from tests.cluster.conftest import ROOT, Lab
from tests.cluster.differential.live import SHARED_CLAIM, Cluster, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]
NAME, SAMPLES, EPOCHS = "elastic", 1200, 120
DESCRIPTION: Json = {
    "name": NAME,
    "backend": "pytorchjob",
    "image": "gangplank.dev/trainer:0.1.0",
    "script": "/opt/gangplank/trainer/train.py",
    "masters": 0,
    "workers": 2,
    "elastic": {"min": 2, "max": 3},
    "resources": {"cpu": "50m", "memory": "256Mi"},
    "volumes": [{"claim": "shared", "mount": "/data", "access": "ReadWriteMany"}],
    "output": "/data/out",
    # Multiples of 6 leave nothing over for two ranks nor for three: not one sample has to be repeated.
    "hyperparameters": {"epochs": EPOCHS, "batch_size": 6, "seed": 1, "log_interval": 10},
    "args": ["--train-samples", str(SAMPLES)],
}


class Elastic:
    """The job, as its owner sees it."""

    def __init__(self, cluster: Cluster, config: str, folder: Path) -> None:
        self.cluster, self.config, self.folder = cluster, config, folder

    def command(self, *words: str) -> str:
        """Run gangplank, which has to succeed; what it says."""
        line = [sys.executable, "-m", "gangplank", *words, "-n", self.cluster.namespace]
        environment = {**os.environ, "KUBECONFIG": self.config}
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self) -> None:
        file = self.folder / "elastic.yml"
        file.write_text(yaml.safe_dump({"training_job": {**DESCRIPTION, "namespace": self.cluster.namespace}}))
        self.command("submit", str(file))

    def events(self, worker: int, kind: str) -> list[Json]:
        """What a worker's ranks have said of one kind; nothing before it runs."""
        with contextlib.suppress(KubeError):
            meta = {"name": f"{NAME}-worker-{worker}", "namespace": self.cluster.namespace}
            lines = self.cluster.kube.log({"metadata": meta})
            events = [json.loads(line) for line in lines if line.startswith('{"event"')]
            return [event for event in events if event["event"] == kind]
        return []

    def pod(self, worker: int) -> Json:
        return self.cluster.call("GET", path("v1", "Pod", self.cluster.namespace, f"{NAME}-worker-{worker}"))

    def live(self) -> Json:
        job = self.cluster.call("GET", path("kubeflow.org/v1", "PyTorchJob", self.cluster.namespace, NAME))
        return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **job}

    def ended(self) -> str:
        """Succeeded or Failed, "" before."""
        conditions = self.live().get("status", {}).get("conditions", [])
        true = [item["type"] for item in conditions if item["status"] == "True"]
        return next((kind for kind in ("Succeeded", "Failed") if kind in true), "")


@pytest.fixture
def job(full_kubeconfig: str, tmp_path: Path) -> Iterator[Elastic]:
    with opened(full_kubeconfig, "elastic") as cluster:
        cluster.create(SHARED_CLAIM)
        yield Elastic(cluster, full_kubeconfig, tmp_path)


def test_two_workers_become_three_and_two_again(job: Elastic) -> None:
    wait = Lab().wait
    job.submit()
    wait("two workers train", lambda: job.events(0, "step") and job.events(1, "step"), 600)
    first = job.pod(0)["metadata"]["uid"]
    job.command("scale", NAME, "3")
    wait("three workers train", lambda: job.events(2, "step"), 600)
    assert not job.ended()
    job.command("scale", NAME, "2")
    assert wait("the end", job.ended, 1800) == "Succeeded"

    kept = job.pod(0)
    assert kept["metadata"]["uid"] == first, "worker 0, where the ranks meet, was lost"
    assert kept["status"]["containerStatuses"][0]["restartCount"] == 0
    resumes = [event for worker in (0, 1) for event in job.events(worker, "resume") if event["rank"] == 0]
    assert [event["world_size_before"] for event in resumes] == [2, 3]
    assert f"PROVEN: {len(CLAIMS)} of {len(CLAIMS)} claims hold" in job.command("proof", NAME)
    live = job.live()
    kube, size = job.cluster.kube, expected.expected(live).world_size
    run = select(evidence.from_cluster(kube, live, kube.pods(live), size))
    for epoch in range(1, EPOCHS + 1):
        seen = Counter(i for record in run.of("samples") if record["epoch"] == epoch for i in unpack_ids(record))
        assert seen == Counter(range(SAMPLES)), f"epoch {epoch}"


def test_metrics_make_an_autoscaler_of_the_foretold_form(job: Elastic) -> None:
    """The lab has no metrics, so that it moves nothing here."""
    target = {"type": "Utilization", "averageUtilization": 80}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    manifest = BACKENDS["pytorchjob"].manifests(parse_job({**DESCRIPTION, "namespace": job.cluster.namespace}))[-1]
    manifest["spec"]["elasticPolicy"]["metrics"] = metrics
    objects = BACKENDS["pytorchjob"].objects(manifest)
    (predicted,) = [item for item in objects if item["kind"] == "HorizontalPodAutoscaler"]
    job.cluster.create(manifest)
    live = Lab().wait("an autoscaler", lambda: job.cluster.items("HorizontalPodAutoscaler"))
    (autoscaler,) = live
    assert autoscaler["metadata"]["name"] == predicted["metadata"]["name"]
    assert {key: autoscaler["spec"][key] for key in predicted["spec"]} == predicted["spec"]
