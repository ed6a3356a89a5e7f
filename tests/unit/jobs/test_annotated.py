"""What is written of a job to keep: read as YAML it is what is submitted; each comment says who adds a line and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gangplank.backends import BACKENDS
from gangplank.backends.base import Site
from gangplank.jobs.annotated import explained
from gangplank.jobs.parse import parse_job
from tests.support.strategies import jobs
from tests.support.sweeps import examples

ROOT = Path(__file__).resolve().parents[3]
Json = dict[str, Any]
TEMPLATES = ROOT / "roles/training_job/templates"


def written(job: Json, scripts: dict[str, str] | None = None) -> str:
    """The file, laid out as Ansible does it."""
    layout = Environment(  # noqa: S701  YAML, no HTML
        loader=FileSystemLoader(TEMPLATES), trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    return layout.get_template("manifests.yml.j2").render(
        __training_job_kept=explained(parse_job(job, scripts=scripts))
    )


def digits(backend: str, **more: Any) -> Json:
    job: Json = yaml.safe_load((ROOT / "jobs/digits-anywhere.yml").read_text())["training_job"]
    return {**job, "backend": backend, **more}


@pytest.mark.slow
@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(jobs())
def test_what_is_written_is_what_is_submitted(job: Json) -> None:
    spec = parse_job(job)
    assert list(yaml.safe_load_all(written(job))) == BACKENDS[spec.backend].manifests(spec)


def test_a_script_is_written_as_it_is() -> None:
    script = "print('# no comment')\n\n# one\n\n\n"
    job = digits("volcano", script="a.py", hyperparameters={}, output="")
    job = {key: value for key, value in job.items() if value not in ({}, "")}
    spec = parse_job(job, scripts={"a.py": script})
    assert list(yaml.safe_load_all(written(job, {"a.py": script}))) == BACKENDS["volcano"].manifests(spec)


@pytest.mark.parametrize("backend", ["volcano", "pytorchjob", "indexed"])
def test_with_the_comments_taken_in_the_templates_are_the_pods(backend: str) -> None:
    job = digits(backend)
    spec = parse_job(job)
    objects = BACKENDS[backend].objects(BACKENDS[backend].manifests(spec)[-1], Site())
    blocks = explained(spec)["documents"][-1]["blocks"]
    whole = yaml.safe_load("\n".join(" " * b["indent"] + line for b in blocks for line in b["lines"]))["spec"]
    templates = {
        "volcano": lambda: [task["template"] for task in whole["tasks"]],
        "pytorchjob": lambda: [part["template"] for part in whole["pytorchReplicaSpecs"].values()],
        "indexed": lambda: [whole["template"]],
    }[backend]()
    pods = [item for item in objects if item["kind"] == "Pod"]
    expected_pods = [pods[0]] if backend == "indexed" else [pods[0], pods[1]]
    assert [template["spec"] for template in templates] == [pod["spec"] for pod in expected_pods]
    for template, pod in zip(templates, expected_pods, strict=True):
        for key in ("labels", "annotations"):
            assert template["metadata"][key] == pod["metadata"][key]


def test_each_addition_says_who_and_why() -> None:
    text = written(digits("volcano"))
    assert (
        "          # Volcano's plugin pytorch: where rank 0 is; WORLD_SIZE counts pods\n"
        "          # - name: MASTER_ADDR\n"
        "          #   value: digits-anywhere-master-0.digits-anywhere\n"
    ) in text
    assert "# Volcano's plugin svc makes NetworkPolicy digits-anywhere: only the job's own pods may connect" in text
    assert "# JobSet makes Service digits-anywhere: so that the pods' names resolve" in written(digits("trainjob"))
    assert "# the training operator makes Service digits-anywhere-worker-0, and 1 more like it: " in written(
        digits("pytorchjob")
    )


def test_a_job_without_a_gang_and_one_on_a_runtime_of_the_clusters_are_written() -> None:
    assert "schedulerName: volcano" in written(digits("pytorchjob", pytorchjob={"gang": False}))
    text = written(digits("trainjob", trainjob={"runtime": "ours"}))
    (manifest,) = (item for item in yaml.safe_load_all(text) if item["kind"] == "TrainJob")
    assert manifest["spec"]["runtimeRef"]["name"] == "ours"


def test_what_differs_from_pod_to_pod_says_so() -> None:
    lines = written(digits("volcano")).splitlines()
    above = [lines[at - 1] for at, line in enumerate(lines) if line.strip() == "# - name: RANK"]
    assert [line.endswith("; each pod has its own") for line in above] == [False, True]
