"""gangplank proof and report: where evidence comes from, what is expected of it, and what the exit status says."""

from __future__ import annotations

import itertools
import json
import os
import threading
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.backends.pod_template import GPU_TOLERATION, LOST_NODE
from gangplank.cli import main
from gangplank.cli import proof as proof_command
from gangplank.cluster import evidence, patience
from gangplank.cluster.reader import READER_LIMITS
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job
from gangplank.proof import expected
from gangplank.proof.claims import CLAIMS, Expected
from gangplank.proof.records import FORMAT, complete, select
from gangplank.proof.verdict import prove
from tests.unit.cli import test_jobs
from tests.unit.proof.test_claims import World, interrupted, where

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Api

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
JOB = {
    "name": "digits", "image": "img", "script": "/opt/gangplank/trainer/train.py", "output": "/out/digits",
    "volumes": [{"claim": "data", "mount": "/out", "on": "master"}], "hyperparameters": {"epochs": 2, "batch_size": 10},
}  # fmt: skip


def text(records: list[Json]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def folder(tmp_path: Path, records: list[Json]) -> str:
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits/evidence.jsonl").write_text(text(records))
    return str(tmp_path / "digits")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("place", ["", "/evidence.jsonl"])
def test_a_folder_or_its_file_is_proven_without_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    code, out, err = run(capsys, "proof", "--file", folder(tmp_path, World().train()) + place)
    assert (code, err) == (0, "")
    assert "skipped pods are the job's: not asked: files do not say which pods were the job's. Fix: give --pods" in out
    assert "; that 3 are all, the evidence alone says. Fix: give --world-size\n" in out
    assert out.endswith(f"PROVEN: {len(CLAIMS) - 1} of {len(CLAIMS) - 1} claims hold, 1 not asked\n")


def test_the_logs_of_all_ranks_will_do_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "all.log"
    lines = [json.dumps({"event": "evidence", **record}) for record in World().train()]
    log.write_bytes(b"\xff\xfe\n" + "\n".join(["Gloo is here", '{"event":"start"}', *lines]).encode())
    assert run(capsys, "proof", "--file", str(log))[0] == 0


def test_a_proof_that_fails_is_code_1_and_names_the_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(tmp_path, World(change=where("epoch", 1, parameters="other")).train())
    code, out, err = run(capsys, "proof", "--file", place)
    assert code == 1
    assert "FAILED  weights agree" in out
    assert err.startswith("gangplank: digits: not proven: weights agree (2 different sets of weights after epoch 1, ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("spec", [{}, {"spec": None}, {"spec": "hi"}, {"spec": {"runPolicy": "hi"}}])
def test_a_raw_job_of_another_form_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        expected.expected({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, **spec})


def test_what_is_expected_of_a_job_that_waits_or_has_a_runtime_of_the_clusters() -> None:
    for backend, block in ("pytorchjob", {"suspend": True}), ("trainjob", {"runtime": "ours"}):
        job = {"name": "a", "image": "i", "script": "/a.py", "backend": backend, backend: block}
        assert expected.expected(BACKENDS[backend].manifests(parse_job(job))[-1]).world_size == 3
    indexed = BACKENDS["indexed"].manifests(parse_job({"name": "a", "image": "i", "backend": "indexed"}))[-1]
    indexed["spec"]["suspend"] = True  # by Kueue
    assert expected.expected(indexed).world_size == 3


def test_a_job_file_says_what_is_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, job = folder(tmp_path, World().train()), tmp_path / "job.yml"
    job.write_text(yaml.safe_dump({"training_job": JOB}))
    assert run(capsys, "proof", str(job), "--file", place)[0] == 0
    job.write_text(yaml.safe_dump({"training_job": {**JOB, "workers": 3}}))
    code, _, err = run(capsys, "proof", str(job), "--file", place)
    assert code == 1
    assert "every rank took part (rank 3 never finished (no evidence from this rank; if its pod is gone" in err


@pytest.mark.parametrize("command", ["proof", "report"])
def test_evidence_of_a_newer_format_is_code_3_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, out, err = run(capsys, command, "--file", folder(tmp_path, World(format=FORMAT + 1).train()))
    assert (code, out) == (3, "")
    assert err == (
        f"gangplank: rank 0 record 0 (begin) format: got {FORMAT + 1}, expected 1 to {FORMAT}, which this gangplank "
        "can judge. Fix: upgrade gangplank\n"
    )


@pytest.mark.parametrize("command", ["proof", "report"])
def test_no_evidence_is_code_1_with_a_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "log").write_text("Epoch [5/5], Average Loss: 0.02\n")
    code, _, err = run(capsys, command, "--file", str(tmp_path / "log"))
    fix = "Fix: use an image that is built on the trainer's, whose Python observes scripts, and leave `observe` at true"
    assert (code, err) == (1, f"gangplank: log: not proven: no evidence. {fix}\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["proof", "--file", "/nowhere"], 3,
            "/nowhere: got No such file or directory, expected a file that can be read. Fix: give the folder",
        ),
        (
            ["proof", "digits", "--file", "/dev/null"], 3,
            "digits: got no such file, expected a job file, as --file asks no cluster. Fix: name the job by its file",
        ),
        (["proof"], 2, "JOB: got nothing, expected a job file, the name of a job, or --file. Fix: gangplank proof"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str) -> None:
    status, _, err = run(capsys, *words)
    assert status == code
    assert message in err
    assert err.count("\n") == 1


def test_a_report_that_cannot_be_written_is_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(tmp_path, World().train())
    code, _, err = run(capsys, "report", "--file", place, "-o", f"{tmp_path}/none/r.html")
    assert (code, "got No such file or directory, expected a place that can be written. Fix:" in err) == (3, True)


def test_a_report_is_written_where_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "report", "--file", folder(tmp_path, World().train()))
    assert (code, out) == (0, f"report: {tmp_path}/digits-report.html\n")
    assert "Proven" in (tmp_path / "digits-report.html").read_text()


