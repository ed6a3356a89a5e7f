"""How long a job is followed, and what is said of one that takes longer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.cluster import follow
from gangplank.jobs.parse import parse_job
from tests.unit.plugins.test_cluster_actions import run

if TYPE_CHECKING:
    from tests.unit.conftest import Api

ROOT = Path(__file__).resolve().parents[3]
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


@pytest.fixture
def job() -> dict[str, Any]:
    """The manifest of jobs/digits.yml."""
    return BACKENDS["volcano"].manifests(parse_job(yaml.safe_load((ROOT / "jobs/digits.yml").read_text())))[-1]


@pytest.mark.parametrize(("phase", "expected", "without"), [
    ("Running", ("did not end within 0 s, and continues", "Fix: run the same command again to follow it"), "replace"),
    ("Failed", ("job digits: Failed", "and run the job again with -e training_job_replace=true"), "continues"),
])
def test_a_job_that_runs_at_the_limit_continues_and_a_failed_one_is_replaced(
    api: Api, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch, phase: str, expected: tuple[str, str], without: str
) -> None:
    monkeypatch.setattr(follow, "POLL_S", 0.01)
    api.objects[f"{JOBS}/digits"] = {**job, "status": {"state": {"phase": phase}}}
    result = run("training_job_wait", manifest=job, world_size=3, timeout_s=0.1)
    assert result["failed"]
    assert all(words in result["msg"] for words in expected), result["msg"]
    assert without not in result["msg"]


def test_a_job_is_followed_for_a_day_unless_the_inventory_says_otherwise() -> None:
    defaults = yaml.safe_load((ROOT / "roles/training_job/defaults/main.yml").read_text())
    assert defaults["training_job_timeout_s"] >= 24 * 3600
