"""The commands why, fit and when as an account that may read some kinds of jobs, or none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS, submitted_kinds
from gangplank.cli import main, terminal
from gangplank.cluster.client import path
from gangplank.jobs.parse import parse_job
from gangplank.k8s.build import JOB_NAME
from tests.unit.scheduling.states import node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Api

Json = dict[str, Any]
COMMANDS = ("why", "fit", "when")


def job() -> Json:
    """An indexed Job of one pod that no node is large enough for."""
    fields: Json = {"name": "large", "namespace": "vision", "image": "i", "command": ["true"], "backend": "indexed"}
    fields |= {"workers": 0, "resources": {"cpu": "9", "memory": "1Gi"}}
    return BACKENDS["indexed"].manifests(parse_job(fields))[-1]


@pytest.fixture
def readable(api: Api, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The API versions of jobs that this account may read. The API server refuses others before it says what exists."""
    versions = {"batch/v1"}
    usual = api.answer

    def answer(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        kinds = {path(version, kind, "vision"): version for version, kind in submitted_kinds()}
        refused = [where for kind, version in kinds.items() if where.startswith(kind) and version not in versions]
        return (403, b'{"message": "forbidden"}') if refused else usual(method, where, query, body)

    monkeypatch.setattr(api, "answer", answer)
    live = {**job(), "status": {"active": 1}}
    live["metadata"]["uid"] = "u"
    api.objects |= {
        "/api/v1/nodes/a": node("a"),
        "/apis/batch/v1/namespaces/vision/jobs/large": live,
    }
    return versions


@pytest.mark.usefixtures("readable")
def test_a_job_is_seen_by_who_may_read_its_kind_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """As with Kubernetes' own role `edit`, which has no kinds of others."""
    assert main(["why", "large", "-n", "vision", "-o", "json"]) == terminal.OK
    assert json.loads(capsys.readouterr().out)["cause"] == "pod-too-large"
    assert main(["fit", "large", "-n", "vision"]) == terminal.NO


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("by", ["name", "file"])
def test_who_may_read_no_job_is_told_so(
    readable: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, by: str
) -> None:
    readable.clear()
    file = tmp_path / "large.json"
    file.write_text(json.dumps(job()))
    assert main([command, "large" if by == "name" else str(file), "-n", "vision"]) == terminal.CANNOT_TELL
    assert capsys.readouterr().out == "large: cannot tell: you may not read jobs in namespace vision\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_who_may_read_no_job_gets_json_where_json_is_asked_for(
    readable: set[str], capsys: pytest.CaptureFixture[str], command: str
) -> None:
    main([command, "large", "-n", "vision", "-o", "json"])
    answer = json.loads(capsys.readouterr().out)
    readable.clear()
    assert main([command, "large", "-n", "vision", "-o", "json"]) == terminal.CANNOT_TELL
    refused = json.loads(capsys.readouterr().out)
    assert refused["cannot_tell"] == ["you may not read jobs in namespace vision"]
    missing = answer.keys() - refused.keys()
    assert missing <= {"needed", "enough", "pods_now"}, "as of an answer without a remedy"


