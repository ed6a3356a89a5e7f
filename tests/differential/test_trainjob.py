"""Live Trainer, JobSet and Job controllers make of a TrainJob what the library foretells, field by field.

Needs upstream's ClusterTrainingRuntime torch-distributed in the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.differential.compare import IMAGE, differences, generated

if TYPE_CHECKING:
    from tests.differential.live import Cluster

Json = dict[str, Any]


def job(name: str, trainer: Json | None = None, **spec: Any) -> Json:
    body: Json = {"runtimeRef": {"name": "torch-distributed"}, **spec}
    if trainer is not None:
        body["trainer"] = {"image": IMAGE, **trainer}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": body}


def patch(spec: Json, meta: Json | None = None) -> Json:
    part = {"name": "node", "template": {"spec": {"template": {"spec": spec, **({"metadata": meta} if meta else {})}}}}
    inner = {"spec": {"replicatedJobs": [part]}, "metadata": {"labels": {"x": "y"}}}
    return {"manager": "example.com/me", "trainingRuntimeSpec": {"template": inner}}


AWAY = patch({"nodeSelector": {"gangplank.dev/nowhere": "true"}})  # a TrainJob has no pod template of its own
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


def test_hand_made_edges(cluster: Cluster) -> None:
    assert differences("trainjob", EDGES, cluster) == []


def test_sixty_generated_jobs(cluster: Cluster) -> None:
    manifests = generated("trainjob", 60, cluster)
    for manifest in manifests:
        manifest["spec"]["runtimePatches"].append({**AWAY, "manager": "example.com/away"})
    assert differences("trainjob", manifests, cluster) == []
