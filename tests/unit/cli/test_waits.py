"""D6: a job is not submitted while a playbook changes its cluster; the command says which, and waits."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cli import jobs, main, scripts, terminal
from gangplank.cluster import lease
from gangplank.cluster.client import Kube
from gangplank.cluster.lease import Lock
from gangplank.cluster.progress import Phase
from gangplank.runs import holder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.conftest import Api

ROOT = Path(__file__).resolve().parents[3]
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
WHERE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/gangplank"


@pytest.fixture
def other(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A run of site.yml, which holds the cluster."""
    monkeypatch.setattr(lease, "POLL_S", 0.05)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process_:
        Lock(Kube(api.kubeconfig)).hold(holder(process_.pid, ["playbooks/site.yml"]), lambda _: None, 0)
        yield process_
        process_.kill()


@pytest.fixture
def words(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command that submits a job, and does not follow it."""
    monkeypatch.setattr(scripts, "follow", lambda _: Phase("Completed"))
    (tmp_path / "hello.py").write_text("print(1)\n")
    own = {"submit": [str(ROOT / "jobs/digits.yml")], "run": [str(tmp_path / "hello.py")]}
    return [request.param, *own[request.param]]


def submitted(api: Api) -> list[str]:
    """The jobs of the cluster."""
    return [key for key in api.objects if key.startswith(f"{JOBS}/")]


BOTH = pytest.mark.parametrize("words", ["submit", "run"], indirect=True)


@BOTH
def test_d6_a_job_waits_for_the_playbook_and_names_it(
    api: Api, other: subprocess.Popen[bytes], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []

    def note(line: str) -> None:
        notes.append(line)
        if " is in use by " in line:
            assert submitted(api) == []
            assert not [seen for seen in api.seen if "/queues" in seen], "what is just installed was judged"
            other.communicate(b"\n")

    monkeypatch.setattr(terminal, "note", note)
    assert main(words) == 0
    assert f", process {other.pid} (playbooks/site.yml), since " in "".join(notes)
    assert len(submitted(api)) == 1
    assert list(api.objects).count(WHERE) == 1, "a command takes no lock, and removes none"


@BOTH
def test_d6_a_job_is_not_submitted_when_the_playbook_takes_too_long(
    api: Api, other: subprocess.Popen[bytes], words: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(jobs, "PATIENCE_S", 0.2)
    assert main(words) == 1
    assert f"Fix: wait for it or end it (kill {other.pid} on " in capsys.readouterr().err
    assert list(api.objects) == [WHERE]


@BOTH
def test_d6_who_may_not_read_the_lock_waits_for_nobody(
    api: Api, other: subprocess.Popen[bytes], words: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    answer: Any = api.answer

    def refused(method: str, where: str, query: str, body: Any) -> tuple[int, bytes]:
        if "/leases" in where:
            return 403, json.dumps({"message": "leases is forbidden"}).encode()
        got: tuple[int, bytes] = answer(method, where, query, body)
        return got

    monkeypatch.setattr(api, "answer", refused)
    assert main(words) == 0
    assert other.poll() is None
    assert len(submitted(api)) == 1
    assert "leases" not in capsys.readouterr().err


@pytest.mark.parametrize(("ago", "waits"), [(dt.timedelta(hours=2), False), (dt.timedelta(minutes=30), True)])
def test_d6_the_lease_of_a_machine_that_was_lost_long_ago_keeps_nobody_waiting(
    api: Api, other: subprocess.Popen[bytes], ago: dt.timedelta, waits: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(lease, "DURATION_S", 2)  # since when nobody renews it, as the command sees it
    monkeypatch.setattr(lease, "POLL_S", 1.0)
    elsewhere = {**holder(other.pid, ["playbooks/site.yml"]), "boot": "another"}
    own = api.objects[WHERE]
    own["metadata"]["annotations"] = {lease.HOLDER: json.dumps(elsewhere)}
    own["spec"]["renewTime"] = (dt.datetime.now(dt.UTC) - ago).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert main(["submit", str(ROOT / "jobs/digits.yml")]) == 0
    assert (" is in use by " in capsys.readouterr().err) == waits
    assert len(submitted(api)) == 1


def test_d6_a_process_that_lives_is_waited_for_however_long_its_lease_was_not_renewed(
    api: Api, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "PATIENCE_S", 0.2)
    api.objects[WHERE]["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    assert main(["submit", str(ROOT / "jobs/digits.yml")]) == 1
    assert f", process {other.pid} (playbooks/site.yml)" in capsys.readouterr().err


def test_d6_a_dry_run_and_the_run_of_another_job_keep_nobody_waiting(
    api: Api, other: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", str(ROOT / "jobs/digits.yml"), "--dry-run"]) == 0
    assert " is in use by " not in capsys.readouterr().err
    Lock(Kube(api.kubeconfig)).free(holder(other.pid, ["playbooks/site.yml"]))
    Lock(Kube(api.kubeconfig), "digits", "default").hold(holder(os.getppid(), ["train.yml"]), lambda _: None, 0)
    assert main(["submit", str(ROOT / "jobs/digits.yml")]) == 0
    assert " is in use by " not in capsys.readouterr().err
