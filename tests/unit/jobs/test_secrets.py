"""A bucket's credentials: named in the job, taken from a Secret by every back-end, written nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job


def job(**fields: Any) -> Any:
    return parse_job({"name": "j", "image": "i", "script": "/a.py", "workers": 1, **fields})


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "trainjob"])
def test_every_rank_takes_the_keys_of_the_secret_as_its_environment(backend: str) -> None:
    spec = job(backend=backend, secrets=["bucket"], output="s3://runs/j")
    objects = [item for manifest in BACKENDS[backend].manifests(spec) for item in expanded(backend, manifest)]
    containers = [item["spec"]["containers"][0] for item in objects if item["kind"] == "Pod"]
    assert [container["envFrom"] for container in containers] == [[{"secretRef": {"name": "bucket"}}]] * 2
    assert all(container["args"][-2:] == ["--output", "s3://runs/j"] for container in containers)


def test_a_trainjob_cannot_take_them_and_says_so() -> None:
    with pytest.raises(SpecError, match=r"no secrets on trainjob \(it belongs to the runtime, .*\)\. Fix: add envFrom"):
        job(backend="trainjob", secrets=["bucket"])


def expanded(backend: str, manifest: Any) -> Any:
    return BACKENDS[backend].objects(manifest) if manifest["kind"].endswith("Job") else []


def test_a_job_without_secrets_takes_none() -> None:
    (manifest,) = BACKENDS["volcano"].manifests(job())
    assert "envFrom" not in str(manifest)


@pytest.mark.parametrize("output", ["s3://runs/a/b", "gs://runs", "/opt/out"])
def test_an_output_is_a_folder_or_in_a_bucket(output: str) -> None:
    assert job(output=output).output == output


@pytest.mark.parametrize("output", ["s3://", "s3://A/b", "http://host/a", "s3://b/a c", "out"])
def test_an_output_that_is_neither_is_refused(output: str) -> None:
    with pytest.raises(SpecError, match=r"training_job\.output: got .*, expected an absolute path .*s3://.* or gs://"):
        job(output=output)


def test_an_output_in_a_bucket_needs_no_volume() -> None:
    data = {"claim": "mnist", "mount": "/data", "access": "ReadOnlyMany"}
    assert job(output="s3://runs/a", volumes=[data]).output == "s3://runs/a"
    with pytest.raises(SpecError, match="else it is lost with the pod"):
        job(output="/out", volumes=[data])


def test_a_value_in_the_place_of_a_name_is_refused() -> None:
    with pytest.raises(SpecError, match="a Secret's name"):
        job(secrets=["AWS_SECRET_ACCESS_KEY=abc"])
