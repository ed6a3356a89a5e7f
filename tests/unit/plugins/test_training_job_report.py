"""The report of a job that has ended: pods that the cluster has removed since are known from the first run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job
from tests.unit.plugins.test_cluster_actions import run
from tests.unit.proof.test_claims import World

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "jobs/digits.yml"
PODS = {"uid-0": "n", "uid-1": "n", "uid-2": "n"}


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """The arguments of a report but for the job's uid and pods."""
    manifest = BACKENDS["volcano"].manifests(parse_job(yaml.safe_load(DIGITS.read_text())))[-1]
    evidence = [json.dumps(record) for record in World().train()]
    return {"manifest": manifest, "job_uid": "job-1", "created": 990.0, "evidence": evidence,
            "page": str(tmp_path / "reports" / "a.html")}  # fmt: skip


def line(result: dict[str, Any]) -> str:
    (text,) = (text for text in result["lines"] if "pods are the job's" in text)
    return str(text.split(":")[0])


def test_a_second_run_knows_the_pods_of_the_first_and_changes_nothing(job: dict[str, Any]) -> None:
    first = run("training_job_report", **job, uid="1-2", pods=PODS)
    assert (line(first), first["changed"]) == ("ok      pods are the job's", True)
    second = run("training_job_report", **job, uid="1-2", pods={"uid-0": "n"})
    assert (line(second), second["changed"], second["lines"]) == (line(first), False, first["lines"])


def test_the_pods_of_another_job_of_the_name_are_not_known(job: dict[str, Any]) -> None:
    run("training_job_report", **job, uid="1-2", pods=PODS)
    other = run("training_job_report", **job, uid="3-4", pods={"uid-0": "n"})
    assert line(other) == "skipped pods are the job's"


@pytest.mark.parametrize("content", [b"[", b"\xff\xfe"])
def test_files_that_cannot_be_read_are_written_again(job: dict[str, Any], tmp_path: Path, content: bytes) -> None:
    file, page = tmp_path / "reports" / "a.pods.json", Path(job["page"])
    file.parent.mkdir()
    file.write_bytes(content)
    page.write_bytes(content)
    assert line(run("training_job_report", **job, uid="1-2", pods=PODS)) == "ok      pods are the job's"
    assert json.loads(file.read_text()) == {"uid": "1-2", "pods": PODS}
    assert page.read_text().startswith("<!doctype html>")


def test_a_character_that_no_file_can_have_ends_no_report(job: dict[str, Any]) -> None:
    """A script prints any JSON."""
    records = [json.loads(text) for text in job["evidence"]]
    for name in {key for record in records for key, value in record.items() if isinstance(value, str)}:
        broken = [json.dumps({**record, name: f"{record.get(name)}\ud800"}) for record in records]
        for evidence in (broken, [*job["evidence"], *broken]):
            result = run("training_job_report", **{**job, "evidence": evidence}, uid="1-2", pods=PODS)
            assert result["lines"]
            assert "warnings" not in result


def test_a_page_that_cannot_be_written_hides_no_verdict(job: dict[str, Any], tmp_path: Path) -> None:
    """The training has taken hours."""
    (tmp_path / "reports").write_text("a file")
    result = run("training_job_report", **job, uid="1-2", pods=PODS)
    written = run("training_job_report", **{**job, "page": str(tmp_path / "a.html")}, uid="1-2", pods=PODS)
    assert (result["passed"], result["changed"]) == (written["passed"], False)
    assert result["lines"] == written["lines"][:-1]
    (warning,) = result["warnings"]
    assert f"report {job['page']}: got " in warning
    assert warning.endswith("Fix: set training_job_report_folder to another one")


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, {"PWD": "/elsewhere"}])
def test_reports_go_to_the_folder_of_the_call_whatever_its_variable_says(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """`env -i` leaves PWD out, and a program that starts Ansible in another folder passes on its own."""
    defaults = ROOT / "roles/training_job/defaults/main.yml"
    shown = {"ansible.builtin.debug": {"msg": "at {{ training_job_report_folder }}."}}
    play = {"hosts": "localhost", "gather_facts": False, "vars_files": [str(defaults)], "tasks": [shown]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    (tmp_path / "here").mkdir()
    command = [str(ROOT / ".venv/bin/ansible-playbook"), str(tmp_path / "play.yml")]
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **variables}
    done = subprocess.run(command, env=env, cwd=tmp_path / "here", capture_output=True, text=True, check=False)
    assert f"at {tmp_path}/here/reports." in done.stdout, done.stdout + done.stderr
