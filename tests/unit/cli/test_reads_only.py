"""The commands that answer questions change nothing, whatever state a job is in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cli import main, terminal
from gangplank.jobs.parse import parse_job
from tests.support.requests_that_read import reads
from tests.unit.scheduling.states import node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Api

Json = dict[str, Any]
BATCH, CORE = "/apis/batch/v1/namespaces/vision", "/api/v1/namespaces/vision"
ANSWERS = {terminal.OK, terminal.NO, terminal.CANNOT_TELL}
FAILED = {"failed": 1, "conditions": [{"type": "Failed", "status": "True", "message": "it failed"}]}
STATES: dict[str, Json] = {
    "runs": {"active": 1, "ready": 1},
    "waits": {"active": 1},
    "was-refused": {"active": 0},
    "ended": FAILED,
    "stopped": {"active": 0},
}


@pytest.mark.parametrize(("request_line", "expected"), [
    ("GET /api/v1/pods", True),
    ("POST /api/v1/namespaces/a/pods?dryRun=All&fieldManager=gangplank", True),
    ("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", True),
    ("POST /api/v1/namespaces/a/pods?fieldManager=gangplank", False),
    ("POST /apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews", False),
    ("PATCH /api/v1/namespaces/a/pods/b?fieldManager=dryRun", False),
    ("DELETE /api/v1/namespaces/a/pods/b?dryRun=All", False),
    ("PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/b", False),
])  # fmt: skip
def test_what_writes_is_known_by_its_request(request_line: str, expected: bool) -> None:
    assert reads(request_line) is expected


def job(name: str) -> Json:
    fields: Json = {"name": name, "namespace": "vision", "image": "i", "command": ["true"], "backend": "indexed"}
    fields |= {"workers": 0, "resources": {"cpu": "1", "memory": "1Gi"}}
    return BACKENDS["indexed"].manifests(parse_job(fields))[-1]


@pytest.fixture
def site(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A job in each state, and a file with one that is not submitted. The copy for --exact says yes."""
    api.objects["/api/v1/nodes/a"] = machine = node("a")
    machine["metadata"]["uid"] = "node-a"
    for name, status in STATES.items():
        live = {**job(name), "status": status}
        live["metadata"] |= {"uid": name, "creationTimestamp": "2026-11-24T12:00:00Z"}
        api.objects[f"{BATCH}/jobs/{name}"] = live
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
        own = {"name": f"{name}-0", "namespace": "vision", "uid": f"pod-{name}", "ownerReferences": [owner]}
        template = live["spec"]["template"]
        pod = {**template, "metadata": {**template["metadata"], **own}, "status": {"phase": "Pending"}}
        if name == "runs":
            pod |= {"spec": {**pod["spec"], "nodeName": "a"}, "status": {"phase": "Running"}}
        if name in {"runs", "waits"}:
            api.objects[f"{CORE}/pods/{name}-0"] = pod
    api.objects[f"{BATCH}/jobs/stopped"]["spec"]["suspend"] = True
    refused: Json = {"type": "Warning", "reason": "FailedCreate", "message": "forbidden: no"}
    refused["metadata"] = {"name": "e", "namespace": "vision", "uid": "event-e"}
    refused["involvedObject"] = {"kind": "Job", "name": "was-refused", "uid": "was-refused"}
    api.objects[f"{CORE}/events/e"] = refused
    (tmp_path / "new.json").write_text(json.dumps(job("new")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gangplank.shadow.programs.find", lambda *_: ({}, []))
    said = {"verdict": "yes", "placement": {}, "ended": [], "messages": []}
    monkeypatch.setattr("gangplank.shadow.exact.asked", lambda _: said)
    return api


def test_no_question_sends_a_request_that_changes_anything(site: Api) -> None:
    jobs = [*STATES, "new.json"]
    questions = [[command, name] for command in ("why", "fit", "when") for name in jobs]
    questions += [["fit", "--exact", name] for name in jobs]
    questions += [["status", name] for name in STATES]
    questions += [["metrics"]]
    before, dry = json.dumps(site.objects, sort_keys=True), 0
    for words in [["status"], *([*one, "-n", "vision"] for one in questions)]:
        site.seen.clear()
        assert main(words) in ANSWERS, words
        assert site.seen, words
        assert [one for one in site.seen if not reads(one)] == [], words
        dry += sum("dryRun=All" in one for one in site.seen)
    assert dry > len(("why", "fit", "when")), "of the file, and of pods that were refused"
    assert json.dumps(site.objects, sort_keys=True) == before
