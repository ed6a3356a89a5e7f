"""submit, status, logs and delete, against the small API server of conftest.py."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.backends.base import UID, Site
from gangplank.cli import jobs, main
from gangplank.cli.inputs import read_scripts
from gangplank.cluster import follow as following
from gangplank.cluster import submit as submission
from gangplank.cluster.client import Kube
from gangplank.cluster.situation import explanation
from gangplank.jobs.parse import parse_job
from gangplank.teams import inventory
from tests.support.inventories import write_inventory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.conftest import Api

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
DIGITS = str(ROOT / "jobs/digits.yml")
LINEAR = str(ROOT / "jobs/linear.yml")
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "GET /apis/apps/v1/deployments"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command; what it says, but for the line that names the cluster before it is changed."""
    code = main(words)
    captured = capsys.readouterr()
    err = "".join(line for line in captured.err.splitlines(keepends=True) if not line.startswith("cluster: "))
    return code, captured.out, err


def linear() -> list[Json]:
    """What is submitted for jobs/linear.yml."""
    job = yaml.safe_load(Path(LINEAR).read_text())
    return BACKENDS["volcano"].manifests(parse_job(job, scripts=read_scripts(job, ROOT)))


def running(api: Api) -> None:
    """The pods of jobs/digits.yml as a cluster has them, the last rank failing."""
    job = yaml.safe_load(Path(DIGITS).read_text())
    spec = parse_job(job)
    manifest = BACKENDS["volcano"].manifests(spec)[-1]
    manifest["metadata"]["uid"] = UID
    api.objects[f"{JOBS}/digits"] = {**manifest, "status": {"state": {"phase": "Running"}}}
    pods = [item for item in BACKENDS["volcano"].objects(manifest, Site()) if item["kind"] == "Pod"]
    for rank, pod in enumerate(reversed(pods)):
        where = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        state = {"waiting": {"reason": "CrashLoopBackOff"}} if rank == 0 else {"running": {}}
        pod["spec"]["nodeName"] = f"node-{rank % 2}"
        pod["metadata"]["uid"] = f"{UID}-{rank}"
        container = {"name": "worker", "restartCount": 2 - rank, "state": state}
        pod["status"] = {"phase": "Running", "containerStatuses": [container]}
        api.objects[where] = pod
        api.logs[f"{where}/log"] = f"hello from {pod['metadata']['name']}\nbye".encode()


def completed(api: Api) -> None:
    """End every container and the job."""
    api.objects[f"{JOBS}/digits"]["status"] = {"state": {"phase": "Completed"}}
    for item in api.objects.values():
        for container in item.get("status", {}).get("containerStatuses", []):
            container["state"] = {"terminated": {"exitCode": 0}}


def test_submits_what_a_job_needs_and_then_the_job(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    script = linear()[0]["metadata"]["name"]
    code, out, err = run(capsys, "submit", LINEAR)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"ConfigMap default/{script} applied",
        "Job default/linear created",
        "next: gangplank logs linear -n default -f",
    ]
    requests = [f"PATCH /api/v1/namespaces/default/configmaps/{script}", f"POST {JOBS}"]
    lock = "GET /apis/coordination.k8s.io/v1/namespaces/default/leases/gangplank"
    asked = ["GET /apis/scheduling.volcano.sh/v1beta1/queues", DEPLOYMENTS, "GET /apis/batch.volcano.sh/v1alpha1"]
    left = "GET /api/v1/namespaces/default/configmaps"
    assert [line.split("?")[0] for line in api.seen] == [lock, *asked, *requests, *requests, left]
    assert ["dryRun=All" in line for line in api.seen[4:]] == [True, True, False, False, False]
    assert api.objects[f"{JOBS}/linear"]["spec"]["minAvailable"] == 3
    assert "force=true" in api.seen[4]  # a script applied by other means is taken over


