"""`gangplank when`, by what the API server says: a job that runs, one behind it, and what may not be read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cli import main
from gangplank.cluster.when import lasted, likeness
from gangplank.jobs.parse import parse_job

if TYPE_CHECKING:
    from tests.unit.conftest import Api

Json = dict[str, Any]
STEP = {"event": "step", "rank": 0, "epoch": 1, "steps_total": 100, "loss": 1, "mean_loss": 1, "gradient_norm": 1}
SPEC = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]}


NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def job(name: str, created_s: float, **status: Any) -> Json:
    described: Json = {"name": name, "namespace": "vision", "image": "i", "command": ["true"], "backend": "indexed"}
    described |= {"workers": 0, "resources": {"cpu": "3", "memory": "1Gi"}}
    manifest = BACKENDS["indexed"].manifests(parse_job(described))[-1]
    manifest["metadata"] |= {"uid": name, "creationTimestamp": ago(created_s)}
    return {**manifest, "status": status}


def pod(name: str, of: str, **more: Any) -> Json:
    labels = {"gangplank.dev/job": of, "batch.kubernetes.io/job-name": of}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": of, "uid": of, "controller": True}
    meta = {"name": name, "namespace": "vision", "uid": f"pod-{name}", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {**SPEC, **more}, "status": {"phase": "Running" if more else "Pending"}}


@pytest.fixture
def site(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A node for one job at a time: `first` runs and has 50 of its 100 steps left, two a second; `second` waits."""
    monkeypatch.setattr("gangplank.cluster.when.time.time", NOW.timestamp)
    ready = [{"type": "Ready", "status": "True"}]
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    node = {"metadata": {"name": "a"}, "spec": {}, "status": {"allocatable": room, "conditions": ready}}
    runs = pod("first-0", "first", nodeName="a")
    runs["status"]["startTime"] = ago(30)
    api.objects |= {
        "/api/v1/nodes/a": node,
        "/apis/batch/v1/namespaces/vision/jobs/first": job("first", 40, active=1),
        "/apis/batch/v1/namespaces/vision/jobs/second": job("second", 20, active=1),
        "/api/v1/namespaces/vision/pods/first-0": runs,
        "/api/v1/namespaces/vision/pods/second-0": pod("second-0", "second"),
    }
    lines = [f"{ago(25 - step / 2)} {json.dumps({**STEP, 'step': step}, separators=(',', ':'))}"
             for step in range(10, 51, 10)]  # fmt: skip
    api.logs["/api/v1/namespaces/vision/pods/first-0/log"] = "\n".join(lines).encode()
    return api