def test_a_training_that_is_not_proven_is_reported_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = folder(tmp_path, World(change=where("epoch", 1, parameters="other")).train())
    assert run(capsys, "report", "--file", place, "-o", str(tmp_path / "r.html"))[0] == 0
    assert "Not proven" in (tmp_path / "r.html").read_text()


def live(api: Api, phase: str = "Completed", pods: int = 3, **fields: Any) -> Json:
    """The job JOB as a cluster has it, with so many of its pods left."""
    manifest = BACKENDS["volcano"].manifests(parse_job(JOB | fields))[-1]
    manifest["metadata"]["uid"] = "u"
    api.objects[f"{test_jobs.JOBS}/digits"] = {**manifest, "status": {"state": {"phase": phase}}}
    for rank, pod in enumerate(expected.pods(manifest)[:pods]):
        name = pod["metadata"]["name"]
        pod["metadata"] |= {"uid": f"uid-{rank}", "ownerReferences": [{"uid": "u", "controller": True}]}
        pod["spec"]["nodeName"] = "n"
        api.objects[f"{PODS}/{name}"] = {**pod, "status": {"phase": "Succeeded"}}
    return manifest


def logs(api: Api, world: World) -> None:
    for pod, rank in {"master-0": 0, "worker-0": 1, "worker-1": 2}.items():
        api.logs[f"{PODS}/digits-{pod}/log"] = text(world.chains[rank]).encode()


def on_claim(api: Api, monkeypatch: pytest.MonkeyPatch, evidence: str) -> None:
    """Pods that are made run at once, and print the evidence."""
    answer = api.answer

    def kubelet(method: str, path: str, query: str, body: Json) -> tuple[int, bytes]:
        if method == "POST":
            name = f"{path}/{body['metadata']['name']}"
            api.objects[name] = {**body, "status": {"phase": "Succeeded"}}
            api.logs[f"{name}/log"] = evidence.encode()
            return 201, json.dumps(body).encode()
        return answer(method, path, query, body)

    monkeypatch.setattr(api, "answer", kubelet)


