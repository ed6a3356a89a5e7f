"""What the library accepts of the bad-input corpus, the API server and its webhooks accept too: asked by dry runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.errors import KubeError, SpecError
from gangplank.jobs.parse import parse_job
from tests.cluster.differential.compare import ALL
from tests.unit.backends.test_corpus import BAD, changed, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.differential.live import Cluster

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
STEP = 1 if ALL else 25  # each so manieth of the accepted ones


def accepted(backend: str) -> Iterator[list[Json]]:
    """The manifests of every change of a shipped job that the library accepts on a back-end, each once."""
    seen: set[str] = set()
    for file in sorted((ROOT / "jobs").glob("*.yml")):
        job = yaml.safe_load(file.read_text())
        if backend in {"trainjob", "indexed"}:
            job["training_job"]["volumes"] = []
            job["training_job"].pop("output", None)
        job["training_job"]["backend"] = backend
        for path in leaves(job):
            for value in BAD:
                try:
                    spec = parse_job(changed(job, path, value), "job.yml", {"trainer/linear.py": "print()"})
                except SpecError:
                    continue
                if spec.backend != backend or spec.workers > 100:
                    continue
                manifests = BACKENDS[backend].manifests(spec)
                text = json.dumps(manifests)
                if text not in seen:
                    seen.add(text)
                    yield manifests


def here(manifest: Json, cluster: Cluster) -> Json:
    """The manifest in the namespace and the queue that there are: whether a name exists is not a matter of form."""
    submitted: Json = {**manifest, "metadata": {**manifest["metadata"], "namespace": cluster.namespace}}
    submitted["metadata"].pop("ownerReferences", None)
    if submitted["kind"] == "Job" and "queue" in submitted["spec"]:
        submitted["spec"] = {**submitted["spec"], "queue": "default"}
    return submitted


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_accepted_here_is_accepted_there(backend: str, cluster: Cluster) -> None:
    asked = list(accepted(backend))[::STEP]
    assert len(asked) >= (100 if ALL else 5)
    refused = []
    for manifests in asked:
        submitted = BACKENDS[backend].objects(manifests[-1]) if backend == "pytorchjob" else []
        pods = [item for item in submitted if item["kind"] == "Pod"]  # nobody looks into a PyTorchJob's templates
        for manifest in [*manifests, *pods[:1], *pods[-1:]]:
            try:
                cluster.kube.create(here(manifest, cluster), dry_run=True)
            except KubeError as error:
                refused.append(f"{error}: {json.dumps(manifest)[:2000]}")
    assert refused == []
