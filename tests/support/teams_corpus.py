"""Ordinary jobs of all back-ends, always the same, as a team would submit them: what the admission must accept."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site
from gangplank.teams.objects import team_objects
from gangplank.teams.parse import parse_site, parse_team
from tests.support.strategies import jobs

Json = dict[str, Any]
COUNT, SEED, TEAM = 200, 16, "corpus"
# What its jobs name beyond what every team has
FILE: Json = {
    "name": TEAM,
    "members": [{"user": "bob"}],
    "cap": {"cpu": 64, "memory": "256Gi", "ephemeral_storage": "unlimited", "gpus": 64, "pods": 1000,
            "deviceclass/gpu.example.com": 64},
    "priorities": ["normal"],
    "schedulers": ["default-scheduler"],  # of indexed jobs
    "secrets": ["bucket"],
    "tolerations": ["a"],
    "node_labels": ["disk=fast"],
    "annotation_domains": ["example.com"],
}
BY_CLAIM = Gpus(allocation="dra", device_class="gpu.example.com")
OWN: Json = {"namespace": TEAM, "team": TEAM, "queue": TEAM, "priority": "normal", "secrets": ["bucket"]}


def team() -> list[Json]:
    """The objects of a team that is granted what its jobs need."""
    objects = team_objects([parse_team({"team": FILE}, site=SITE)], SITE)
    return [item for item in objects if item["metadata"]["labels"].get("gangplank.dev/team") == TEAM]


SITE = parse_site({"site": {"priorities": {"normal": 100}}})


def ordinary() -> list[list[Json]]:
    """The manifests of each job."""
    descriptions: list[Json] = []

    @seed(SEED)
    @settings(max_examples=COUNT, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(jobs())
    def collect(job: Json) -> None:
        descriptions.append(job["training_job"])

    collect()
    return [manifests_of(job) for job in descriptions[:COUNT]]


def manifests_of(job: Json) -> list[Json]:
    """A job as a member of the team submits it."""
    backend = BACKENDS[job["backend"]]
    own = {name: value for name, value in OWN.items() if name in job or name in {"namespace", "team", "queue"}}
    own = {name: value for name, value in own.items() if name not in backend.refuses}
    if "node_selector" in job:
        own["node_selector"] = {"disk": "fast"}
    spec = parse_job({"training_job": job | own})
    by_claim = not backend.no_claims and spec.workers % 2  # as on a site of either kind
    return backend.manifests(on_site(spec, BY_CLAIM) if by_claim else spec)


def largest(replicas: int = 1000) -> Json:
    """A Volcano job with a task for each of its pods, more than any job file makes."""
    job = {"name": "largest", "image": "img", "backend": "volcano", "command": ["true"], "workers": 1}
    (manifest,) = manifests_of(job)
    tasks = [manifest["spec"]["tasks"][1] | {"name": f"w{number}", "replicas": 1} for number in range(replicas)]
    manifest["spec"] |= {"tasks": tasks, "minAvailable": replicas, "plugins": {}}
    return manifest