@pytest.mark.usefixtures("readable")
@pytest.mark.parametrize("status", [{"active": 1}, {"failed": 1, "conditions": [{"type": "Failed", "status": "True"}]}])
def test_what_pods_do_that_may_not_be_read_is_not_guessed(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: Json
) -> None:
    """With the right to read jobs alone, why ended with the API server's refusal."""
    usual = api.answer

    def answer(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        return (403, b'{"message": "forbidden"}') if where.endswith("/pods") else usual(method, where, query, body)

    monkeypatch.setattr(api, "answer", answer)
    api.objects["/apis/batch/v1/namespaces/vision/jobs/large"]["status"] = status
    code = main(["why", "large", "-n", "vision"])
    lines = capsys.readouterr().out.splitlines()
    if "active" in status:
        assert code == terminal.CANNOT_TELL
        assert lines[1] == "cannot tell: what its pods do: you may not list pods in namespace vision"
    assert not any("gone" in line or "because" in line for line in lines), lines
    assert main(["fit", "large", "-n", "vision"]) == terminal.NO, "no node is large enough, whatever runs"


@pytest.mark.usefixtures("readable")
@pytest.mark.parametrize("cores", ["1", "9", "lots"])
def test_a_job_that_the_api_server_refuses_does_not_fit(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, cores: str
) -> None:
    """Whether or not a node has room for it, and anyone can foresee its pods. Of `lots`, why said it cannot tell."""
    usual, reason = api.answer, 'jobs.batch "new" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1'

    def answer(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        dry = method == "POST" and "dryRun=All" in query
        return (403, json.dumps({"message": reason}).encode()) if dry else usual(method, where, query, body)

    monkeypatch.setattr(api, "answer", answer)
    new = job()
    new["metadata"]["name"] = "new"
    new["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cores}}
    file = tmp_path / "new.json"
    file.write_text(json.dumps(new))
    assert main(["fit", str(file), "-o", "json"]) == terminal.NO
    said = json.loads(capsys.readouterr().out)
    assert [one["cause"] for one in said["causes"]] == ["refused", *(["pod-too-large"] if cores == "9" else [])]
    assert reason in said["causes"][0]["text"]
    assert (said["fits"], said["placement"], said["enough"], said["pods_now"]) == ("no", {}, False, 0)
    assert main(["fit", str(file)]) == terminal.NO
    assert "what would" not in capsys.readouterr().out
    assert main(["fit", str(file), "--exact"]) == terminal.NO
    assert reason in capsys.readouterr().out
    assert main(["why", str(file)]) == terminal.OK
    assert capsys.readouterr().out.startswith(f"new would not start because the API server refuses the job: {reason}\n")


@pytest.mark.usefixtures("readable")
def test_a_namespace_that_does_not_exist_is_named(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The cluster was said not to know Jobs."""
    usual = api.answer

    def answer(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        dry = method == "POST" and "dryRun=All" in query
        return (404, b'{"message": "namespaces \\"vison\\" not found"}') if dry else usual(method, where, query, body)

    monkeypatch.setattr(api, "answer", answer)
    file = tmp_path / "new.json"
    new = job()
    new["metadata"]["name"] = "new"
    file.write_text(json.dumps(new))
    assert main(["why", str(file)]) == terminal.OK
    said = capsys.readouterr().out
    assert "because the API server refuses the job: there is no namespace vison\n" in said
    assert "name another with -n, or create it" in said


@pytest.mark.usefixtures("readable")
@pytest.mark.parametrize("named", [False, True])
def test_runtime_classes_are_read_where_a_pod_names_one(api: Api, named: bool) -> None:
    if named:
        live = api.objects["/apis/batch/v1/namespaces/vision/jobs/large"]
        live["spec"]["template"]["spec"]["runtimeClassName"] = "sandboxed"
    main(["fit", "large", "-n", "vision"])
    assert any("runtimeclasses" in request for request in api.seen) is named


@pytest.mark.usefixtures("readable")
@pytest.mark.parametrize("room", [True, False])
def test_only_the_rest_of_a_job_of_which_pods_run_has_to_fit(
    api: Api, capsys: pytest.CaptureFixture[str], room: bool
) -> None:
    """Its first two pods run on a node that is cordoned now. All three were planned again, and had no place."""
    api.objects["/api/v1/nodes/a"] = {**node("a"), "spec": {"unschedulable": True}}
    api.objects["/api/v1/nodes/b"] = node("b", cpu="1" if room else "500m")
    live = api.objects["/apis/batch/v1/namespaces/vision/jobs/large"]
    live["spec"] |= {"completions": 3, "parallelism": 3}
    template = live["spec"]["template"]["spec"]
    template["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "large", "uid": "u", "controller": True}
    for index, where in enumerate(("a", "a", "")):
        own: Json = {"name": f"large-{index}-xyz", "namespace": "vision", "uid": f"u{index}"}
        own |= {"ownerReferences": [owner], "generateName": f"large-{index}-", "labels": {JOB_NAME: "large"}}
        pod: Json = {"metadata": own, "spec": {**template, **({"nodeName": where} if where else {})}}
        pod["status"] = {"phase": "Running" if where else "Pending"}
        api.objects[f"/api/v1/namespaces/vision/pods/{own['name']}"] = pod
    assert main(["fit", "large", "-n", "vision"]) == (terminal.OK if room else terminal.NO)
    lines = capsys.readouterr().out.splitlines()
    if room:
        assert lines == ["large: yes, it runs with 2 of 3 pods; large-2 would start now", "  large-2-<random> on b"]
    else:
        assert lines[0] == "large: no, it runs with 2 of 3 pods; large-2 waits"
        assert not any("what would start now" in line for line in lines), "nothing more has a place"
    main(["fit", "large", "-n", "vision", "-o", "json"])
    assert json.loads(capsys.readouterr().out)["standing"] == "runs with 2 of 3 pods; large-2"


@pytest.mark.usefixtures("readable")
@pytest.mark.parametrize("waits", [False, True])
def test_a_job_that_makes_its_pods_one_after_another_waits_for_its_next_pod_alone(
    api: Api, capsys: pytest.CaptureFixture[str], waits: bool
) -> None:
    """All of its 20 pods were to have a place at once."""
    live = api.objects["/apis/batch/v1/namespaces/vision/jobs/large"]
    live["spec"] |= {"completions": 20, "parallelism": 2}
    live["status"] = {"active": 2, "succeeded": 3, "completedIndexes": "0-1,3"}
    template = live["spec"]["template"]["spec"]
    template["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "large", "uid": "u", "controller": True}
    api.objects["/api/v1/nodes/b"] = node("b")
    for index in range(5):
        phase = "Succeeded" if index in {0, 1, 3} else "Pending" if waits and index == 4 else "Running"
        own: Json = {"name": f"large-{index}-xyz", "namespace": "vision", "uid": f"u{index}"}
        own |= {"ownerReferences": [owner], "generateName": f"large-{index}-", "labels": {JOB_NAME: "large"}}
        spec = {**template, **({} if phase == "Pending" else {"nodeName": "a" if index < 3 else "b"})}
        api.objects[f"/api/v1/namespaces/vision/pods/{own['name']}"] = {
            "metadata": own, "spec": spec, "status": {"phase": phase}
        }  # fmt: skip
    if waits:
        api.objects["/api/v1/nodes/b"] = node("b", cpu="1")
    assert main(["why", "large", "-n", "vision"]) == terminal.OK
    said = capsys.readouterr().out
    if waits:
        assert said.startswith("large runs with 1 of 2 pods; large-4 waits because the cluster is too small")
    else:
        assert said == "large: nothing is wrong: it is Running, 2 of 2 pods run\n"


@pytest.mark.usefixtures("readable")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_manifest_without_a_name_is_refused_with_all_that_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    """Each of these documents was a traceback."""
    kind = "apiVersion: batch/v1\nkind: Job\n"
    metadata = ("", "metadata: digits\n", "metadata: {namespace: vision}\n", "metadata: {name: digits, labels: a}\n")
    file = tmp_path / "raw.yml"
    file.write_text("---\n".join([*(kind + one for one in metadata), "kind: Job\n"]))
    assert main([command, str(file)]) == terminal.REFUSED
    head, *lines = capsys.readouterr().err.splitlines()
    assert head == f"gangplank: {file}: 5 problems"
    said = [
        "Job.metadata: got nothing, expected a mapping",
        'Job.metadata: got "digits", expected a mapping',
        "Job.metadata.name: got nothing, expected a name",
        'Job.metadata.labels: got "a", expected a mapping',
    ]
    fix = "write it as Kubernetes has it, e.g. metadata: {name: digits, labels: {team: vision}}"
    assert lines[:-1] == [f"  document {number}, {one}. Fix: {fix}" for number, one in enumerate(said, start=1)]
    assert lines[-1].startswith('  document 5: got {"kind": "Job"}, expected an object with apiVersion and kind. Fix: ')


@pytest.mark.usefixtures("readable")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_manifest_whose_namespace_is_null_has_the_one_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    """As for kubectl. It was looked for without a namespace, and said not to exist."""
    manifest = job()
    manifest["metadata"]["namespace"] = None
    file = tmp_path / "large.json"
    file.write_text(json.dumps(manifest))
    words = ("-n", "vision", "-o", "json")
    main([command, "large", *words])
    by_name = capsys.readouterr().out
    main([command, str(file), *words])
    assert capsys.readouterr().out == by_name


@pytest.mark.parametrize("command", [*COMMANDS, "status", "logs"])
@pytest.mark.parametrize("name", ["none.yml", "none.yaml", "none.json", "jobs/none"])
@pytest.mark.usefixtures("api")
def test_a_path_without_a_file_is_not_the_name_of_a_job(
    capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    assert main([command, name, "-n", "vision"]) == terminal.UNREADABLE
    said = capsys.readouterr().err
    missing = "no such file, and no job of this name in namespace vision, expected a job file, or the name of a job"
    assert f"{name}: got {'No such file or directory' if '/' in name else missing}" in said
    assert "Fix: give the path of a job file" in said


@pytest.mark.usefixtures("readable")
def test_a_job_may_have_a_name_that_ends_as_a_file_does(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = "/apis/batch/v1/namespaces/vision/jobs/"
    api.objects[f"{jobs}large.yml"] = api.objects.pop(f"{jobs}large")
    api.objects[f"{jobs}large.yml"]["metadata"]["name"] = "large.yml"
    main(["why", "large.yml", "-n", "vision"])
    assert capsys.readouterr().out.startswith("large.yml: ")


@pytest.mark.parametrize("options", [["--programs"], ["--scheduler-config"], ["--programs", "--scheduler-config"]])
def test_options_that_only_exact_reads_are_refused_without_it(
    api: Api, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert main(["fit", "large", *(word for option in options for word in (option, "/nope"))]) == 2
    said = ", ".join(options)
    fix = f"add --exact, or leave out {said}"
    assert capsys.readouterr().err == f"gangplank: {said}: got no --exact, expected --exact beside it. Fix: {fix}\n"
    assert api.seen == []