def test_raw_objects_of_any_kind_are_applied_before_the_job(
    api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kinds = ("Secret", "ServiceAccount", "Namespace")
    api.groups["/api/v1"] = [{"kind": kind, "name": f"{kind.lower()}s", "namespaced": kind != "Namespace"}
                             for kind in kinds]
    items = [{"apiVersion": "v1", "kind": kind, "metadata": {"name": "mine"}} for kind in kinds]
    job = BACKENDS["indexed"].manifests(parse_job(yaml.safe_load(Path(DIGITS).read_text())))[-1]
    (tmp_path / "raw.yml").write_text(yaml.safe_dump_all([*items, job]))
    for tail in (["--dry-run"], []):
        code, out, err = run(capsys, "submit", str(tmp_path / "raw.yml"), *tail)
        assert (code, err) == (0, "")
        assert out.count(" applied") == 3
    scope = "/api/v1/namespaces"
    assert list(api.objects)[:3] == [f"{scope}/default/secrets/mine", f"{scope}/default/serviceaccounts/mine",
                                     f"{scope}/mine"]
    assert "namespace" not in api.objects[f"{scope}/mine"]["metadata"]
    items[0]["kind"] = "Secrte"
    (tmp_path / "raw.yml").write_text(yaml.safe_dump_all([*items, job]))
    code, _, err = run(capsys, "submit", str(tmp_path / "raw.yml"))
    assert (code, "Secrte of v1: got no such kind" in err) == (4, True)


def test_a_dry_run_makes_nothing(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "submit", LINEAR, "--dry-run")
    assert (code, api.objects) == (0, {})
    assert "created (dry run)" in out
    assert "next:" not in out
    assert all("dryRun=All" in line for line in api.seen if not line.startswith("GET"))


CLOSED = {"metadata": {"name": "default"}, "spec": {}, "status": {"state": "Closed"}}
QUEUES = "/apis/scheduling.volcano.sh/v1beta1"


def with_nodes(api: Api, queue: Json) -> None:
    """A cluster with Volcano's queue and a node with room."""
    allocatable = {"cpu": "9", "memory": "9Gi", "pods": "9"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    api.objects["/api/v1/nodes/a"] = {"metadata": {"name": "a", "labels": {}}, "spec": {}, "status": status}
    api.objects[f"{QUEUES}/queues/default"] = queue
    api.groups[QUEUES.rpartition("/")[0]] = []


@pytest.mark.slow
def test_who_waits_for_a_job_that_does_not_start_is_told_why_once(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_nodes(api, {**CLOSED, "status": {"state": "Open"}})
    monkeypatch.setattr(following, "EXPLAINED_S", 0.0)
    monkeypatch.setattr(following, "POLL_S", 0.01)
    polls = iter(range(9))

    def later(kube: Kube, job: Json, *_: object) -> str:
        """Asked for the third time, it has ended."""
        api.objects[f"{QUEUES}/queues/default"] = CLOSED
        if next(polls) == 2:
            api.objects[f"{JOBS}/linear"]["status"] = {"state": {"phase": "Completed"}}
        return explanation(kube, job)

    monkeypatch.setattr(following, "explanation", later)
    code, out, err = run(capsys, "submit", LINEAR, "--wait")
    assert (code, err) == (0, "")
    said = [line.partition("linear: ")[2] for line in out.splitlines() if " s  linear: " in line]
    assert [line for line in said if line.startswith("linear ")] == [
        "linear does not start because its queue default is Closed"
    ]
    assert said[said.index("linear does not start because its queue default is Closed") + 1].startswith("next: open it")


def test_who_waits_for_a_job_that_fails_is_told_why(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_nodes(api, {**CLOSED, "status": {"state": "Open"}})
    usual = api.answer

    def fails(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        if method == "POST" and where == JOBS:
            body = {**body, "status": {"state": {"phase": "Failed"}}}
        return usual(method, where, query, body)

    monkeypatch.setattr(api, "answer", fails)
    code, _, err = run(capsys, "submit", LINEAR, "--wait")
    assert (code, err.splitlines()[0]) == (1, "gangplank: job linear: Failed")
    assert "why: linear failed: it is Failed" in err.splitlines()
    assert "gangplank submit FILE --wait" in err


def test_who_waits_for_a_job_that_is_deleted_meanwhile_reads_that_and_no_cause(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_nodes(api, {**CLOSED, "status": {"state": "Open"}})

    def deleted(*_: object) -> str:
        api.objects.pop(f"{JOBS}/linear", None)
        api.objects[f"{QUEUES}/queues/default"] = CLOSED  # which explains nothing any more
        return ""

    monkeypatch.setattr(following.JobWatch, "why", deleted)
    code, _, err = run(capsys, "submit", LINEAR, "--wait")
    assert (code, err) == (1, "gangplank: job linear: Failed: Job default/linear does not exist (deleted?)\n")


def test_who_failed_first_is_one_even_if_its_pod_is_gone_at_the_end(api: Api) -> None:
    """The controller removes pods as the job fails, and another one's end is then the first that is left."""
    running(api)
    with_nodes(api, {**CLOSED, "status": {"state": "Open"}})
    api.objects[f"{JOBS}/digits"]["status"] = {"state": {"phase": "Failed"}}
    end = {"terminated": {"exitCode": 7, "reason": "Error", "finishedAt": "2026-11-25T04:00:00Z"}}
    for name in ("digits-master-0", "digits-worker-0"):
        api.objects[f"{PODS}/{name}"]["status"]["containerStatuses"] = [{"name": "trainer", "state": end}]
    watch = following.JobWatch(api.objects[f"{JOBS}/digits"], Kube(api.kubeconfig))
    watch.poll()
    del api.objects[f"{PODS}/digits-master-0"]
    watch.poll()
    said = watch.trouble().splitlines()
    assert said[0] == "why: digits failed: digits-master-0 failed first: Error, exit code 7"
    assert "digits-master-0 failed first (Error, exit code 7); its last lines:" in said


REPORT = (  # of torchrun
    "E1125 04:00:0{0}.000000 1 torch/distributed/elastic/multiprocessing/api.py:1] failed (exitcode: {1}) "
    "local_rank: 0 (pid: 9) of binary: python3\n"
)


@pytest.mark.parametrize("reported", [False, True])
def test_who_failed_first_is_one_of_the_last_attempt_that_has_failed(api: Api, *, reported: bool) -> None:
    """Volcano replaces all pods of a gang by others of the same names."""
    running(api)
    names = ("digits-master-0", "digits-worker-0")
    watch = following.JobWatch(api.objects[f"{JOBS}/digits"], Kube(api.kubeconfig))
    for attempt, codes in enumerate([(0, 7), (9, 0), (0, 0)]):
        for name, code in zip(names, codes, strict=True):
            pod = api.objects[f"{PODS}/{name}"]
            pod["metadata"]["annotations"][BACKENDS["volcano"].attempt] = str(attempt)
            pod["metadata"]["uid"] = f"{name}-{attempt}"
            end = {"exitCode": code, "reason": "Error", "finishedAt": f"2026-11-25T04:00:0{attempt}Z"}
            pod["status"]["containerStatuses"] = [{"name": "trainer", "state": {"terminated": end}}]
            api.logs[f"{PODS}/{name}/log"] = (REPORT.format(attempt, code) if code and reported else "hello\n").encode()
        watch.poll()
        watch.drain()
    failed = watch.failed_first()
    assert failed is not None
    assert (failed.who, failed.how.removeprefix("Error, ")) == ("digits-master-0", "exit code 9")


@pytest.mark.slow
def test_who_reads_from_a_pipe_reads_each_line_when_it_is_said(api: Api) -> None:
    words = [sys.executable, "-m", "gangplank", "submit", LINEAR, "--wait", "--kubeconfig", api.kubeconfig]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(words, cwd=ROOT, env=buffered, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as waiting:
        try:
            assert waiting.stdout is not None
            timer = threading.Timer(10, waiting.kill)
            timer.start()
            lines = [waiting.stdout.readline() for _ in range(3)]
            timer.cancel()
            assert b" s  linear: " in lines[2], "the command waits, and so do its lines"
        finally:
            waiting.terminate()


@pytest.mark.parametrize(("backend", "programs", "missing"), [
    ("volcano", [], ["vc-scheduler, vc-controller-manager, vc-webhook-manager"]),
    ("volcano", ["vc-scheduler", "vc-webhook-manager"], ["vc-controller-manager"]),
    ("volcano", ["vc-scheduler", "vc-controller-manager", "vc-webhook-manager"], []),
    ("pytorchjob", ["vc-scheduler", "vc-controller-manager", "vc-webhook-manager"], ["training-operator"]),
    ("", [], []),
], ids=["CRDs alone", "no controller", "all", "no operator", "Kubernetes' own"])
def test_submit_says_so_when_a_kind_has_outlived_its_operator(
        api: Api, capsys: pytest.CaptureFixture[str], backend: str, programs: list[str], missing: list[str]) -> None:
    for name in (*programs, "coredns"):
        spec = {"template": {"spec": {"containers": [{"image": f"docker.io/volcanosh/{name}:v1.15.1"}]}}}
        meta = {"name": name, "namespace": "somewhere"}
        api.objects[f"{DEPLOYMENTS[4:]}/{name}"] = {"metadata": meta, "spec": spec, "status": {"readyReplicas": 1}}
    job = ["--backend", backend, DIGITS] if backend else [str(ROOT / "jobs/digits-anywhere.yml")]
    code, out, err = run(capsys, "submit", *job)
    assert (code, "created" in out) == (0, True), err
    assert err.count("got no ready pod of ") == len(missing)
    for names in missing:
        assert f"default/digits: got no ready pod of {names}, expected one of each, or the job waits. Fix: " in err


@pytest.mark.parametrize(("backend", "more", "expected"), [
    ("pytorchjob", [], "PyTorchJob"), ("pytorchjob", ["scheduling.volcano.sh"], ""), ("trainjob", [], "TrainJob"),
    ("indexed", [], ""), ("volcano", [], ""),
], ids=["no Volcano", "Volcano", "Trainer alone", "no gang anywhere", "no training either"])
def test_submit_says_so_when_a_job_trains_without_a_gang_as_the_cluster_has_none(
        api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str, more: list[str],
        expected: str) -> None:
    for name in ("kubeflow.org/v1", "trainer.kubeflow.org/v1alpha1", "batch/v1", *more):
        api.objects[f"/apis/{name}"] = {"kind": "there"}
    block = {"pytorchjob": {"gang": False}} if backend == "pytorchjob" else {}
    described = {"name": "a", "image": "i", "script": "/a.py", "backend": backend, **block}
    (tmp_path / "job.json").write_text(json.dumps(described))
    code, _, err = run(capsys, "submit", str(tmp_path / "job.json"))
    assert code == 0, err
    waits = "its pods start one by one, and those that start first wait for the others"
    note = f"{expected} default/a trains without a gang, as this cluster has no Volcano: {waits}\n"
    assert err == (note if expected else "")


def test_does_not_touch_a_job_that_is_there(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    running(api)
    before = json.dumps(api.objects)
    code, _, err = run(capsys, "submit", DIGITS)
    assert (code, json.dumps(api.objects)) == (1, before)
    assert "already exists" in err


def test_a_conflict_that_is_no_taken_name_is_reported_as_it_is(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = api.answer

    def conflict(method: str, *request: Any) -> tuple[int, bytes]:
        return (409, b'{"message": "quota: modified meanwhile"}') if method == "POST" else answer(method, *request)

    monkeypatch.setattr(api, "answer", conflict)
    code, _, err = run(capsys, "submit", DIGITS)
    assert (code, err) == (4, "gangplank: the cluster says: quota: modified meanwhile\n")


def test_an_edited_script_is_refused_and_changes_nothing(
    api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trainer").mkdir()
    script = tmp_path / "trainer/linear.py"
    script.write_text("print(1)\n")
    assert run(capsys, "submit", LINEAR)[0] == 0
    before = json.dumps(api.objects)
    script.write_text("print(2)\n")
    code, _, err = run(capsys, "submit", LINEAR)
    assert (code, json.dumps(api.objects)) == (1, before)
    assert "the script was edited" in err
    assert "gangplank delete" in err
    code, out, _ = run(capsys, "delete", LINEAR)
    assert (code, api.objects) == (0, {}), out  # also the script of before
    assert run(capsys, "submit", LINEAR)[0] == 0
    assert [item["data"] for item in api.objects.values() if "data" in item] == [{"linear.py": "print(2)\n"}]


def test_what_the_server_refuses_leaves_no_script_behind(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.refuses = "admission webhook denied the request"
    code, _, err = run(capsys, "submit", LINEAR)
    assert (code, api.objects) == (4, {})
    assert api.refuses in err


def test_a_refused_job_asks_no_cluster(api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text("training_job: {name: no}")
    assert run(capsys, "submit", str(tmp_path / "job.yml"))[0] == 1
    assert api.seen == []


@pytest.mark.parametrize("job", [DIGITS, "digits"])
def test_status_shows_every_rank_and_what_to_ask_next(api: Api, capsys: pytest.CaptureFixture[str], job: str) -> None:
    running(api)
    code, out, _ = run(capsys, "status", job)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert out.startswith("digits in default on volcano: Running\n")
    assert lines[2] == ["digits-master-0", "0", "node-0", "Running", "0"]
    assert lines[4] == ["digits-worker-1", "2", "node-0", "Running", "2", "CrashLoopBackOff"]
    assert out.splitlines()[-1] == "next: gangplank why digits -n default", "which names the cause and the fix"


def test_finds_a_job_of_any_back_end_by_its_name(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    spec = parse_job({"name": "p", "image": "i", "script": "/a.py", "backend": "pytorchjob", "namespace": "ns"})
    manifest = BACKENDS["pytorchjob"].manifests(spec)[-1]
    conditions = [{"type": "Created", "status": "True"}, {"type": "Succeeded", "status": "True"}]
    api.objects["/apis/kubeflow.org/v1/namespaces/ns/pytorchjobs/p"] = {
        **manifest,
        "status": {"conditions": conditions},
    }
    code, out, _ = run(capsys, "status", "p", "-n", "ns")
    assert (code, out) == (0, "p in ns on pytorchjob: Succeeded\nno pods yet\n")


def test_status_without_a_job_lists_all_that_users_submitted(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\n\nno jobs\n\n" in run(capsys, "status")[1]
    running(api)
    batch = "/apis/batch/v1/namespaces/default/jobs"
    spec = {"completionMode": "Indexed"}
    others: dict[str, Json] = {
        "old": {"metadata": {"name": "old", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec},
        "made": {"metadata": {"name": "made", "ownerReferences": [{"kind": "JobSet"}]}, "spec": spec},
        "backup": {"metadata": {"name": "backup"}, "spec": {"completionMode": "NonIndexed"}},
    }
    api.objects |= {f"{batch}/{name}": {"apiVersion": "batch/v1", "kind": "Job", **job} for name, job in others.items()}
    code, out, _ = run(capsys, "status")
    lines = [line.split() for line in out.splitlines()]
    start = next(i for i, line in enumerate(lines) if line[:1] == ["JOB"])
    assert code == 0
    assert lines[start][:3] == ["JOB", "NAMESPACE", "BACK-END"]
    assert sorted(line[0] for line in lines[start + 1 : start + 3]) == ["digits", "old"]
    assert lines[start + 3] == []


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_logs_carry_their_rank(api: Api, capsys: pytest.CaptureFixture[str], follow: list[str]) -> None:
    running(api)
    completed(api)
    code, out, _ = run(capsys, "logs", "digits", *follow)
    assert code == 0
    lines = out.splitlines() if not follow else sorted(out.splitlines(), key=lambda line: line.split("]")[0])
    assert [line for line in lines if "hello" in line] == [
        "[rank 0] hello from digits-master-0",
        "[rank 1] hello from digits-worker-0",
        "[rank 2] hello from digits-worker-1",
    ]
    assert len(lines) == 6


@pytest.mark.parametrize("follow", [[], ["-f"]])
@pytest.mark.parametrize(("names", "code"), [(["master-0", "worker-0", "worker-1"], 4), (["master-0"], 0)])
def test_logs_of_which_none_may_be_read_are_no_success(
        api: Api, capsys: pytest.CaptureFixture[str], follow: list[str], names: list[str], code: int) -> None:
    running(api)
    completed(api)
    api.unreadable |= {f"{PODS}/digits-{name}/log" for name in names}
    assert run(capsys, "logs", "digits", *follow)[0] == code


def test_logs_are_followed_from_before_the_first_pod_over_a_restart_to_the_end_of_the_job(
        api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`submit` names this command, and most jobs wait in a queue then."""
    running(api)
    where, answer = f"{PODS}/digits-worker-0", api.answer
    held = {key: api.objects.pop(key) for key in [*api.objects] if "/pods/" in key}

    def starts() -> None:
        api.objects.update(held)
        for pod in held.values():
            pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ContainerCreating"}}

    def restarts() -> None:
        api.logs[f"{where}/log"] = b"once more"
        api.objects[where]["status"]["containerStatuses"][0] |= {"restartCount": 5}

    steps: list[Callable[[], object]] = [list, starts, list, lambda: completed(api), restarts, list]

    def later(method: str, path: str, *more: Any) -> tuple[int, bytes]:
        if (method, path) == ("GET", f"{JOBS}/digits"):
            read = any(line.startswith(f"GET {where}/log") for line in api.seen)
            if steps and (read or steps[0] is not restarts):
                steps.pop(0)()
            api.objects[path]["status"]["state"]["phase"] = "Running" if steps else "Completed"
        return answer(method, path, *more)

    monkeypatch.setattr(api, "answer", later)
    code, out, err = run(capsys, "logs", "digits", "-f", "--rank", "1")
    assert (code, err) == (0, "digits: Completed\n")
    assert out.splitlines() == [f"[rank 1] {line}" for line in ("hello from digits-worker-0", "bye", "once more")]
    assert steps == []


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_logs_report_numbered_lines_that_did_not_come_as_submit_does(
        api: Api, capsys: pytest.CaptureFixture[str], follow: list[str]) -> None:
    running(api)
    completed(api)

    def log(rank: int, *numbers: int) -> bytes:
        stopped = [{"event": "stopped", "rank": rank, "step": 1, "number": number} for number in numbers]
        return "".join(f"{json.dumps(one, separators=(',', ':'))}\n" for one in stopped).encode()

    api.logs[f"{PODS}/digits-master-0/log"] = log(0, 3, 4, 5)  # what was rotated away before the first is not lost
    api.logs[f"{PODS}/digits-worker-0/log"] = log(1, 1, 2, 5, 7)
    api.logs[f"{PODS}/digits-worker-1/log"] = log(2, 1, 3)
    code, out, err = run(capsys, "logs", "digits", *follow)
    assert (code, len(out.splitlines())) == (0, 9)
    fix = ("did not come: its node has lost or rotated them. Fix: none, if `gangplank proof digits -n default` says "
           "PROVEN; if not, let `output` name a volume")
    counted = sorted(line for line in err.splitlines() if line != "digits: Completed")
    assert counted == [f"3 lines of the log of digits-worker-0 {fix}", f"a line of the log of digits-worker-1 {fix}"]


def test_logs_of_crashed_attempts_have_their_rank_and_attempt(
        api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    running(api)
    for name, restarts, retries in (("master-0", 0, "0"), ("worker-0", 1, "0"), ("worker-1", 2, "3")):
        pod = api.objects[f"{PODS}/digits-{name}"]
        pod["status"]["containerStatuses"][0]["restartCount"] = restarts
        pod["metadata"]["annotations"]["volcano.sh/job-retry-count"] = retries
        api.logs[f"{PODS}/digits-{name}/log"] = f"{name} now".encode()
        if restarts:
            api.logs[f"{PODS}/digits-{name}/log?previous"] = f"{name} \x1b[2Jcrashed".encode()
    code, out, err = run(capsys, "logs", "digits", "--previous")
    assert (code, out.splitlines()) == (0, [
        "[rank 0, attempt 1] master-0 now",
        "[rank 1, attempt 1] worker-0 \\x1b[2Jcrashed",
        "[rank 1, attempt 2] worker-0 now",
        "[rank 2, attempt 5] worker-1 \\x1b[2Jcrashed",
        "[rank 2, attempt 6] worker-1 now",
    ])  # fmt: skip
    assert err == "removed by the cluster, with their pods or containers: rank 2: attempts 1, 2, 3, 4\n"
    for answer in (b"unable to retrieve container logs for containerd://abc", None):
        api.logs |= {f"{PODS}/digits-worker-0/log?previous": answer} if answer else {}
        if answer is None:
            del api.logs[f"{PODS}/digits-worker-0/log?previous"]
        code, out, err = run(capsys, "logs", "digits", "--previous", "--rank", "1")
        assert (code, out) == (0, "[rank 1, attempt 2] worker-0 now\n")
        assert err == "removed by the cluster, with their pods or containers: rank 1: attempt 1\n"


def test_a_pod_that_failed_and_the_one_in_its_place_are_two_attempts(
        api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    running(api)
    api.objects[f"{PODS}/digits-worker-0"]["status"]["containerStatuses"][0]["restartCount"] = 0
    old = copy.deepcopy(api.objects[f"{PODS}/digits-worker-0"])
    api.objects[f"{PODS}/digits-worker-0"]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:09Z"
    old["metadata"] |= {"name": "digits-worker-0-old", "creationTimestamp": "2026-01-01T00:00:01Z"}
    api.objects[f"{PODS}/digits-worker-0-old"] = old
    api.logs[f"{PODS}/digits-worker-0-old/log"] = b"crashed"
    code, out, err = run(capsys, "logs", "digits", "--previous", "--rank", "1")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == ["[rank 1, attempt 1] crashed", "[rank 1, attempt 2] hello from digits-worker-0"]


ENDED = {"terminated": {"exitCode": 7, "reason": "Error", "finishedAt": "2026-11-25T04:00:00Z"}}
AGAIN = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ENDED}
DONE: Json = {"state": {"terminated": {"exitCode": 0}}, "lastState": ENDED}


def starting(api: Api, phase: str, *, alone: bool = True, **more: Any) -> None:
    """A pod with an init container that failed and has a log, `alone` or beside those that run."""
    running(api)
    for name in ("master-0", "worker-1") if alone else ():
        del api.objects[f"{PODS}/digits-{name}"]
    pod = api.objects[f"{PODS}/digits-worker-0"]
    pod["spec"]["initContainers"] = [{"name": "fetch", "image": "i"}]
    wait = {"name": "trainer", "state": {"waiting": {"reason": "PodInitializing"}}}
    first = {"name": "fetch", "restartCount": 1, **more}
    pod["status"] = {"phase": phase, "initContainerStatuses": [first], "containerStatuses": [wait]}
    api.logs[f"{PODS}/digits-worker-0/log?fetch"] = b"fetching\nno such bucket"


@pytest.mark.parametrize(("phase", "status", "words"), [
    *((*case, words) for case in [("Failed", {"state": ENDED}), ("Pending", AGAIN)] for words in ([], ["--previous"])),
    ("Failed", {"state": ENDED}, ["-f"]),
])
def test_logs_show_the_init_container_that_failed(
        api: Api, capsys: pytest.CaptureFixture[str], phase: str, status: Json, words: list[str]) -> None:
    starting(api, phase, **status)
    api.objects[f"{JOBS}/digits"]["status"]["state"]["phase"] = "Failed"
    code, out, err = run(capsys, "logs", "digits", "--rank", "1", *words)
    assert (code, out.splitlines()[-1].partition("]")[2]) == (0, " no such bucket")
    assert "digits-worker-0: init container fetch: Error, exit code 7; this is the log of that container\n" in err


def test_logs_show_the_rank_once_its_init_container_has_succeeded(
        api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    starting(api, "Running", **DONE)
    code, out, err = run(capsys, "logs", "digits", "--rank", "1")
    assert (code, out, err) == (0, "[rank 1] hello from digits-worker-0\n[rank 1] bye\n", "")


def test_why_names_the_init_container_that_fails_again_and_again(
        api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    starting(api, "Pending", alone=False, **AGAIN)
    with_nodes(api, {**CLOSED, "status": {"state": "Open"}})
    api.objects["/api/v1/namespaces/default/configmaps/digits-svc"] = {"metadata": {"name": "digits-svc"}}
    lines = run(capsys, "why", "digits")[1].splitlines()
    assert "digits-worker-0 ends again and again: init container fetch: Error, exit code 7" in lines[0]
    assert any("no such bucket" in line for line in lines)
    assert any("correct the init container fetch" in line for line in lines)


def test_who_waits_for_a_job_whose_init_container_failed_reads_the_end_of_its_log(api: Api) -> None:
    starting(api, "Failed", state=ENDED)
    with_nodes(api, {**CLOSED, "status": {"state": "Open"}})
    api.objects[f"{JOBS}/digits"]["status"] = {"state": {"phase": "Failed"}}
    watch = following.JobWatch(api.objects[f"{JOBS}/digits"], Kube(api.kubeconfig))
    watch.poll()
    watch.drain()
    said = watch.trouble().splitlines()
    assert said[0] == "why: digits failed: digits-worker-0 failed first: init container fetch: Error, exit code 7"
    first = said.index("digits-worker-0 failed first (init container fetch: Error, exit code 7); its last lines:")
    assert said[first + 1 : first + 3] == ["  fetching", "  no such bucket"]


@pytest.mark.parametrize(("phase", "status"), [("Pending", AGAIN), ("Running", DONE)])
def test_who_waits_blames_no_init_container_that_may_recover(api: Api, phase: str, status: Json) -> None:
    starting(api, phase, **status)
    watch = following.JobWatch(api.objects[f"{JOBS}/digits"], Kube(api.kubeconfig))
    watch.poll()
    assert watch.ends == {}


def test_logs_of_one_rank(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    running(api)
    assert run(capsys, "logs", "digits", "--rank", "1")[1] == "[rank 1] hello from digits-worker-0\n[rank 1] bye\n"
    code, _, err = run(capsys, "logs", "digits", "--rank", "7")
    assert (code, "got no pod of rank 7, expected a pod that writes a log. Fix: try again" in err) == (4, True)


def test_each_rank_has_its_colour_on_a_terminal(api: Api) -> None:
    running(api)
    pods = [item for where, item in api.objects.items() if "/pods/" in where]
    starts = {jobs.prefix(pod, colour=True) for pod in pods}
    assert starts == {f"\x1b[{code}m[rank {rank}]\x1b[0m " for rank, code in enumerate((36, 33, 32))}


@pytest.mark.parametrize("job", [LINEAR, "linear"])
def test_delete_takes_the_script_along(api: Api, capsys: pytest.CaptureFixture[str], job: str) -> None:
    run(capsys, "submit", LINEAR)
    code, out, _ = run(capsys, "delete", job)
    assert (code, api.objects) == (0, {})
    script = linear()[0]["metadata"]["name"]
    assert out.splitlines() == ["Job default/linear removed", f"ConfigMap default/{script} removed"]


@pytest.mark.parametrize("job", [LINEAR, "linear"])
def test_delete_takes_what_a_job_left_that_its_time_limit_removed(
    api: Api, capsys: pytest.CaptureFixture[str], job: str
) -> None:
    run(capsys, "submit", LINEAR)
    script = linear()[0]["metadata"]["name"]
    del api.objects[f"{JOBS}/linear"]
    assert run(capsys, "delete", job)[:2] == (0, f"ConfigMap default/{script} removed\n")
    assert api.objects == {}
    assert run(capsys, "delete", job)[0] == 4


def test_a_new_script_takes_the_place_of_one_whose_job_is_gone(
    api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A team's quota counts them all."""
    run(capsys, "submit", LINEAR)
    (old,) = (where for where in api.objects if "/configmaps/" in where)
    del api.objects[f"{JOBS}/linear"]
    cron = old[:-1] + ("1" if old.endswith("0") else "0")  # a CronJob's pods mount this one
    own = api.objects[old]
    api.objects[cron] = own | {"metadata": own["metadata"] | {"name": cron.rpartition("/")[2]}}
    volumes = [{"name": "x", "projected": {"sources": [{"configMap": {"name": cron.rpartition("/")[2]}}]}}]
    api.objects["/apis/batch/v1/namespaces/default/cronjobs/nightly"] = {
        "metadata": {"name": "nightly"}, "spec": {"jobTemplate": {"spec": {"volumes": volumes}}}}  # fmt: skip
    other = old.replace("linear-script", "linear-other-script")
    api.objects[other] = {"metadata": {"name": other.rpartition("/")[2], "namespace": "default",
                                       "labels": {"gangplank.dev/job": "linear"}}}  # fmt: skip
    (tmp_path / "train.py").write_text("print()\n")
    file = tmp_path / "job.yml"
    file.write_text(yaml.safe_dump({"name": "linear", "image": "i", "backend": "indexed", "script": "train.py"}))
    with contextlib.chdir(tmp_path):
        assert run(capsys, "submit", str(file))[0] == 0
    maps = {where for where in api.objects if "/configmaps/" in where}
    assert (old in maps, other in maps, cron in maps, len(maps)) == (False, True, True, 3)


def test_delete_leaves_a_job_that_is_no_training(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """A batch Job of a CronJob has a name too."""
    where = "/apis/batch/v1/namespaces/default/jobs/linear"
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "c"}
    for meta, whose in (({}, "one that is not a training"), ({"ownerReferences": [owner]}, "one of CronJob nightly")):
        own = {**meta, "name": "linear", "namespace": "default", "uid": "j"}
        api.objects[where] = {"metadata": own, "spec": {"template": {}}}
        code, _, err = run(capsys, "delete", "linear")
        assert (code, where in api.objects) == (1, True)
        assert f"Job default/linear: got {whose}, expected a training. Fix: kubectl delete jobs.batch/linear" in err


def test_a_named_namespace_is_that_of_a_job_file_without_one(
    api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "job.yml"
    for own, place in ({}, "vision"), ({"namespace": "speech"}, "speech"), ({"team": "research"}, "research"):
        file.write_text(yaml.safe_dump({"name": "a", "image": "i", "backend": "indexed", "script": "/a.py", **own}))
        where = f"/apis/batch/v1/namespaces/{place}/jobs/a"
        assert run(capsys, "submit", str(file), "-n", "vision")[0] == 0
        assert where in api.objects
        assert run(capsys, "status", str(file), "-n", "vision")[0] == 0
        assert run(capsys, "delete", str(file), "-n", "vision")[0] == 0
        assert where not in api.objects


@pytest.mark.parametrize(
    ("kind", "spec", "got"),
    [
        (("kubeflow.org/v1", "PyTorchJob"), "hi", '.spec: got "hi", expected a mapping'),
        (("kubeflow.org/v1", "PyTorchJob"), None, ".spec: got nothing, expected a mapping"),
        (("kubeflow.org/v1", "PyTorchJob"), {"runPolicy": "hi"}, '.spec.runPolicy: got "hi", expected a mapping'),
        (("batch.volcano.sh/v1alpha1", "Job"), "hi", '.spec: got "hi", expected a mapping'),
        (("batch.volcano.sh/v1alpha1", "Job"), {"tasks": [{"replicas": "x"}]}, '.spec.tasks[0].replicas: got "x"'),
    ],
)
def test_a_raw_job_of_another_form_is_refused(
    api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: tuple[str, str], spec: object, got: str
) -> None:
    item = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": "a"}, "spec": spec}
    (tmp_path / "raw.yml").write_text(yaml.safe_dump(item))
    code, _, err = run(capsys, "submit", str(tmp_path / "raw.yml"))
    assert (code, f"{kind[1]} a{got}" in err, api.objects) == (1, True, {})


def web(name: str, *used: str) -> Json:
    """A raw Indexed Job whose pods use ConfigMaps."""
    job = BACKENDS["indexed"].manifests(parse_job({"name": name, "image": "i", "script": "/a.py"}))[-1]
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": f"v{number}", "configMap": {"name": one}} for number, one in enumerate(used)]
    return job


def test_delete_of_a_file_with_two_jobs_leaves_what_the_other_job_needs(
    api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    labels = {"of-a": {"gangplank.dev/job": "a"}, "of-b": {"gangplank.dev/job": "b"}}
    maps = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels.get(name, {})}}
            for name in ("of-a", "of-b", "raw-a", "raw-b", "both", "nobody")]
    services = [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}} for name in "ab"]
    described = [*maps, *services, web("a", "raw-a", "both", "of-a"), web("b", "raw-b", "both")]
    (tmp_path / "raw.yml").write_text(yaml.safe_dump_all(described))
    assert run(capsys, "submit", str(tmp_path / "raw.yml"))[0] == 0
    before = set(api.objects)
    code, _, err = run(capsys, "delete", str(tmp_path / "raw.yml"))
    assert (code, err) == (0, "")
    assert {where.partition("/default/")[2] for where in before - set(api.objects)} == {
        "jobs/b", "configmaps/of-b", "configmaps/raw-b", "services/b"}


@pytest.mark.parametrize(("meta", "stays"), [
    ({}, True), ({"labels": {"gangplank.dev/job": "other"}}, True), ({"ownerReferences": [{"uid": "other"}]}, True),
    ({"labels": {"gangplank.dev/job": "web"}}, False), ({"ownerReferences": [{"uid": UID}]}, False)])
def test_delete_of_a_name_removes_only_a_service_that_is_the_job_s(
    api: Api, capsys: pytest.CaptureFixture[str], meta: Json, stays: bool
) -> None:
    job, service = web("web"), "/api/v1/namespaces/default/services/web"
    job["metadata"]["uid"] = UID
    api.objects["/apis/batch/v1/namespaces/default/jobs/web"] = job
    api.objects[service] = {"metadata": {"name": "web", "namespace": "default", **meta}}
    assert run(capsys, "delete", "web")[0] == 0
    assert [*api.objects] == [service] * stays


def test_delete_takes_the_pods_along_and_minds_no_absent_script(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    running(api)
    uid = api.objects[f"{JOBS}/digits"]["metadata"]["uid"]
    code, out, err = run(capsys, "delete", "digits")
    assert (code, out, err) == (0, "Job default/digits removed\n", "")
    deleted = [body for line, body in zip(api.seen, api.bodies, strict=True) if line == f"DELETE {JOBS}/digits"]
    # until its pods are gone: Volcano's controller may forget the deletion of a job whose status it writes
    assert deleted == [{"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}]


@pytest.mark.parametrize(("command", "words"), [("delete", []), ("scale", ["3"])])
def test_a_name_that_jobs_of_two_kinds_have_is_refused_by_what_changes_one(
    api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, words: list[str]
) -> None:
    running(api)
    other = web("digits")
    api.objects["/apis/batch/v1/namespaces/default/jobs/digits"] = other
    before = copy.deepcopy(api.objects)
    code, out, err = run(capsys, command, "digits", *words)
    assert (code, out, api.objects) == (1, "", before)
    assert "job digits: got jobs.batch.volcano.sh and jobs.batch of this name in namespace default" in err
    assert ("kubectl delete jobs.batch.volcano.sh/digits -n default" in err) == (command == "delete")
    (tmp_path / "raw.yml").write_text(yaml.safe_dump(other))
    assert run(capsys, "delete", str(tmp_path / "raw.yml")) == (0, "Job default/digits removed\n", "")
    assert f"{JOBS}/digits" in api.objects


def test_delete_minds_neither_kinds_that_may_not_be_read_nor_what_a_controller_made(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    running(api)
    api.unreadable = {"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/digits"}
    other = web("digits")
    other["metadata"]["ownerReferences"] = [{"uid": "other"}]
    api.objects["/apis/batch/v1/namespaces/default/jobs/digits"] = other
    assert run(capsys, "delete", "digits")[0] == 0


def test_delete_waits_for_the_job_that_it_removes_and_for_no_other_of_its_name(
        api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    running(api)
    uid = api.objects[f"{JOBS}/digits"]["metadata"]["uid"]
    looks = iter([*[uid] * 8, "another"])
    monkeypatch.setattr(submission, "POLL_S", 0)
    monkeypatch.setattr(submission, "live_object", lambda *_: {"metadata": {"uid": next(looks)}})
    code, out, err = run(capsys, "delete", "digits")
    said = "Job default/digits: waits until its pods have ended\n"
    assert (code, out, err, [*looks]) == (0, "Job default/digits removed\n", said, [])


def test_ranks_are_in_the_order_of_numbers(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    spec = parse_job({"name": "many", "image": "i", "script": "/a.py", "workers": 11})
    manifest = BACKENDS["volcano"].manifests(spec)[-1]
    manifest["metadata"]["uid"] = UID
    api.objects[f"{JOBS}/many"] = manifest
    for item in reversed(BACKENDS["volcano"].objects(manifest, Site())):
        if item["kind"] == "Pod":
            api.objects[f"/api/v1/namespaces/default/pods/{item['metadata']['name']}"] = item
    lines = run(capsys, "status", "many")[1].splitlines()[2:]
    assert [int(line.split()[1]) for line in lines] == list(range(12))


def test_a_team_s_job_is_looked_for_where_submit_put_it(
        api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "program_of_ansible", lambda _: None)  # which would take seconds for each command
    (tmp_path / "site/group_vars/all").mkdir(parents=True)
    team = {"members": [{"user": "ada", "role": "lead"}], "namespace": "their-own", "secrets": ["key"],
            "cap": {"cpu": "8", "memory": "8Gi", "ephemeral_storage": "8Gi"},
            "job_defaults": {"image": "i", "output": "s3://bucket/j", "env": {"S3_ENDPOINT_URL": "http://s3"}}}
    place = write_inventory(tmp_path / "site", {"vision": team})
    job = tmp_path / "job.yml"
    job.write_text("training_job: {name: j, team: vision, script: /a.py, workers: 1, secrets: [key]}\n")
    assert run(capsys, "submit", str(job), "--site", str(place)) == (0, ANY, "")
    where = "/apis/batch.volcano.sh/v1alpha1/namespaces/their-own/jobs/j"
    live = api.objects[where]
    write_inventory(tmp_path / "site", {"vision": team | {"secrets": []}})  # what it grants has changed since
    api.refuses = "no more pods"  # such as the reader of `fetch`
    monkeypatch.chdir(tmp_path)
    for command, *words in (["status"], ["logs"], ["scale", "3"], ["proof"], ["report"], ["fetch"], ["delete"]):
        api.seen.clear()
        api.objects[where] = live | {"status": {"state": {"phase": "Failed"}}}
        _, out, err = run(capsys, command, str(job), *words, "--site", str(place))
        assert f"GET {where}" in api.seen, f"{command}: {out}{err}"
    assert where not in api.objects


@pytest.mark.parametrize("command", ["status", "delete", "why"])
@pytest.mark.parametrize("words", [[""], ["digits?"], ["digits#old"], [".."], ["digits", "-n", "default?"]])
def test_no_other_job_is_taken_for_one_whose_name_no_job_can_have(
    api: Api, capsys: pytest.CaptureFixture[str], command: str, words: list[str]
) -> None:
    running(api)
    api.objects["/api/v1/namespaces/default"] = {"metadata": {"name": "default"}}
    before = copy.deepcopy(api.objects)
    code, out, err = run(capsys, command, *words)
    assert (code, out, api.objects) == (4, "", before)
    assert "got nothing in namespace default" in err


@pytest.mark.parametrize("words", [["status", "nope"], ["logs", "nope"], ["delete", "nope"]])
def test_a_job_that_is_not_there_is_code_4(api: Api, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, _, err = run(capsys, *words)
    assert code == 4
    assert "job nope: got nothing in namespace default, expected a job of this name. Fix: name a job that" in err
    assert api.seen


@pytest.mark.parametrize("words", [
    ["status", "nope"], ["why", "nope"], ["fit", "nope"], ["when", "nope"], ["logs", "nope"], ["fetch", "nope"],
    ["scale", "nope", "1"], ["delete", "nope"], ["proof", "nope"], ["report", "nope"], ["data", "ls", "nope"]])
def test_a_name_is_looked_for_in_the_namespace_of_the_kubeconfig_unless_another_is_named(
        api: Api, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    api.set_namespace("vision")
    for more, namespace in (([], "vision"), (["-n", "speech"], "speech")):
        api.seen.clear()
        assert run(capsys, *words, *more)[0] == 4
        assert {line.partition("/namespaces/")[2].partition("/")[0] for line in api.seen} == {namespace}


def test_a_raw_manifest_goes_to_the_namespace_of_the_kubeconfig_and_a_job_file_does_not(
        api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = {"name": "raw", "image": "i", "command": ["true"], "backend": "volcano"}
    raw = BACKENDS["volcano"].manifests(parse_job(job))[-1]
    del raw["metadata"]["namespace"]
    (tmp_path / "raw.json").write_text(json.dumps(raw))
    (tmp_path / "job.json").write_text(json.dumps(job | {"name": "described"}))
    api.set_namespace("vision")
    for name in ("raw", "job"):
        assert run(capsys, "submit", str(tmp_path / f"{name}.json"))[0] == 0
    assert {*api.objects} == {JOBS.replace("default", "vision") + "/raw", f"{JOBS}/described"}
    assert run(capsys, "status", str(tmp_path / "raw.json"))[0] == 0


@pytest.mark.parametrize(("namespace", "label", "words", "refused"), [
    ("their-own", "", [], True), ("elsewhere", "vision", [], False),
    ("elsewhere", "", ["-n", "their-own"], True), ("their-own", "vision", ["-n", "elsewhere"], False)])
def test_a_raw_manifest_needs_the_grants_of_the_team_in_whose_namespace_it_is_created(
        api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        namespace: str, label: str, words: list[str], refused: bool) -> None:
    monkeypatch.setattr(inventory, "program_of_ansible", lambda _: None)
    (tmp_path / "site/group_vars/all").mkdir(parents=True)
    team = {"members": [{"user": "ada"}], "namespace": "their-own", "images": ["a.b/*"],
            "cap": {"cpu": "8", "memory": "8Gi", "ephemeral_storage": "8Gi"}}
    place = write_inventory(tmp_path / "site", {"vision": team})
    job = {"name": "raw", "image": "i", "command": ["true"], "backend": "volcano", "queue": "vision"}
    raw = BACKENDS["volcano"].manifests(parse_job(job))[-1]
    raw["metadata"] = {"name": "raw", "namespace": None, "labels": {"gangplank.dev/team": label}}
    (tmp_path / "raw.json").write_text(json.dumps(raw))
    api.set_namespace(namespace)
    code, _, err = run(capsys, "submit", str(tmp_path / "raw.json"), "--site", str(place), *words)
    assert ("that the file of team vision grants under team_images (a.b/*)" in err) is refused, err
    assert (code, bool(api.seen)) == (int(refused), not refused)
    assert [*api.objects] == ([] if refused else [JOBS.replace("default", "elsewhere") + "/raw"])


def test_what_the_cluster_says_is_told_in_one_line(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.says = (400, "admission webhook denied:\n queue is closed;")
    code, _, err = run(capsys, "submit", DIGITS)
    assert (code, err) == (4, "gangplank: the cluster says: admission webhook denied: queue is closed;\n")


def test_a_kind_that_the_cluster_does_not_know_is_told(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.says = (404, "404 page not found")
    code, _, err = run(capsys, "submit", str(ROOT / "jobs/mnist-gpu.yml"))
    assert (code, "PyTorchJob of kubeflow.org/v1: got no such kind, expected one" in err) == (4, True)
    api.says = (404, 'namespaces "x" not found')
    assert 'namespaces "x" not found' in run(capsys, "submit", DIGITS)[2]


def test_a_cluster_that_does_not_answer_is_code_4(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capsys, "status", "digits", "--kubeconfig", str(tmp_path / "none"))
    assert (code, "expected a kubeconfig with a cluster. Fix: pass --kubeconfig, or" in err) == (4, True)
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {
        "current-context": "x",
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "dead").write_text(json.dumps(config))
    monkeypatch.setattr("gangplank.cluster.client.TIMEOUT_S", 1)
    code, _, err = run(capsys, "status", "digits", "--kubeconfig", str(tmp_path / "dead"))
    assert (code, "got no answer (" in err) == (4, True)
    assert "Traceback" not in err
