"""Live Volcano makes of a Job what the library foretells, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends.volcano import plugins as volcano_plugins
from gangplank.backends.volcano.block import NOT_YET
from gangplank.k8s.build import value
from tests.cluster.differential.compare import COUNT, IMAGE, differences, examples, generated, sample
from tests.support import documents

if TYPE_CHECKING:
    from tests.cluster.differential.live import Cluster

Json = dict[str, Any]


def task(name: str, replicas: int | None, container: Json | None = None, **more: Any) -> Json:
    spec = {"containers": [{"name": "main", "image": IMAGE, **(container or {})}], "restartPolicy": "OnFailure"}
    spec |= more.pop("pod", {})
    fields: Json = {"name": name, "template": {"spec": spec, **more.pop("template", {})}, **more}
    return fields if replicas is None else {"replicas": replicas, **fields}


def job(name: str, *tasks: Json, plugins: Json | None = None, meta: Json | None = None, **spec: Any) -> Json:
    body = {"tasks": list(tasks), "plugins": {"pytorch": []} if plugins is None else plugins, **spec}
    kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    return {**kind, "metadata": {"name": name, **(meta or {})}, "spec": body}


MASTER, WORKER = task("master", 1), task("worker", 2)
ASKED = {
    "requests": {"cpu": "100m", "memory": "64Mi"},
    "limits": {"cpu": "0.5", "memory": "128Mi", "example.com/gpu": 1},
}
EDGES = [
    job("plain", MASTER, WORKER),
    job("no-workers", MASTER),
    job("no-worker-pods", MASTER, task("worker", 0)),
    job("count-omitted", MASTER, task("worker", None)),
    job("no-master", task("leader", 1), WORKER),
    job("two-masters", task("master", 2), WORKER),
    job("extra-task", MASTER, WORKER, task("eval-uator", 1)),
    job("other-names", task("boss", 1), task("hand", 2), plugins={"pytorch": ["--master=boss", "--worker", "hand"]}),
    job("own-port", MASTER, WORKER, plugins={"pytorch": ["--port=0x1000"]}),
    job("flags-end", MASTER, WORKER, plugins={"pytorch": ["--wait-master-enabled", "true", "--port=1"]}),
    job("flags-word", MASTER, WORKER, plugins={"pytorch": ["master=m", "--port=1"]}),
    job("flags-unknown", MASTER, WORKER, plugins={"pytorch": ["--port=4000", "--nope", "--port=5000"]}),
    job("waits", MASTER, WORKER, plugins={"pytorch": ["--wait-master-enabled", "-wait-master-timeout=5"]}),
    job("port-open", task("master", 1, {"ports": [{"containerPort": 23456}]}), WORKER),
    job(
        "hostname",
        task("master", 1, pod={"hostname": "boss", "subdomain": "hq"}),
        task("worker", 2, pod={"hostname": "w"}),
    ),
    job(
        "own-env", task("master", 1, {"env": [{"name": "RANK", "value": "7"}, {"name": "EMPTY", "value": ""}]}), WORKER
    ),
    job(
        "own-labels",
        task("master", 1, template={"metadata": {"labels": {"volcano.sh/task-index": "9", "a": "b"}}}),
        WORKER,
    ),
    job(
        "job-meta",
        MASTER,
        meta={"labels": {"team": "x", "volcano.sh/preemptable": "true"}, "annotations": {"note": "y"}},
    ),
    job(
        "disruption",
        MASTER,
        WORKER,
        meta={"annotations": {"volcano.sh/jdb-min-available": "1", "volcano.sh/jdb-max-unavailable": "2"}},
    ),
    job(
        "host-network",
        task("master", 1, {"ports": [{"containerPort": 8080, "hostPort": 8080}]}, pod={"hostNetwork": True}),
    ),
    job("init", task("master", 1, pod={"initContainers": [{"name": "first", "image": IMAGE}]}), WORKER),
    job(
        "sidecar",
        task(
            "master",
            1,
            pod={"initContainers": [{"name": "s", "image": IMAGE, "restartPolicy": "Always", "resources": ASKED}]},
        ),
    ),
    job(
        "two-containers",
        task("master", 1, pod={"containers": [{"name": n, "image": IMAGE} for n in ("a", "b")]}),
        WORKER,
    ),
    job(
        "resources", task("master", 1, {"resources": ASKED}), task("worker", 2, {"resources": {"limits": {"cpu": "1"}}})
    ),
    job("small-gang", task("master", 1, {"resources": ASKED}), WORKER, minAvailable=2),
    job(
        "task-minima", task("master", 1, {"resources": ASKED}), task("worker", 3, {"resources": ASKED}, minAvailable=1)
    ),
    job("gang-over-minima", MASTER, task("worker", 3, {"resources": ASKED}, minAvailable=1), minAvailable=3),
    job(
        "partitions",
        MASTER,
        task("worker", 4, partitionPolicy={"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}),
    ),
    job("partition-default", MASTER, task("worker", 4, partitionPolicy={"totalPartitions": 2, "partitionSize": 2})),
    job("topology", MASTER, WORKER, networkTopology={"mode": "soft", "highestTierAllowed": 1}),
    job(
        "numa",
        task(
            "master",
            1,
            {"resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1}}},
            topologyPolicy="single-numa-node",
        ),
    ),
    job(
        "all-plugins",
        MASTER,
        WORKER,
        plugins={"pytorch": [], "svc": ["--publish-not-ready-addresses"], "env": [], "ssh": []},
    ),
    job("quiet-svc", MASTER, WORKER, plugins={"svc": ["--disable-network-policy=true"]}),
    job("ssh-elsewhere", MASTER, plugins={"ssh": ["--ssh-key-file-path=/home/me/.ssh", "--ssh-port=2222"]}),
    job("no-plugins", MASTER, WORKER, plugins={}),
    job(
        "names-omitted",
        {k: v for k, v in MASTER.items() if k != "name"},
        {k: v for k, v in WORKER.items() if k != "name"},
    ),
    job(
        "job-volume",
        MASTER,
        WORKER,
        volumes=[
            {
                "mountPath": "/a",
                "volumeClaim": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
            }
        ],
    ),
    job("default-scheduler", task("master", 1, pod={"schedulerName": "other"}), WORKER),
    job("long-" + "n" * 45, MASTER, WORKER),
]


def test_hand_made_edges(cluster: Cluster) -> None:
    assert differences("volcano", sample(EDGES, 3), cluster) == []


def test_generated_jobs(cluster: Cluster) -> None:
    manifests = generated("volcano", cluster)
    assert len(manifests) == COUNT
    assert differences("volcano", manifests, cluster, priorities={cluster.namespace: 7}) == []


def test_the_jobs_of_documents(cluster: Cluster) -> None:
    jobs = [documents.job(words) for words in ('title="pytorch-job-with-configmap.yaml"', "name: pytorch-job\n")]
    assert [item["metadata"]["name"] for item in jobs] == ["pytorch-job-with-configmap", "pytorch-job"]
    assert differences("volcano", jobs, cluster) == []


def test_volcanos_own_examples(cluster: Cluster) -> None:
    manifests = examples("volcano.sh/volcano@v1.15.1", "example", "volcano", cluster)
    supported = [item for item in manifests if not set(item["spec"].get("plugins") or {}) & set(NOT_YET)]
    assert len(supported) >= 15
    assert differences("volcano", sample(supported, 4), cluster, priorities={cluster.namespace: 7}) == []


@pytest.mark.parametrize("broken", ["WORLD_SIZE", "MASTER_ADDR", "RANK"])
def test_a_difference_would_be_seen(cluster: Cluster, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(name: str, text: object) -> Json:
        return value(name, f"{text}x" if name == broken else text)

    monkeypatch.setattr(volcano_plugins, "value", wrong)
    messages = differences("volcano", [job(f"mutant-{broken.lower().replace('_', '-')}", MASTER)], cluster)
    assert len(messages) == 1
    assert f".env.{broken}[0].value: live" in messages[0]
