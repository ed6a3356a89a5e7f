"""Whose objects keep a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.client import Kube
from gangplank.cluster.namespace import kinds, of_others

if TYPE_CHECKING:
    from tests.unit.conftest import Api

USUAL = ["create", "delete", "get", "list"]


def kind(name: str, plural: str, verbs: list[str] = USUAL, *, namespaced: bool = True) -> dict[str, Any]:
    """A kind, as discovery has it."""
    return {"kind": name, "name": plural, "namespaced": namespaced, "verbs": verbs}


@pytest.fixture
def cluster(api: Api) -> Api:
    """A cluster with some kinds."""
    api.groups = {
        "/api/v1": [
            kind("ConfigMap", "configmaps"), kind("Event", "events"), kind("Pod", "pods"),
            kind("Pod", "pods/log"), kind("Node", "nodes", namespaced=False),
        ],
        "/apis/a.example.com/v2": [kind("Toy", "toys")],
        "/apis/a.example.com/v1": [kind("Toy", "toys"), kind("Old", "olds")],
        "/apis/metrics.example.com/v1": [kind("PodMetrics", "pods", ["get", "list"])],
    }  # fmt: skip
    return api


def add(api: Api, where: str, name: str, **meta: Any) -> None:
    """Create an object in the namespace a."""
    group, _, plural = where.rpartition("/")
    api.objects[f"{group}/namespaces/a/{plural}/{name}"] = {"metadata": {"name": name, **meta}}


def test_a_kind_comes_once_and_in_the_version_that_the_cluster_prefers(cluster: Api) -> None:
    got = [(where, resource["kind"]) for where, resource in kinds(Kube(cluster.kubeconfig))]
    v2, v1 = "/apis/a.example.com/v2", "/apis/a.example.com/v1"
    assert got == [*(("/api/v1", name) for name in ("ConfigMap", "Event", "Pod", "Node")), (v2, "Toy"), (v1, "Old")]


def test_what_others_made_keeps_it_of_whatever_kind(cluster: Api) -> None:
    add(cluster, "/api/v1/configmaps", "mine")
    add(cluster, "/apis/a.example.com/v2/toys", "ball")
    add(cluster, "/apis/a.example.com/v1/olds", "bear")
    assert of_others(Kube(cluster.kubeconfig), "a") == ["ConfigMap/mine", "Toy/ball", "Old/bear"]


def test_what_every_namespace_has_or_goes_with_another_object_does_not(cluster: Api) -> None:
    add(cluster, "/api/v1/configmaps", "kube-root-ca.crt")
    add(cluster, "/api/v1/events", "started")
    add(cluster, "/api/v1/pods", "owned", ownerReferences=[{"kind": "Job", "name": "mine", "uid": "1"}])
    cluster.objects["/apis/a.example.com/v2/namespaces/a/toys"] = {"items": None}  # as an API server lists none
    add(cluster, "/api/v1/pods", "ends", deletionTimestamp="2026-01-01T00:00:00Z")
    assert of_others(Kube(cluster.kubeconfig), "a") == []


def test_kinds_that_may_not_be_listed_keep_it(cluster: Api) -> None:
    cluster.unreadable = {"/api/v1/namespaces/a/pods", "/apis/a.example.com/v2/namespaces/a/toys"}
    assert of_others(Kube(cluster.kubeconfig), "a") == ["those of Pod, Toy, which this account may not list"]


def test_a_server_that_does_not_answer_keeps_it(cluster: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an APIService without pods, or a CRD whose conversion webhook is gone."""
    answer = cluster.answer

    def failing(method: str, where: str, query: str, body: dict[str, Any]) -> tuple[int, bytes]:
        failed = where in {"/apis/metrics.example.com/v1", "/apis/a.example.com/v2/namespaces/a/toys"}
        return (503, b'{"message": "no endpoints"}') if failed else answer(method, where, query, body)

    monkeypatch.setattr(cluster, "answer", failing)
    add(cluster, "/api/v1/configmaps", "mine")
    unread = "those of Toy, metrics.example.com/v1, whose server does not answer"
    assert of_others(Kube(cluster.kubeconfig), "a") == ["ConfigMap/mine", unread]
