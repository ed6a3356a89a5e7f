"""Live Trainer, JobSet and Job controllers make of a TrainJob what the library foretells, field by field.

Needs a ClusterTrainingRuntime torch-distributed in the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.backends.trainjob import objects
from gangplank.cluster.site import site_of
from gangplank.errors import KubeError, SpecError
from gangplank.k8s.build import value
from tests.cluster.differential.compare import IMAGE, differences, generated
from tests.cluster.differential.live import NOWHERE

if TYPE_CHECKING:
    from tests.cluster.differential.live import Cluster

Json = dict[str, Any]


def job(name: str, trainer: Json | None = None, **spec: Any) -> Json:
    body: Json = {"runtimeRef": {"name": "torch-distributed"}, **spec}
    if trainer is not None:
        body["trainer"] = {"image": IMAGE, **trainer}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": body}


def patch(spec: Json, meta: Json | None = None, manager: str = "example.com/me") -> Json:
    part = {"name": "node", "template": {"spec": {"template": {"spec": spec, **({"metadata": meta} if meta else {})}}}}
    inner = {"spec": {"replicatedJobs": [part]}, "metadata": {"labels": {"x": "y"}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": inner}}


AWAY = patch({"nodeSelector": NOWHERE}, manager="example.com/away")  # a TrainJob has no pod template of its own
EDGES = [
    job("stanza-empty", {}, runtimePatches=[AWAY]),
    job("no-stanza", runtimePatches=[AWAY]),
    job("nodes", {"numNodes": 3, "numProcPerNode": 2}, runtimePatches=[AWAY]),
    job("cpus", {"resourcesPerNode": {"requests": {"cpu": "1500m"}}}, runtimePatches=[AWAY]),
    job("limits", {"resourcesPerNode": {"limits": {"cpu": "2"}}}, runtimePatches=[AWAY]),
    job("gpus", {"resourcesPerNode": {"limits": {"example.com/gpu": "2"}}}, runtimePatches=[AWAY]),
    job("words", {"command": ["a"], "args": ["b"], "env": [{"name": "A", "value": "1"}]}, runtimePatches=[AWAY]),
    job("patched", {}, runtimePatches=[AWAY, patch({"tolerations": [{"operator": "Exists"}]}, {"labels": {"a": "b"}})]),
]


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Json:
    """The runtimes that this cluster has: a site's own torch-distributed may name another image than upstream's."""
    others = site_of(cluster.kube).others
    assert "ClusterTrainingRuntime" in {item["kind"] for item in others}
    return {"others": others}


def test_hand_made_edges(cluster: Cluster, site: Json) -> None:
    assert differences("trainjob", EDGES, cluster, **site) == []


def test_generated_jobs(cluster: Cluster, site: Json) -> None:
    manifests = generated("trainjob", cluster)
    for manifest in manifests:
        manifest["spec"]["runtimePatches"].append(AWAY)
    assert differences("trainjob", manifests, cluster, **site) == []


def test_two_patches_of_one_manager_are_refused_there_and_here(cluster: Cluster) -> None:
    twice = job("twice", {}, runtimePatches=[AWAY, AWAY])
    with pytest.raises(KubeError, match="Duplicate value"):
        cluster.create(twice)
    with pytest.raises(SpecError, match="a manager of its own"):
        BACKENDS["trainjob"].objects(twice)


@pytest.mark.parametrize("broken", ["PET_NNODES", "PET_MASTER_ADDR"])
def test_a_difference_would_be_seen(cluster: Cluster, site: Json, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(name: str, text: object) -> Json:
        return value(name, f"{text}x" if name == broken else text)

    monkeypatch.setattr(objects, "value", wrong)
    name = f"mutant-{broken.lower().replace('_', '-')}"
    messages = differences("trainjob", [job(name, {}, runtimePatches=[AWAY])], cluster, **site)
    assert len(messages) == 1
    assert f".env.{broken}[0].value: live" in messages[0]
