"""The live training operator makes of a PyTorchJob what the library foretells, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends.pytorchjob import objects
from gangplank.cluster.site import site_of
from gangplank.k8s.build import value
from tests.cluster.differential.compare import IMAGE, differences, examples, generated, sample

if TYPE_CHECKING:
    from tests.cluster.differential.live import Cluster

Json = dict[str, Any]


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


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Json:
    """How this cluster's operator is set up, as `gangplank expand --cluster` reads it."""
    live = site_of(cluster.kube)
    assert live.init_template, "the operator of charts/training-operator has a template of its own"
    return {"gang": live.gang, "init_image": live.init_image, "init_tries": live.init_tries,
            "init_template": live.init_template}  # fmt: skip


def test_hand_made_edges(cluster: Cluster, site: Json) -> None:
    assert differences("pytorchjob", EDGES, cluster, **site) == []


def test_generated_jobs(cluster: Cluster, site: Json) -> None:
    assert differences("pytorchjob", generated("pytorchjob", cluster), cluster, **site) == []


def test_the_operators_own_examples(cluster: Cluster, site: Json) -> None:
    manifests = examples("github.com/kubeflow/training-operator@v1.9.4", "examples", "pytorchjob", cluster)
    assert len(manifests) >= 5
    assert differences("pytorchjob", sample(manifests, 3), cluster, **site) == []


@pytest.mark.parametrize("broken", ["PET_NODE_RANK", "MASTER_PORT"])
def test_a_difference_would_be_seen(cluster: Cluster, site: Json, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(name: str, text: object) -> Json:
        return value(name, f"{text}x" if name == broken else text)

    monkeypatch.setattr(objects, "value", wrong)
    name = f"mutant-{broken.lower().replace('_', '-')}"
    messages = differences("pytorchjob", [job(name, replica())], cluster, **site)
    assert len(messages) == 1
    assert f".env.{broken}[0].value: live" in messages[0]