def asked(capsys: pytest.CaptureFixture[str], name: str) -> tuple[int, Json]:
    code = main(["when", name, "-n", "vision", "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("site")
def test_a_job_that_runs_ends_when_its_steps_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = asked(capsys, "first")
    assert (code, said["state"]) == (0, "running")
    assert {key: round(value) for key, value in said["end"].items()} == {"low": 25, "likely": 30, "high": 45}


@pytest.mark.usefixtures("site")
def test_a_job_that_waits_starts_after_it_and_takes_as_long(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = asked(capsys, "second")
    assert (code, said["state"], said["after"]) == (0, "waiting", ["first"])
    assert round(said["start"]["likely"]) == 35
    assert round(said["end"]["likely"]) == 35 + 60  # 30 s so far, and 30 left
    assert main(["when", "second", "-n", "vision"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("second would start in about ")
    assert "after first\nit would end in about " in out


def elsewhere(site: Api) -> None:
    """A job of another namespace, older than `second`, which mounts a claim that only its own namespace has."""
    other = job("other", 30, active=1)
    other["metadata"]["namespace"] = "speech"
    spec = other["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    claim = {"metadata": {"name": "data", "namespace": "speech"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    claim |= {"status": {"phase": "Bound"}}
    site.objects |= {
        "/apis/batch/v1/namespaces/speech/jobs/other": other,
        "/api/v1/namespaces/speech/persistentvolumeclaims/data": claim,
    }


def test_jobs_ahead_are_judged_by_their_own_namespace(site: Api, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere(site)
    code, said = asked(capsys, "second")
    assert (code, said["after"]) == (0, ["first", "other"])
    assert round(said["start"]["likely"]) == 35 + 60 + 5


def urgent(site: Api, name: str, created_s: float) -> None:
    """A job that waits, of a priority class that is worth more than none."""
    where = "/apis/batch/v1/namespaces/vision/jobs/"
    site.objects[where + name] = job(name, created_s, active=1)
    site.objects[where + name]["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    kind = "/apis/scheduling.k8s.io/v1/priorityclasses/urgent"
    site.objects[kind] = {"metadata": {"name": "urgent"}, "value": 100}


def test_a_younger_job_of_a_higher_priority_is_ahead(site: Api, capsys: pytest.CaptureFixture[str]) -> None:
    urgent(site, "third", 1)
    assert asked(capsys, "second")[1]["after"] == ["first", "third"]
    assert asked(capsys, "third")[1]["after"] == ["first"]


def test_who_may_not_read_priorities_learns_that_the_order_is_unknown(
    site: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    urgent(site, "third", 1)
    usual = site.answer

    def answer(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        denied = where == "/apis/scheduling.k8s.io/v1/priorityclasses"
        return (403, b'{"message": "forbidden"}') if denied else usual(method, where, query, body)

    monkeypatch.setattr(site, "answer", answer)
    said = asked(capsys, "second")[1]
    assert round(said["start"]["low"]) == 25
    assert round(said["start"]["likely"]) == 35 + 60 + 5
    assert said["cannot_tell"] == ["whether third starts first: priorityclasses (you may not list them)"]


def test_devices_by_claim_are_counted(site: Api, capsys: pytest.CaptureFixture[str]) -> None:
    gpu, api = "gpu.example.com", "/apis/resource.k8s.io/v1"
    requests = [{"name": "gpus", "exactly": {"deviceClassName": gpu, "count": 1}}]
    where = "/apis/batch/v1/namespaces/vision/jobs/second"
    claims = [{"name": "gpus", "resourceClaimTemplateName": "second"}]
    site.objects[where]["spec"]["template"]["spec"]["resourceClaims"] = claims
    site.objects |= {
        f"{api}/deviceclasses/{gpu}": {"metadata": {"name": gpu}, "spec": {}},
        f"{api}/resourceslices/a": {"spec": {"driver": gpu, "nodeName": "a", "devices": [{"name": "gpu-0"}]}},
        f"{api}/namespaces/vision/resourceclaimtemplates/second": {
            "metadata": {"name": "second", "namespace": "vision"}, "spec": {"spec": {"devices": {"requests": requests}}}
        },
    }  # fmt: skip
    code, said = asked(capsys, "second")
    assert (code, said["why"], said["after"]) == (0, "", ["first"])


def test_a_rank_that_says_nothing_leaves_the_answer_open(site: Api, capsys: pytest.CaptureFixture[str]) -> None:
    site.logs.clear()
    assert [asked(capsys, name)[0] for name in ("first", "second")] == [6, 6]
    assert main(["when", "second", "-n", "vision"]) == 6
    reason = "the jobs that say when they end free too little: of the others, 1 that hold something do not say"
    assert f"second: cannot tell when it starts: {reason}" in capsys.readouterr().out


def test_what_may_not_be_read_is_said(
    site: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = site.answer

    def answer(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        return (403, b'{"message": "forbidden"}') if where == "/api/v1/pods" else usual(method, where, query, body)

    monkeypatch.setattr(site, "answer", answer)
    code, said = asked(capsys, "second")
    assert (code, said["start"]) == (6, None)
    assert "pods of all namespaces (you may not list them)" in said["why"]


def test_a_job_that_has_ended_has_nothing_ahead_of_it(site: Api, capsys: pytest.CaptureFixture[str]) -> None:
    done = job("first", 40, conditions=[{"type": "Complete", "status": "True"}])
    site.objects["/apis/batch/v1/namespaces/vision/jobs/first"] = done
    code, said = asked(capsys, "first")
    assert (code, said["why"]) == (6, "it is Complete")


def test_a_job_is_like_another_that_runs_the_same_and_lasted_from_running_to_its_end() -> None:
    other = job("other", 5)
    assert likeness(job("first", 40)) == likeness(other)
    other["spec"] = {**other["spec"], "template": {"spec": {"containers": [{**SPEC["containers"][0], "args": ["2"]}]}}}
    assert likeness(job("first", 40)) != likeness(other)
    times = [("Pending", ago(90)), ("Running", ago(60)), ("Completed", ago(20))]
    status = {"state": {"phase": "Completed"}, "conditions": [
        {"status": name, "lastTransitionTime": time} for name, time in times]}  # fmt: skip
    volcano = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {}, "status": status}
    assert lasted(volcano) == pytest.approx(40, abs=0.1)
    assert lasted({**volcano, "status": {**status, "state": {"phase": "Failed"}}}) is None