def test_from_the_pods_that_are_there(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(job="digits-u")
    world.train()
    live(api)
    logs(api, world)
    code, out, err = run(capsys, "proof", "digits")
    assert (code, err) == (0, "")
    assert "ok      global batch: 30 samples per step" in out
    assert not [line for line in api.seen if line.startswith("POST")]


def test_a_file_may_have_more_after_the_job(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last document was taken for the job, so that a world of no ranks was expected."""
    world = World(job="digits-u")
    world.train()
    manifest = live(api)
    logs(api, world)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    file = tmp_path / "raw.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [manifest, service]}))
    code, out, err = run(capsys, "proof", str(file))
    assert (code, err) == (0, ""), out


def test_from_the_claim_where_workers_are_gone(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(job="digits-u")
    live(api, pods=1)
    on_claim(api, monkeypatch, text(world.train()))
    logs(api, world)
    assert run(capsys, "proof", "digits")[0] == 0
    (pod,) = [line.split()[1] for line in api.seen if line.startswith("DELETE")]
    assert pod.startswith(f"{PODS}/digits-evidence-")
    assert pod not in api.objects, "the pod that read it is removed"


@pytest.mark.parametrize(("output", "fix"), [
    ({}, "judge a training before its pods go, or keep its evidence with an `output` on a volume"),
    ({"output": "s3://runs/digits", "volumes": []},
     "gangplank fetch digits brings the output here; then gangplank proof --file digits"),
])
def test_pods_that_are_gone_are_the_cause_and_not_the_image(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, output: Json, fix: str
) -> None:
    live(api, pods=0, **output)
    on_claim(api, monkeypatch, "")
    cause = "no evidence: its pods are gone, and their logs with them"
    assert run(capsys, "proof", "digits") == (1, "", f"gangplank: digits: not proven: {cause}. Fix: {fix}\n")


def test_a_claim_that_is_read_whole_but_slowly_is_judged(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    live(api, pods=1)
    on_claim(api, monkeypatch, text(World(job="digits-u").train()))
    times = itertools.chain([0.0], itertools.repeat(evidence.READER_S + 1.0))
    monkeypatch.setattr(evidence, "time", SimpleNamespace(monotonic=lambda: next(times)))
    code, _, err = run(capsys, "proof", "digits")
    assert (code, err) == (0, "")


@pytest.mark.parametrize("claim", [True, False])
def test_a_log_on_a_lost_node_does_not_hide_what_the_claim_has(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, claim: bool
) -> None:
    """Its kubelet does not answer the API server; without evidence elsewhere, that is the error."""
    world, unreachable = World(job="digits-u"), "dial tcp 10.0.0.3:10250: connect: no route to host"
    live(api)
    records = world.train()
    on_claim(api, monkeypatch, text(records) if claim else "")
    logs(api, world)
    answer = api.answer

    def without_kubelet(method: str, path: str, query: str, body: Json) -> tuple[int, bytes]:
        if path == f"{PODS}/digits-worker-0/log":
            return 500, json.dumps({"message": unreachable}).encode()
        return answer(method, path, query, body)

    monkeypatch.setattr(api, "answer", without_kubelet)
    monkeypatch.setattr(patience, "polls", lambda *_: iter(()))  # nobody waits
    code, out, err = run(capsys, "proof", "digits")
    assert code == (0 if claim else 4), out + err
    assert claim or err.endswith(f"{unreachable}\n")


@pytest.mark.parametrize("phase", ["Running", "Restarting"])
def test_a_job_that_still_runs_is_not_proven_and_its_claim_is_left_alone(
    api: Api, capsys: pytest.CaptureFixture[str], phase: str
) -> None:
    world = World(job="digits-u")
    world.begin()
    live(api, phase)
    logs(api, world)
    code, _, err = run(capsys, "proof", "digits")
    assert (code, "rank 0 never finished" in err) == (1, True)
    assert not [line for line in api.seen if line.startswith("POST")]


def test_another_jobs_evidence_is_rejected(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(job="digits-of-yesterday")
    world.train()
    live(api)
    logs(api, world)
    code, _, err = run(capsys, "proof", "digits")
    assert (code, "one job (got evidence of job digits-of-yesterday, expected digits-u)" in err) == (1, True)


def test_accumulated_batches_and_processes_of_a_pod_count() -> None:
    job = {**JOB, "processes_per_node": 2, "args": ["--accumulate", "4"]}
    facts = expected.expected(BACKENDS["volcano"].manifests(parse_job(job))[-1])
    assert (facts.world_size, facts.processes_per_pod, facts.global_batch, facts.epochs) == (6, 2, 10 * 4 * 6, 2)


RUN = ["torchrun", "--nnodes=3", "a.py"]


@pytest.mark.parametrize(("command", "nproc", "processes"), [
    (["torchrun", "--nproc_per_node=auto", "a.py"], None, 4),
    (["torchrun", "--nproc-per-node", "gpu", "a.py"], "2", 4),
    (RUN, "auto", 4),
    (RUN, None, 4),  # the operator makes it `auto`
    (RUN, "2", 2),
    (["python3", "a.py"], "auto", 1),  # no torchrun, and nobody reads it
    (None, "auto", 1),  # trainer/start.py takes it for 1
    (["bash", "-c", "cd /app && exec torchrun --nproc_per_node='2' a.py"], None, 2),
    (["/bin/sh", "-c", "torchrun \\\n  --nproc-per-node 2 \\\n  a.py"], None, 2),
    (["sh", "-c", "torchrun --nproc_per_node=$N a.py"], "2", None),  # only the pod can say
    (["sh", "-c", "torchrun --nproc_per_node=${PET_NPROC_PER_NODE} a.py"], "2", 2),
    (["torchrun", "--nproc-per-node=cpu", "a.py"], "2", None),
    (RUN, "cpu", None),
    (["accelerate", "launch", "a.py"], None, None),
    (["accelerate", "launch", "a.py"], "1", None),
    (["sh", "-c", "cd /a && exec accelerate launch a.py"], "1", None),
    (["torchrun", "a.py", "--strategy", "deepspeed"], "2", 2),
    (["python3", "a.py", "--cache", "/data/accelerate"], None, 1),
    (["sh", "-c", "torchrun a.py"], "auto", 4),
])
def test_processes_of_a_pod_are_those_that_torchrun_starts(
    command: list[str] | None, nproc: str | None, processes: int | None
) -> None:
    limits = {"nvidia.com/gpu": 4, "cpu": "8"}
    container: Json = {"name": "pytorch", "image": "img", "resources": {"limits": limits}}
    container |= {"command": command} if command else {}
    replica = {"template": {"spec": {"containers": [container]}}}
    spec: Json = {"pytorchReplicaSpecs": {"Master": {**replica, "replicas": 1}, "Worker": {**replica, "replicas": 2}}}
    spec |= {"nprocPerNode": nproc} if nproc else {}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a", "namespace": "b"}}
    facts = expected.expected({**job, "spec": spec})
    assert (facts.world_size, facts.processes_per_pod) == (3 * (processes or 1), processes)
    assert (facts.unsized, facts.replicas) == ((False, None) if processes else (True, 3))
    assert expected.world_size_of({**job, "spec": spec}) == (3 * processes if processes else None)


@pytest.mark.parametrize("resources", [
    {"limits": {"cpu": "8"}}, {"claims": [{"name": "gpus"}]}, {"limits": {"nvidia.com/mig-1g.10gb": 2}}])
def test_a_process_per_gpu_of_gpus_that_have_no_number_is_as_many_as_the_evidence_shows(resources: Json) -> None:
    container: Json = {"name": "pytorch", "image": "img", "command": ["torchrun", "--nproc-per-node=auto", "a.py"],
                       "resources": resources}  # fmt: skip
    replicas = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    facts = expected.expected({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a", "namespace": "b"},
        "spec": {"pytorchReplicaSpecs": {"Master": replicas}}})  # fmt: skip
    records = World(3, change=where("begin", pod_uid="uid-0")).train()
    asked = replace(facts, job_uid=None)
    verdict = prove(records, asked)
    assert verdict.word == "PROVEN", verdict.text()
    assert not complete(select(record for record in records if record["rank"] < 1), facts.world_size)
    assert prove([record for record in records if record["rank"] != 2], asked).word == "NOT PROVEN"


def test_a_job_that_does_not_say_its_processes_still_says_its_pods() -> None:
    spread = World(4, change=lambda record: record.update(pod_uid=f"uid-{record['rank'] // 2}")
                   if record["kind"] == "begin" else None).train()  # fmt: skip
    asked = Expected(2, processes_per_pod=None, unsized=True, replicas=2, pods={"uid-0": "", "uid-1": ""})
    own = prove(spread, asked)
    assert {"pods are the job's", "every rank took part"}.isdisjoint(claim.name for claim in own.failed), own.text()
    stranger = prove(spread, replace(asked, pods={"uid-0": "", "uid-9": ""}))
    assert "pods are the job's" in {claim.name for claim in stranger.failed}
    fewer = prove(spread, replace(asked, replicas=4, pods=None))
    assert "the ranks ran in 2 pods, expected 4" in fewer.text()


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_every_back_ends_manifest_says_the_same(backend: str) -> None:
    job = {key: value for key, value in JOB.items() if key not in {"output", "volumes"}} | {"backend": backend}
    facts = expected.expected(BACKENDS[backend].manifests(parse_job(job))[-1])
    assert (facts.world_size, facts.epochs, facts.global_batch) == (3, 2, 30)


def test_the_reading_pod_sees_the_claim_alone_and_only_to_read() -> None:
    job: dict[str, Any] = {**JOB, "shm_size": "1Gi", "volumes": [*JOB["volumes"], {"claim": "more", "mount": "/more"}]}
    job["volumes"][1]["access"] = "ReadWriteMany"
    pod = evidence.reader(BACKENDS["volcano"].manifests(parse_job(job))[-1])
    assert pod is not None
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["cat", "/out/digits/evidence.jsonl"]
    assert [(mount["mountPath"], mount["readOnly"]) for mount in container["volumeMounts"]] == [
        ("/out", True), ("/more", True)]  # fmt: skip
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert "gangplank.dev/job" not in pod["metadata"]["labels"], "it is not a rank of the job"


@pytest.mark.parametrize("backend", ["volcano", "pytorchjob"])
def test_the_reading_pod_of_a_team_s_job_goes_to_the_team_s_queue(backend: str) -> None:
    def reader(team: str, **more: Json) -> Json:
        job = {**JOB, "team": team, "backend": backend, **more}
        pod = evidence.reader(BACKENDS[backend].manifests(parse_job(job))[-1])
        assert pod is not None
        return pod

    assert reader("vision")["metadata"]["annotations"] == {
        "scheduling.volcano.sh/queue-name": "vision", "sidecar.istio.io/inject": "false"}  # fmt: skip
    assert reader("vision")["spec"]["schedulerName"] == "volcano"
    assert reader("vision")["spec"]["tolerations"] == [*LOST_NODE], "A7: a team tolerates what its file grants"
    on_gpus = reader("vision", resources={"gpus": 1})["spec"]
    assert on_gpus["tolerations"] == [GPU_TOLERATION, *LOST_NODE], "A7: the claim may be on a GPU node"
    assert on_gpus["containers"][0]["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}], "A6"
    assert on_gpus["containers"][0]["resources"]["limits"] == READER_LIMITS
    assert reader("")["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert "schedulerName" not in reader("")["spec"]
    assert reader("")["spec"]["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize("change", [{"output": ""}, {"volumes": []}])
def test_a_job_that_leaves_nothing_on_a_claim_has_no_reading_pod(change: Json) -> None:
    assert evidence.reader(BACKENDS["volcano"].manifests(parse_job({**JOB, **change}))[-1]) is None


def test_logs_of_the_last_generation_alone_are_not_taken_for_the_whole(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New pods have not said what the pods before them said: the claim has it all."""
    world, _ = interrupted(3, job="digits-u")
    live(api)
    for pod, rank in {"master-0": 0, "worker-0": 1, "worker-1": 2}.items():
        second = [record for record in world.chains[rank] if record["time"] == 2000.0]
        assert 0 < len(second) < len(world.chains[rank])
        api.logs[f"{PODS}/digits-{pod}/log"] = text(second).encode()
    on_claim(api, monkeypatch, text(world.records()))
    code, out, _ = run(capsys, "proof", "digits")
    assert (code, "1 resume," in out) == (0, True)


UIDS = {"items": [{"metadata": {"uid": f"uid-{rank}"}, "spec": {"nodeName": "n"}} for rank in range(3)]}


@pytest.mark.parametrize(
    ("pods", "code", "line"),
    [
        ("uid-0,uid-1,uid-2", 0, "ok      pods are the job's: 3 ranks in pods of this job"),
        (" uid-0, uid-1,uid-2,", 0, "ok      pods are the job's: 3 ranks in pods of this job"),
        (",".join(f"uid-{number}-{300 * 'x'}" for number in range(3)), 1, "FAILED  pods are the job's: rank 0 ran in"),
        (UIDS, 0, "ok      pods are the job's: 3 ranks in pods of this job"),
        (UIDS["items"][0], 1, "skipped pods are the job's: not asked: rank 1 ran in pod uid-1, rank 2 ran in pod"),
        ("uid-0,uid-1,uid-3", 1, "FAILED  pods are the job's: rank 2 ran in pod uid-2, which is not a pod of this job"),
        ("a,b,c", 1, "FAILED  pods are the job's: rank 0 ran in pod uid-0, which is not a pod of this job, rank 1"),
    ],
    ids=str,
)  # fmt: skip
def test_e2_files_are_judged_with_the_pods_that_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pods: str | Json, code: int, line: str
) -> None:
    words = pods if isinstance(pods, str) else str(tmp_path / "pods.json")
    (tmp_path / "pods.json").write_text(json.dumps(pods))
    found, out, _ = run(capsys, "proof", "--file", folder(tmp_path, World().train()), "--pods", words)
    assert line in out
    assert found == (code if line.startswith("FAILED") else 0)


def test_a_comma_at_the_end_is_no_pod_without_a_uid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(tmp_path, World(change=where("begin", pod_uid="")).train())
    _, out, _ = run(capsys, "proof", "--file", place, "--pods", "uid-0,uid-1,uid-2,")
    assert "FAILED  pods are the job's: rank 0 ran in pod pod-0, which is not a pod of this job" in out


def test_e2_the_size_of_the_world_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(tmp_path, World().train())
    code, out, _ = run(capsys, "proof", "--file", place, "--world-size", "3")
    assert (code, "the evidence alone says" in out) == (0, False)
    code, out, _ = run(capsys, "proof", "--file", place, "--world-size", "4")
    assert (code, "rank 3 never finished" in out) == (1, True)


def test_e2_a_world_of_one_is_not_distributed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "proof", "--file", folder(tmp_path, World(1).train()))
    assert code == 1
    assert out.splitlines()[-1].startswith("NOT DISTRIBUTED: ")
    assert err == "gangplank: digits: not proven: more than one rank (got a world of 1, expected several ranks)\n"


