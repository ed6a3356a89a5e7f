"""Namespaces of new teams are created and never taken over; one that cannot go is reported with what holds it."""

from __future__ import annotations

from typing import Any

from gangplank.errors import KubeError
from gangplank.teams.namespaces import create, held
from gangplank.teams.objects import namespace
from gangplank.teams.parse import parse_team

Json = dict[str, Any]
CAP: Json = {"cpu": 4, "memory": "16Gi", "ephemeral_storage": "50Gi"}


class Cluster:
    """An API server with some objects, by path."""

    def __init__(self, **objects: Json) -> None:
        self.objects = {path.replace("__", "/"): item for path, item in objects.items()}

    def post(self, where: str, body: Json) -> Json:
        where = f"{where}/{body['metadata']['name']}"
        if where in self.objects:
            raise KubeError("exists", 409)
        self.objects[where] = body
        return body

    def call(self, _: str, where: str) -> Json:
        return self.objects[where]

    def get(self, where: str) -> Json | None:
        return self.objects.get(where)


def of(name: str) -> Json:
    return namespace(parse_team({"team": {"name": name, "members": [{"user": "ada"}], "cap": CAP}}))


def test_a10_a_namespace_that_appears_after_the_plan_is_refused_and_stays_as_it_is() -> None:
    foreign = {"metadata": {"name": "a", "labels": {"team": "platform"}}}
    cluster: Any = Cluster()
    cluster.objects["/api/v1/namespaces/a"] = foreign
    created, (refused,) = create(cluster, [of("a"), of("b")])
    assert refused.startswith('team a: namespace: got "a", which exists and does not belong to a team, expected')
    assert cluster.objects["/api/v1/namespaces/a"] == foreign
    assert created == ["b"]


def test_a10_a_run_that_is_repeated_finds_its_own_namespaces() -> None:
    cluster: Any = Cluster()
    assert create(cluster, [of("a")]) == (["a"], [])
    assert create(cluster, [of("a")]) == ([], [])


def test_a11_what_holds_a_namespace_is_named_with_its_finalizers() -> None:
    cluster: Any = Cluster()
    left = "configmaps. has 2 resource instances, jobs.batch.volcano.sh has 1 resource instances"
    going = {
        "metadata": {"name": "vision", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [{"type": "NamespaceContentRemaining", "status": "True", "message": f"Some: {left}"}]},
    }
    cluster.objects = {
        "/apis/batch.volcano.sh": {"preferredVersion": {"groupVersion": "batch.volcano.sh/v1alpha1"}},
        "/api/v1/namespaces/vision/configmaps": {
            "items": [{"metadata": {"name": "mine", "finalizers": ["a.b/c"]}}, {"metadata": {"name": "free"}}]
        },
        "/apis/batch.volcano.sh/v1alpha1/namespaces/vision/jobs": {
            "items": [{"metadata": {"name": "late", "finalizers": ["x/y", "foregroundDeletion"]}}]
        },
    }
    patch = "--type=merge -p '{\"metadata\":{\"finalizers\":null}}'"
    assert held(cluster, going) == [
        f"namespace vision: got {path} with the finalizers {finalizers}, expected nothing that keeps the namespace "
        f"from its deletion. Fix: kubectl -n vision patch {path} {patch}"
        for path, finalizers in (
            ("configmaps/mine", "a.b/c"),
            ("jobs.batch.volcano.sh/late", "x/y, foregroundDeletion"),
        )
    ]
    assert held(cluster, {"metadata": {"name": "speech"}, "status": {"phase": "Active"}}) == []
