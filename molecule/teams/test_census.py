"""The fields that the cluster documents are those that the census decides about, and ordinary jobs pass the rules."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gangplank.cluster.client import group_path, path
from gangplank.teams.census import fields, load
from tests.support.teams_corpus import COUNT, TEAM, largest, ordinary, team
from tests.support.teams_live import answer, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gangplank.cluster.client import Kube

RECORDED = Path(__file__).with_name("fields.txt")


@pytest.mark.usefixtures("crds")
def test_every_field_of_the_api_server_is_in_the_reviewed_list(kube: Kube) -> None:
    census = load()
    versions = dict.fromkeys(kind.api_version for kind in census.kinds)
    documents = [json.loads(kube.read("GET", f"/openapi/v3{group_path(version)}")) for version in versions]
    seen = "".join(f"{text}\n" for text in sorted(map(str, fields(documents, census))))
    if os.environ.get("GANGPLANK_GOLDEN") == "write":
        RECORDED.write_text(seen)
    assert seen.splitlines() == RECORDED.read_text().splitlines(), "GANGPLANK_GOLDEN=write, then decide in census.yml"


PLURALS = {"Namespace": "namespaces", "Queue": "queues", "RoleBinding": "rolebindings"}


@pytest.fixture
def corpus(kube: Kube, as_member: Callable[[str, str], Kube]) -> Iterator[Kube]:
    """A team with a namespace, a queue and members alone; the cluster as bob, who is one of them, sees it."""
    created = []
    for item in team():
        if item["kind"] in PLURALS:
            inside = f"/namespaces/{TEAM}" if "namespace" in item["metadata"] else ""
            where = f"{group_path(item['apiVersion'])}{inside}/{PLURALS[item['kind']]}"
            kube.call("POST", where, item)
            created.append(f"{where}/{item['metadata']['name']}")
    bob = as_member("vision", "bob")
    yield bob
    for where in reversed(created):
        kube.call("DELETE", where)
    until(lambda: "not found" in answer(kube, "GET", f"/api/v1/namespaces/{TEAM}"), f"{TEAM} gone")


@pytest.mark.usefixtures("crds")
def test_ordinary_jobs_of_all_back_ends_are_accepted(corpus: Kube) -> None:
    jobs = ordinary()
    assert len(jobs) == COUNT
    assert len({(job[-1]["apiVersion"], job[-1]["kind"]) for job in jobs}) == 4
    refused = []
    for item in [manifest for job in jobs for manifest in job] + [largest()]:
        where = path(item["apiVersion"], item["kind"], TEAM)
        if reply := answer(corpus, "POST", where, item, dryRun="All"):
            refused.append((item["metadata"]["name"], reply))
    assert refused == []