def test_a_world_of_no_rank_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["proof", "--file", folder(tmp_path, World().train()), "--world-size", "0"])
    assert end.value.code == 2
    assert "argument --world-size: got 0, expected a whole number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["a queue in a folder", "a link to a device in a folder", "a device", "a long name"])
def test_a_file_that_never_ends_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    place = {"a device": "/dev/zero", "a long name": "x" * 300}.get(kind, str(tmp_path))
    if kind == "a queue in a folder":
        os.mkfifo(tmp_path / "evidence.jsonl")
    if kind == "a link to a device in a folder":
        (tmp_path / "evidence.jsonl").symlink_to("/dev/zero")
    code, out, err = run(capsys, "proof", "--file", place)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "Fix: give the folder of the job's `output`, its evidence.jsonl, or saved logs of all ranks" in err


@pytest.mark.slow
def test_a_file_of_a_gibibyte_without_a_line_takes_little_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "evidence.jsonl"
    place.write_text("\ufeff" + text(World().train()))
    os.truncate(place, 1 << 30)
    tracemalloc.start()
    try:
        assert run(capsys, "proof", "--file", str(place))[0] == 0
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_a_file_may_be_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(text(World().train()),))
    writer.start()
    assert run(capsys, "proof", "--file", str(tmp_path / "pipe"))[0] == 0
    writer.join()


