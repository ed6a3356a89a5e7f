"""Pull secrets: every pod of a job names them, on every back-end, and so does the pod that reads its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site
from gangplank.teams.grants import check_job
from gangplank.teams.job_defaults import with_team
from gangplank.teams.parse import parse_team

if TYPE_CHECKING:
    from gangplank.spec import JobSpec


def job(**fields: Any) -> JobSpec:
    return parse_job({"name": "j", "image": "registry.example.org/mine:1", "script": "/a.py", **fields})


def pods(spec: JobSpec) -> list[dict[str, Any]]:
    backend = BACKENDS[spec.backend]
    objects = backend.objects(backend.manifests(on_site(spec, Gpus()))[-1])
    return [item["spec"] for item in objects if item["kind"] == "Pod"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_pod_names_the_pull_secrets_of_its_job(backend: str) -> None:
    names = [{"name": "registry"}, {"name": "other"}]
    specs = pods(job(backend=backend, pull_secrets=["registry", "other"]))
    assert len(specs) == 3
    assert [pod["imagePullSecrets"] for pod in specs] == [names] * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_without_pull_secrets_leaves_them_to_its_service_account(backend: str) -> None:
    assert all("imagePullSecrets" not in pod for pod in pods(job(backend=backend)))


@pytest.mark.parametrize("name", ["Registry", "user:password", "a b", "registry.example.org/mine"])
def test_refuses_a_name_that_no_secret_has(name: str) -> None:
    with pytest.raises(SpecError, match=r"training_job\.pull_secrets\[1\]: got .*, expected a Secret's name"):
        job(pull_secrets=["registry", name])


def test_a_teams_defaults_have_them_for_all_its_jobs() -> None:
    cap = {"cpu": 4, "memory": "16Gi", "ephemeral_storage": "50Gi"}
    defaults = {"pull_secrets": ["registry"]}
    own = {"team": {"name": "vision", "members": [{"user": "ada"}], "cap": cap, "job_defaults": defaults}}
    team = parse_team(own, "vision.yml")
    spec = parse_job(with_team({"name": "j", "team": "vision", "image": "a.b/c:1", "script": "/a.py"}, [team]))
    assert spec.pull_secrets == ("registry",)
    check_job(spec, [team], "j.yml")  # its grants of Secrets are for what pods read


@pytest.mark.parametrize("field", ["pull_secrets", "secrets"])
def test_a_secret_is_named_once(field: str) -> None:
    with pytest.raises(SpecError, match=rf"training_job\.{field}\[1\]: got \"registry\", expected each Secret once"):
        job(**{field: ["registry", "registry"]})
