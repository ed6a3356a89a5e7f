"""Kubernetes' own Job controller makes of an Indexed Job what the library foretells, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.cluster.differential.compare import IMAGE, differences, generated

if TYPE_CHECKING:
    from tests.cluster.differential.live import Cluster

Json = dict[str, Any]


def job(name: str, completions: int = 2, pod: Json | None = None, meta: Json | None = None, **spec: Any) -> Json:
    inner = {"containers": [{"name": "main", "image": IMAGE}], "restartPolicy": "Never", **(pod or {})}
    template = {"spec": inner, **({"metadata": meta} if meta else {})}
    body = {
        "completionMode": "Indexed",
        "completions": completions,
        "parallelism": completions,
        "template": template,
        **spec,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


EDGES = [
    job("plain"),
    job("one", 1),
    job("per-index", backoffLimitPerIndex=1),
    job("labelled", meta={"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["example.com/f"]}),
    job("hostname", pod={"hostname": "mine", "subdomain": "sub"}),
    job(
        "own-index",
        pod={"containers": [{"name": "m", "image": IMAGE, "env": [{"name": "JOB_COMPLETION_INDEX", "value": "x"}]}]},
    ),
    job("init", pod={"initContainers": [{"name": "i", "image": IMAGE}]}),
    job("long-" + "n" * 50, 3),
]


def test_hand_made_edges(cluster: Cluster) -> None:
    assert differences("indexed", EDGES, cluster) == []


def test_generated_jobs(cluster: Cluster) -> None:
    assert differences("indexed", generated("indexed", cluster), cluster) == []