def test_more_evidence_than_fits_into_memory_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_command, "MOST", 1000)
    code, out, err = run(capsys, "proof", "--file", folder(tmp_path, World().train()))
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "evidence.jsonl: got more than 1000 bytes of evidence, expected at most so many" in err


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"items": [1]}', "[" * 3000, '{"items": {"a": 1}}'])
def test_pods_that_cannot_be_read_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "pods").write_text(text)
    code, out, err = run(capsys, "proof", "--file", folder(tmp_path, World().train()), "--pods", str(tmp_path / "pods"))
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "expected a list of pods as JSON. Fix: write it with: kubectl get pods -l LABEL=JOB -o json" in err
    for backend in BACKENDS.values():  # a raw manifest has its controller's label alone
        assert f"{backend.wiring.job_name} ({backend.title})" in err


@pytest.mark.parametrize("words", ["nosuch.json", "folder/pods", "uid-0,pods.yml"])
def test_a_mistyped_path_is_no_uid_of_a_pod(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    code, out, err = run(capsys, "proof", "--file", folder(tmp_path, World().train()), "--pods", words)
    assert (code, out) == (3, "")
    assert "--pods: got " in err
    assert "expected a file with pods, or uids of pods" in err


def test_options_of_files_are_refused_for_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "proof", "digits", "--pods", "a")
    message = "--pods: got no --file, expected --file DIR beside it. Fix: leave out --pods: the cluster knows it"
    assert (code, err) == (2, f"gangplank: {message}\n")


def test_e1_a_replay_from_the_claim_is_rejected(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of the same name left its evidence where this one's script wrote none."""
    world = World(job="digits-u", change=where("begin", pod="old"))
    manifest = live(api)
    manifest["metadata"]["creationTimestamp"] = "2026-11-22T05:00:00Z"
    on_claim(api, monkeypatch, text(world.train()))
    for pod in ("master-0", "worker-0", "worker-1"):
        api.logs[f"{PODS}/digits-{pod}/log"] = b"trained without a word\n"
    code, out, _ = run(capsys, "proof", "digits")
    assert (code, "FAILED  pods are the job's: rank 0 record 0 (begin) is " in out) == (1, True)
    assert "older than the job (a replay, or a checkpoint of an earlier job of this name)" in out
