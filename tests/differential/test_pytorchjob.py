"""The live training operator makes of a PyTorchJob what the library foretells, field by field.

GANGPLANK_GANG=no says that the operator runs without --gang-scheduler-name=volcano, as upstream's manifests install it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.differential.compare import IMAGE, differences, examples, generated

if TYPE_CHECKING:
    from tests.differential.live import Cluster

Json = dict[str, Any]
GANG = os.environ.get("GANGPLANK_GANG", "yes") == "yes"


def replica(count: int = 1, container: Json | None = None, pod: Json | None = None, **more: Any) -> Json:
    inner = {"containers": [{"name": "pytorch", "image": IMAGE, **(container or {})}], **(pod or {})}
    return {"replicas": count, "template": {"spec": inner, **more.pop("template", {})}, **more}


def job(
    name: str, master: Json | None = None, worker: Json | None = None, meta: Json | None = None, **spec: Any
) -> Json:
    parts = {"Master": master, "Worker": worker}
    replicas = {kind: part for kind, part in parts.items() if part is not None}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    return {**kind, "metadata": {"name": name, **(meta or {})}, "spec": {"pytorchReplicaSpecs": replicas, **spec}}


ASKED = {"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "example.com/gpu": 1}}
NO_MESH = {"metadata": {"annotations": {"sidecar.istio.io/inject": "false"}, "labels": {"a": "b"}}}
PORT = {"ports": [{"name": "pytorchjob-port", "containerPort": 1234}]}
CONF = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]
EDGES = [
    job("plain", replica(), replica(2)),
    job("no-workers", replica()),
    job("no-master", worker=replica(2)),
    job("nproc", replica(), replica(2), nprocPerNode="4"),
    job("nproc-word", replica(), replica(1), nprocPerNode="cpu"),
    job("master-port", replica(container=PORT), replica(1)),
    job("more-ports", replica(container={"ports": [{"name": "metrics", "containerPort": 9}]}), replica(1)),
    job("exit-code", replica(restartPolicy="ExitCode"), replica(1, restartPolicy="Never")),
    job("elastic", worker=replica(2), elasticPolicy={"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 2}),
    job("elastic-none", worker=replica(2), elasticPolicy={}),
    job(
        "elastic-all",
        worker=replica(2),
        elasticPolicy={"rdzvHost": "h", "rdzvPort": 1, "rdzvId": "i", "rdzvConf": CONF},
    ),
    job("elastic-proc", worker=replica(1), elasticPolicy={"nProcPerNode": 2, "standalone": True}),
    job("template-meta", replica(template=NO_MESH), replica(1, template=NO_MESH)),
    job("init", replica(), replica(1, pod={"initContainers": [{"name": "i", "image": IMAGE}]})),
    job("resources", replica(container={"resources": ASKED}), replica(2, {"resources": {"limits": {"cpu": "1"}}})),
    job("annotated", replica(), meta={"annotations": {"note": "x"}, "labels": {"team": "y"}}),
    job("policy", replica(), replica(1), runPolicy={"cleanPodPolicy": "All", "schedulingPolicy": {"minAvailable": 2}}),
    job("own-env", replica(container={"env": [{"name": "RANK", "value": "9"}]}), replica(1)),
    job("long-" + "n" * 45, replica(), replica(1)),
]


def test_hand_made_edges(cluster: Cluster) -> None:
    assert differences("pytorchjob", EDGES, cluster, gang=GANG) == []


def test_sixty_generated_jobs(cluster: Cluster) -> None:
    assert differences("pytorchjob", generated("pytorchjob", 60, cluster), cluster, gang=GANG) == []


def test_the_operators_own_examples(cluster: Cluster) -> None:
    found = examples("github.com/kubeflow/training-operator@v1.9.4", "examples", "pytorchjob", cluster)
    assert len(found) >= 5
    assert differences("pytorchjob", found, cluster, gang=GANG) == []
