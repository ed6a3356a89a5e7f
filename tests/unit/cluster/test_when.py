"""`gangplank when`, by what the API server says: a job that runs, one behind it, and what may not be read."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cli import main
from gangplank.cluster.runs import lasted, run_of
from gangplank.cluster.when import likeness
from gangplank.jobs.parse import parse_job
from gangplank.k8s.build import JOB_NAME

if TYPE_CHECKING:
    from pathlib import Path

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
    labels = {JOB_NAME: of}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": of, "uid": of, "controller": True}
    meta = {"name": name, "namespace": "vision", "uid": f"pod-{name}", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {**SPEC, **more}, "status": {"phase": "Running" if more else "Pending"}}


@pytest.fixture
def site(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A node for one job at a time: `first` runs and has 50 of its 100 steps left, two a second; `second` waits."""
    monkeypatch.setattr("gangplank.cluster.client.Kube.now", lambda _: NOW)
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
    assert {key: round(value) for key, value in said["end"].items()} == {"low": 12, "likely": 30, "high": 70}


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
    assert (code, said["after"]) == (0, ["first", "1 job of other namespaces"])
    assert round(said["start"]["likely"]) == 35 + 60 + 5


def urgent(site: Api, name: str, created_s: float, policy: str = "Never") -> None:
    """A job that waits, of a priority class that is worth more than none; usually it ends no pods of others."""
    where = "/apis/batch/v1/namespaces/vision/jobs/"
    site.objects[where + name] = job(name, created_s, active=1)
    site.objects[where + name]["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    kind = "/apis/scheduling.k8s.io/v1/priorityclasses/urgent"
    site.objects[kind] = {"metadata": {"name": "urgent"}, "value": 100, "preemptionPolicy": policy}


OTHERS: dict[str, str] = {  # job of another namespace: what is said of it
    "first": "after 1 job of other namespaces",
    "third": "whether 1 job of other namespaces starts first: priorityclasses",
    "gated": "whether 1 job of other namespaces, which is ahead of it, starts: when its scheduling",
    "empty": "what 1 job of other namespaces asks for, which waits, too",
}


@pytest.mark.parametrize("name", OTHERS)
def test_jobs_of_other_namespaces_are_a_sum_and_never_named(
    site: Api, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """One runs, one has a priority that may not be read, one cannot be computed, one cannot be foreseen."""
    vision = "/apis/batch/v1/namespaces/vision/jobs/"
    if name == "third":
        urgent(site, "third", 1)
        site.unreadable = {"/apis/scheduling.k8s.io/v1/priorityclasses"}
    elif name != "first":
        site.objects[f"{vision}{name}"] = job(name, 30, active=1)
        spec = site.objects[f"{vision}{name}"]["spec"]
        spec["template"]["spec"] |= {"schedulingGates": [{"name": "g"}]} if name == "gated" else {}
        spec |= {"parallelism": 0, "completions": 0} if name == "empty" else {}
    moved = {where: item for where, item in site.objects.items() if f"/{name}" in where}
    for where, item in moved.items():
        del site.objects[where]
        text = json.dumps([where, item]).replace(f'"{name}', '"quiet-whale').replace(f"/{name}", "/quiet-whale")
        new, other = json.loads(text.replace("vision", "speech"))
        site.objects[new] = other
    log = site.logs.pop("/api/v1/namespaces/vision/pods/first-0/log") if name == "first" else b""
    site.logs["/api/v1/namespaces/speech/pods/quiet-whale-0/log"] = log
    answers = []
    for more in ([], ["-o", "json"]):
        main(["when", "second", "-n", "vision", *more])
        answers.append(capsys.readouterr().out)
    assert OTHERS[name] in answers[0]
    assert OTHERS[name].removeprefix("after ") in answers[1]
    assert not re.search("quiet|whale|speech", "".join(answers)), answers


def test_a_younger_job_of_a_higher_priority_is_ahead(site: Api, capsys: pytest.CaptureFixture[str]) -> None:
    urgent(site, "third", 1)
    assert asked(capsys, "second")[1]["after"] == ["first", "third"]
    assert asked(capsys, "third")[1]["after"] == ["first"]


def test_a_job_that_displaces_others_starts_now_and_who_waits_learns_that_this_is_not_followed(
    site: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    urgent(site, "third", 1, "PreemptLowerPriority")
    said = asked(capsys, "third")[1]
    assert (said["after"], said["start"]["low"]) == ([], 0)
    said = asked(capsys, "second")[1]
    text = "whether third starts first: it would end pods of a lower priority (not computed here)"
    assert said["cannot_tell"] == [text]


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
    assert round(said["start"]["low"]) == 12
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


def test_jobs_of_the_file_s_namespace_are_ahead_for_who_may_list_jobs_there_alone(
    site: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual = site.answer

    def answer(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        refused = where in {"/apis/batch/v1/jobs", "/apis/batch/v1/namespaces/default/jobs"}
        return (403, b'{"message": "forbidden"}') if refused else usual(method, where, query, body)

    monkeypatch.setattr(site, "answer", answer)
    third = job("third", 0)
    del third["metadata"]["uid"], third["metadata"]["creationTimestamp"]
    (tmp_path / "third.json").write_text(json.dumps(third))
    code, said = asked(capsys, str(tmp_path / "third.json"))
    assert (code, said["after"]) == (0, ["first", "second"])


@pytest.mark.parametrize(
    ("state", "reason", "how"),
    [
        ("Complete", "Reached expected number of succeeded pods", "Complete"),
        ("Failed", "Job has reached\nits backoff limit", "Failed: Job has reached its backoff limit"),
        ("Failed", "", "Failed"),
    ],
)
def test_a_job_that_has_ended_is_known_to_have_and_how(
    site: Api, capsys: pytest.CaptureFixture[str], state: str, reason: str, how: str
) -> None:
    done = job("first", 40, conditions=[{"type": state, "status": "True", "message": reason}])
    site.objects["/apis/batch/v1/namespaces/vision/jobs/first"] = done
    code, said = asked(capsys, "first")
    assert (code, said["state"], said["why"], said["cannot_tell"]) == (0, state, f"it has ended: {how}", [])
    assert main(["when", "first", "-n", "vision"]) == 0
    assert capsys.readouterr().out == f"first: it has ended: {how}\n"


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_jobs_of_every_back_end_are_like_others_that_run_the_same(backend: str) -> None:
    """Those of the training operator and of Trainer were like none, so that nobody knew how long they take."""
    fields: Json = {"image": "i", "script": "/a.py", "backend": backend}
    fields |= {"resources": {"cpu": "1", "memory": {"request": "1Gi", "limit": "2Gi"}}}
    first, second, other = (
        BACKENDS[backend].manifests(parse_job({**fields, "name": name, "workers": workers}))[-1]
        for name, workers in (("first", 1), ("second", 1), ("other", 2)))
    assert likeness(first)
    assert likeness(first) == likeness(json.loads(json.dumps(second, sort_keys=True))), "as an API server may answer"
    assert likeness(first) != likeness(other)


def test_a_job_is_like_another_that_runs_the_same_and_lasted_from_running_to_its_end() -> None:
    other = job("other", 5)
    assert likeness(job("first", 40)) == likeness(other)
    other["spec"] = {**other["spec"], "template": {"spec": {"containers": [{**SPEC["containers"][0], "args": ["2"]}]}}}
    assert likeness(job("first", 40)) != likeness(other)
    other = job("other", 5)
    other["spec"] = {**other["spec"], "completions": 9}
    assert likeness(job("first", 40)) != likeness(other), "it has more pods"
    times = [("Pending", ago(90)), ("Running", ago(60)), ("Completed", ago(20))]
    status = {"state": {"phase": "Completed"}, "conditions": [
        {"status": name, "lastTransitionTime": time} for name, time in times]}  # fmt: skip
    volcano = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {}, "status": status}
    assert lasted(volcano) == (40.0, True)
    assert lasted({**volcano, "status": {**status, "state": {"phase": "Failed"}}}) is None


ENDED = {  # by back-end: the status of a job that ran for 40 s, 30 s after it was created, and ended 20 s ago
    "volcano": ({"state": {"phase": "Completed"}, "conditions": [
        {"status": "Pending", "lastTransitionTime": ago(90)}, {"status": "Running", "lastTransitionTime": ago(60)},
        {"status": "Completed", "lastTransitionTime": ago(20)}]}, (40.0, True)),
    "pytorchjob": ({"startTime": ago(90), "completionTime": ago(20), "conditions": [
        {"type": "Created", "status": "True", "lastTransitionTime": ago(90)},
        {"type": "Running", "status": "False", "lastTransitionTime": ago(60)},
        {"type": "Succeeded", "status": "True", "lastTransitionTime": ago(20)}]}, (40.0, True)),
    "trainjob": ({"conditions": [
        {"type": "Suspended", "status": "False", "lastTransitionTime": ago(89)},
        {"type": "Complete", "status": "True", "lastTransitionTime": ago(20)}]}, (70.0, False)),
    "indexed": ({"startTime": ago(90), "completionTime": ago(20), "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": ago(21)},
        {"type": "Complete", "status": "True", "lastTransitionTime": ago(20)}]}, (70.0, False)),
}  # fmt: skip


def finished_pod(name: str, of: str, began_s: float, ended_s: float) -> Json:
    one = pod(name, of, nodeName="a")
    state = {"terminated": {"startedAt": ago(began_s), "finishedAt": ago(ended_s), "exitCode": 0}}
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(began_s + 5)}
    one["status"] = {"phase": "Succeeded", "containerStatuses": [{"state": state}], "conditions": [placed]}
    return one


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_how_long_an_ended_job_of_each_back_end_ran(backend: str) -> None:
    """Its pods say it for every back-end; without them, some statuses only have it with the wait before."""
    kinds = BACKENDS[backend]
    status, without_pods = ENDED[backend]
    ended: Json = {"apiVersion": kinds.api_version, "kind": kinds.kind, "metadata": {"creationTimestamp": ago(90)}}
    ended |= {"status": status}
    assert lasted(ended) == without_pods
    pods = [finished_pod("p-0", "p", 60, 20), finished_pod("p-1", "p", 58, 21)]
    assert lasted(ended, pods) == (40.0, True)
    run = run_of(ended, pods)
    assert run
    assert (run.began - run.created, run.began - run.placed) == (30.0, 3.0)


def ended_job(site: Api, name: str, began_s: float, ended_s: float) -> None:
    conditions = [{"type": "Complete", "status": "True", "lastTransitionTime": ago(ended_s)}]
    site.objects[f"/apis/batch/v1/namespaces/vision/jobs/{name}"] = job(name, began_s + 60, conditions=conditions)
    one = finished_pod(f"{name}-0", name, began_s, ended_s)
    site.objects[f"/api/v1/namespaces/vision/pods/{name}-0"] = one


def test_a_job_without_steps_takes_as_long_as_those_like_it(site: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """Also while it starts up: it does not hold its place forever. Nor does it, with steps, if these have stopped."""
    for number in range(3):
        ended_job(site, f"past{number}", 200 + 100 * number, 100 + 100 * number)
    site.logs.clear()
    code, said = asked(capsys, "first")  # has run for 30 s
    end = {key: round(value) for key, value in said["end"].items()}
    assert (code, end) == (0, {"low": 50, "likely": 70, "high": 95})
    code, said = asked(capsys, "second")
    assert (code, said["after"]) == (0, ["first"])
    assert round(said["end"]["likely"] - said["start"]["likely"]) == 100


def test_what_follows_the_last_step_is_as_long_as_before(site: Api, capsys: pytest.CaptureFixture[str]) -> None:
    ended_job(site, "past", 200, 100)
    lines = [f"{ago(170 - step / 2)} {json.dumps({**STEP, 'step': step}, separators=(',', ':'))}"
             for step in range(10, 101, 10)]  # fmt: skip
    site.logs["/api/v1/namespaces/vision/pods/past-0/log"] = "\n".join(lines).encode()
    said = asked(capsys, "first")[1]
    assert round(said["end"]["likely"]) == 25 + 20  # from the last step, 120 s ago, to the end, 100 s ago
