"""run: a script without a job file, against the small API server of conftest.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.backends.base import UID, Site
from gangplank.cli import main, scripts
from gangplank.cli.parser import command_line
from gangplank.cluster.progress import Phase
from gangplank.cluster.stuck import Stuck
from gangplank.jobs.parse import parse_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.cluster.follow import JobWatch
    from tests.unit.conftest import Api

Json = dict[str, Any]
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script in the current folder."""
    (tmp_path / "My_Train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    return "My_Train.py"


def ends(api: Api, monkeypatch: pytest.MonkeyPatch, phase: str, codes: dict[str, int]) -> None:
    """The job that is submitted has ended at the first look, its pods with these exit codes."""
    def finish(watch: JobWatch) -> Any:
        key = f"{JOBS}/{watch.name}"
        job = api.objects[key]
        job["metadata"]["uid"] = UID
        pods = [item for item in BACKENDS["volcano"].objects(job, Site()) if item["kind"] == "Pod"]
        for number, pod in enumerate(pods):
            name = pod["metadata"]["name"]
            where = f"/api/v1/namespaces/default/pods/{name}"
            code = codes.get(name.removeprefix(watch.name), 0)
            end = {"exitCode": code, "reason": "Error", "finishedAt": f"2026-01-01T00:00:0{code}Z"}
            pod["metadata"]["uid"] = f"{UID}-{number}"
            pod["status"] = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [
                {"name": pod["spec"]["containers"][0]["name"], "restartCount": 0, "state": {"terminated": end}}]}
            api.objects[where] = pod
            api.logs[f"{where}/log"] = f"2026-01-01T00:00:00.0Z hello from rank {number}\n".encode()
        api.objects[key] = {**job, "status": {"state": {"phase": phase}}}
        return follow(watch)

    follow = scripts.follow
    monkeypatch.setattr(scripts, "follow", finish)


def submitted(api: Api) -> Json:
    """The job in the cluster."""
    return next(item for key, item in api.objects.items() if key.startswith(f"{JOBS}/"))


def test_a_script_becomes_a_job_whose_ranks_are_followed_to_the_end(
        api: Api, script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ends(api, monkeypatch, "Completed", {})
    code = main(["run", script, "--workers", "1", "--kubeconfig", api.kubeconfig, "--", "--lr", "0.1"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[rank 0] hello from rank 0", "[rank 1] hello from rank 1"]
    assert re.search(r"^my-train-[0-9a-f]{6}: Completed$", err, re.MULTILINE)
    assert "result: only in the logs, as the job has no --output" in err
    assert "NOT OBSERVED: no rank wrote evidence. Fix: use an image that is built on the trainer's" in err
    container = submitted(api)["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["args"] == ["--lr", "0.1"]
    assert container["command"][-1] == "/opt/gangplank/script/My_Train.py"


def test_the_exit_status_is_that_of_the_rank_that_failed_first(
        api: Api, script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ends(api, monkeypatch, "Failed", {"-worker-0": 7, "-worker-1": 9})
    assert main(["run", script, "--kubeconfig", api.kubeconfig]) == 7
    err = capsys.readouterr().err
    assert re.search(r"my-train-[0-9a-f]{6}-worker-0 failed first \(Error, exit code 7\); its last lines:\n"
                     r"  hello from rank 1", err)


def test_what_was_run_can_be_saved_and_is_the_same_job(
        api: Api, script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ends(api, monkeypatch, "Completed", {})
    words = ["--name", "mine", "--backend", "volcano", "--processes-per-node", "2", "--save", "job.yml"]
    assert main(["run", script, *words, "--kubeconfig", api.kubeconfig, "--", "--lr", "0.1"]) == 0
    job = yaml.safe_load((tmp_path / "job.yml").read_text())
    spec = parse_job(job, scripts={script: "print(1)\n"})
    assert (spec.name, spec.processes_per_node, spec.args) == ("mine", 2, ("--lr", "0.1"))
    assert BACKENDS["volcano"].manifests(spec)[-1]["spec"] == submitted(api)["spec"]


def test_a_result_goes_to_a_claim_or_bucket_and_the_command_that_brings_it_is_named(
        api: Api, script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    ends(api, monkeypatch, "Completed", {})
    words = ["--volume", "data:/data:master", "--volume", "set:/set:ReadOnlyMany", "--secret", "bucket",
             "--env", "PLACE=a=b$$", "--env", "LEVEL=2", "--output", "/data/out", "--name", "mine", "--save", "job.yml"]
    assert main(["run", script, *words, "--kubeconfig", api.kubeconfig, "--", "--lr", "$(RANK)"]) == 0
    assert "result: in /data/out: gangplank fetch mine -n default; gangplank logs mine" in capsys.readouterr().err
    saved = yaml.safe_load((tmp_path / "job.yml").read_text())["training_job"]
    assert saved["volumes"] == [{"claim": "data", "mount": "/data", "on": "master"},
                                {"claim": "set", "mount": "/set", "access": "ReadOnlyMany"}]
    assert (saved["secrets"], saved["env"]) == (["bucket"], {"PLACE": "a=b$$$$", "LEVEL": "2"}), "two are one dollar"
    container = submitted(api)["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["args"] == ["--output", "/data/out", "--lr", "$$(RANK)"], "your script knows no other flag"


@pytest.mark.parametrize(("words", "namespace"), [([], "vision"), (["-n", "speech"], "speech")])
def test_a_script_runs_in_the_namespace_of_the_kubeconfig_unless_another_is_named(
        api: Api, script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str],
        namespace: str) -> None:
    monkeypatch.setattr(scripts, "follow", lambda _: Phase("Failed"))
    api.set_namespace("vision")
    main(["run", script, *words, "--save", "job.yml"])
    (job,) = (item for item in api.objects.values() if item["kind"] == "Job")
    saved = yaml.safe_load((tmp_path / "job.yml").read_text())["training_job"]
    assert (job["metadata"]["namespace"], saved["namespace"]) == (namespace, namespace)


@pytest.mark.parametrize(("words", "namespace", "queue"), [
    ([], "vision", "vision"), (["-n", "their-own", "--queue", "vision-b"], "their-own", "vision-b")])
def test_a_script_of_a_team_s_member_is_a_job_of_the_team(
        api: Api, script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], namespace: str,
        queue: str) -> None:
    monkeypatch.setattr(scripts, "follow", lambda _: Phase("Failed"))
    api.set_namespace("elsewhere")
    main(["run", script, "--team", "vision", *words, "--save", "job.yml"])
    (job,) = (item for item in api.objects.values() if item["kind"] == "Job")
    assert (job["metadata"]["namespace"], job["spec"]["queue"]) == (namespace, queue)
    assert job["metadata"]["labels"]["gangplank.dev/team"] == "vision"
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["resources"] == {key: {"cpu": "500m", "memory": "1Gi"} for key in ("requests", "limits")}
    saved = parse_job(yaml.safe_load((tmp_path / "job.yml").read_text()), scripts={script: "print(1)\n"})
    assert BACKENDS["volcano"].manifests(saved)[-1]["spec"] == job["spec"]


@pytest.mark.parametrize(("words", "expected"), [
    ([], 0), (["--max-retries", "2"], 2), (["--backend", "indexed"], 0), (["--backend", "trainjob"], None)])
def test_a_script_that_failed_is_not_run_again_unless_asked(
        script: str, words: list[str], expected: int | None) -> None:
    args = command_line().parse_args(["run", script, *words])
    args.arguments = []
    job = scripts.description(args)
    assert job["training_job"].get("max_retries") == expected
    assert scripts.parse(script, job).max_retries == (3 if expected is None else expected)


def test_a_folder_travels_with_its_script(
        api: Api, script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    ends(api, monkeypatch, "Completed", {})
    (tmp_path / "helper.py").write_text("")
    for code in (".", "../" + tmp_path.name):
        job = f"job-{len(code)}.yml"
        assert main(["run", script, "--code", code, "--save", job, "--kubeconfig", api.kubeconfig]) == 0
        saved = yaml.safe_load((tmp_path / job).read_text())["training_job"]
        assert (saved["code"], saved["script"]) == (".", script)
    carried = next(item for item in api.objects.values() if item["kind"] == "ConfigMap")
    assert {"0-My_Train.py", "1-helper.py"} <= set(carried["data"])
    (tmp_path / "other").mkdir()
    assert main(["run", script, "--code", "other", "--kubeconfig", api.kubeconfig]) == 3
    assert "My_Train.py: got a file outside other, expected one in it. Fix: name another" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "files", "expected"), [
    (["project"], ["project/train.py"], ("project", "train.py")),
    (["project"], ["project/__main__.py", "project/other.py"], ("project", "__main__.py")),
    ([], ["train.py", "helper.py"], (".", "train.py")),
])
def test_a_folder_is_run_by_its_usual_script(
        api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], files: list[str],
        expected: tuple[str, str]) -> None:
    home = tmp_path / "My_Project"
    (home / "project").mkdir(parents=True)
    for name in files:
        (home / name).write_text("print(1)\n")
    monkeypatch.chdir(home)
    ends(api, monkeypatch, "Completed", {})
    assert main(["run", *words, "--save", "job.yml", "--kubeconfig", api.kubeconfig, "--", "--lr", "1"]) == 0
    saved = yaml.safe_load((home / "job.yml").read_text())["training_job"]
    assert (saved["code"], saved["script"], saved["args"]) == (*expected, ["--lr", "1"])
    assert submitted(api)["metadata"]["name"].startswith("project-" if words else "my-project-")


@pytest.mark.parametrize(("here", "words", "code", "script"), [
    ("other", ["../project"], "../project", "train.py"),
    ("other", ["../project/"], "../project", "train.py"),
    ("other", ["{home}/project"], "../project", "train.py"),
    ("other", ["../project/tools/a.py", "--code", "../project"], "../project", "tools/a.py"),
    ("other/deeper", ["../../project"], "../../project", "train.py"),
    ("project/tools", [".."], "..", "train.py"),
    ("project/tools", ["a.py", "--code", ".."], "..", "tools/a.py"),
    ("project/tools", ["a.py", "--code", "../"], "..", "tools/a.py"),
], ids=["beside", "with a slash", "absolute", "its script", "two above", "parent", "--code parent", "--code parent/"])
def test_a_folder_that_is_not_below_the_current_one_is_run_and_its_job_file_is_submitted(
        api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
        here: str, words: list[str], code: str, script: str) -> None:
    for folder in ("project/tools", "other/deeper"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("train.py", "lib.py", "tools/a.py"):
        (tmp_path / "project" / name).write_text("print(1)\n")
    monkeypatch.chdir(tmp_path / here)
    ends(api, monkeypatch, "Completed", {})
    words, job = [word.format(home=tmp_path) for word in words], str(tmp_path / "job.yml")
    assert main(["run", *words, "--save", job, "--kubeconfig", api.kubeconfig]) == 0, capsys.readouterr().err
    saved = yaml.safe_load(Path(job).read_text())["training_job"]
    assert (saved["code"], saved["script"]) == (code, script)
    carried = next(item for item in api.objects.values() if item["kind"] == "ConfigMap")
    assert {"0-lib.py", "1-a.py", "2-train.py"} <= set(carried["data"])
    api.objects.clear()
    assert main(["submit", job, "--kubeconfig", api.kubeconfig]) == 0, capsys.readouterr().err
    assert any(item["kind"] == "ConfigMap" and item["data"] == carried["data"] for item in api.objects.values())


@pytest.mark.parametrize(("here", "words"), [
    ("other", ["../project", "--requirements", "../project/locked.txt"]),
    ("other", ["../project", "--requirements", "locked.txt"]),
    (".", ["project", "--requirements", "project/locked.txt"]),
    (".", ["project", "--requirements", "./locked.txt"]),
], ids=["from here, beside", "in it, beside", "from here, below", "in it, below"])
def test_requirements_are_named_by_their_path_from_here_or_in_the_folder(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path, here: str, words: list[str]) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project/train.py").write_text("print(1)\n")
    (tmp_path / "project/locked.txt").write_text(f"six==1.17.0 --hash=sha256:{64 * '0'}\n")
    (tmp_path / "project/six-1.17.0-py3-none-any.whl").write_text("")
    monkeypatch.chdir(tmp_path / here)
    args = command_line().parse_args(["run", *words])
    args.arguments = []
    assert scripts.parse(args.script, scripts.description(args)).requirements == "locked.txt"


@pytest.mark.parametrize(("files", "message"), [
    ([], "got a folder without __main__.py or train.py, expected one of them. Fix: name its script"),
    (["train.py", "__main__.py"], "got a folder with __main__.py and train.py, expected one of them"),
])
def test_a_folder_without_one_usual_script_is_refused(
        api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        files: list[str], message: str) -> None:
    for name in files:
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--kubeconfig", api.kubeconfig]) == 3
    assert message in capsys.readouterr().err
    assert api.objects == {}


@pytest.mark.parametrize(("words", "code", "message"), [
    (["missing.py"], 3, "missing.py: got no such file, expected a script of yours. Fix: "),
    (["My_Train.py", "--output", "here"], 1, 'training_job.output: got "here"'),
    (["My_Train.py", "--output", "/out"], 3, "--output: got /out, expected a folder below a --volume, s3://"),
    (["My_Train.py", "--output", "/out"], 3, "s3://bucket/path or gs://bucket/path (elsewhere it is lost"),
    (["My_Train.py", "--volume", "data:out"], 1, 'training_job.volumes[0].mount: got "out"'),
    (["My_Train.py", "--volume", "data:/out:both"], 1, 'training_job.volumes[0].access: got "both"'),
    (["My_Train.py", "--volume", "data:/out"], 1, "a claim that many nodes can mount. Fix: mount it `on: master`"),
    (["My_Train.py", "--env", "LEVEL"], 3, "--env: got LEVEL, expected NAME=VALUE. Fix: --env LEVEL=VALUE"),
    (["My_Train.py", "--env", "RANK=1"], 1, "training_job.env.RANK: "),
    (["My_Train.py", "--name", "A B"], 1, 'training_job.name: got "A B"'),
])
def test_a_mistake_is_refused_before_anything_is_made(api: Api, script: str, capsys: pytest.CaptureFixture[str],
                                                      words: list[str], code: int, message: str) -> None:
    assert main(["run", *words, "--kubeconfig", api.kubeconfig]) == code
    assert message in capsys.readouterr().err
    assert (api.objects, script) == ({}, "My_Train.py")


@pytest.mark.parametrize(("file", "start"), [
    ("a.py", "a-"), ("2-b.py", "run-2-b-"), ("A..b.py", "a-b-"), ("_.py", "run-")])
def test_the_name_of_a_job_is_one_that_kubernetes_takes(
        api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, start: str) -> None:
    (tmp_path / file).write_text("")
    monkeypatch.chdir(tmp_path)
    ends(api, monkeypatch, "Completed", {})
    assert main(["run", file, "--kubeconfig", api.kubeconfig]) == 0
    assert re.fullmatch(rf"{start}[0-9a-f]{{6}}", submitted(api)["metadata"]["name"])


@pytest.mark.parametrize("phase", ["Pending", "Completed"])
def test_a_gang_that_is_stuck_is_repaired_until_the_job_has_ended(
        api: Api, script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        phase: str) -> None:
    commands = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
    ends(api, monkeypatch, phase, {})
    finish = scripts.follow

    def lost(watch: JobWatch) -> Phase:
        """Its pods have waited for a while without their PodGroup, and it ends once it was asked to look."""
        poll = watch.poll

        def looked() -> Phase:
            for key, item in api.objects.items():
                if "/pods/" in key:
                    item["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z",
                                         "annotations": {"scheduling.k8s.io/group-name": "gone"}}
                    item["status"] = {"phase": "Pending"}
            if any(key.startswith(commands) for key in api.objects):
                api.objects[f"{JOBS}/{watch.name}"]["status"]["state"]["phase"] = "Completed"
            return poll()

        monkeypatch.setattr(watch, "poll", looked)
        return finish(watch)

    monkeypatch.setattr(scripts, "POLL_S", 0.0)
    monkeypatch.setattr(scripts, "follow", lost)
    assert main(["run", script, "--kubeconfig", api.kubeconfig]) == 0
    said = "PodGroup gone does not exist: the job's controller is asked to make it again"
    assert capsys.readouterr().err.count(said) == (phase == "Pending")


def test_ranks_that_stand_still_are_one_message_also_if_their_lines_do_not_come_together(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"name": "a", "image": "img", "script": "a.py", "workers": 1, "backend": "indexed"}
    manifest = BACKENDS["indexed"].manifests(parse_job(job, scripts={"a.py": ""}))[-1]
    lines = iter([f"gangplank: rank {rank}: no step and no exchange for 120 s; it is at a.py:4" for rank in (0, 1)])

    class Watch:
        """A job whose ranks print a line in each poll; it knows the job once it has asked."""

        def __init__(self) -> None:
            self.job: Json = {}
            self.kube = self
            self.left = 3

        def patient(self, _: object) -> Watch:
            return self

        def poll(self) -> Phase:
            self.job, self.left = manifest, self.left - 1
            return Phase("Running" if self.left else "Complete")

        def lines(self) -> Iterator[tuple[Json, str]]:
            yield {}, next(lines)

        def finish(self) -> Iterator[tuple[Json, str]]:
            return iter(())

        def end(self, last: Phase) -> Phase:
            return last

        def restart(self, _: float) -> list[str]:
            return []

        def losses(self) -> list[str]:
            return []

    monkeypatch.setattr(scripts, "POLL_S", 0.0)
    scripts.follow(Watch())  # type: ignore[arg-type]  # as much of a JobWatch as it asks
    assert capsys.readouterr().err.count("no step and no exchange for 120 s: ranks 0, 1 are at a.py:4. Fix: ") == 1


def test_a_rank_that_began_again_no_longer_stands_where_the_one_before_did(capsys: pytest.CaptureFixture[str]) -> None:
    """Its events were hidden, but not read."""
    start = '{"event":"start","rank":0,"world_size":2,"host":"a","pod":"a","node":"n","job_uid":null,"pod_uid":null}'
    lines = ["gangplank: rank 0: not joined for 240 s; it is at a.py:4, in train: dist.barrier()", start, "epoch 1"]
    ranks = Stuck(2)
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
    scripts.show(iter([(pod, line) for line in lines]), ranks)
    assert not ranks.places
    assert capsys.readouterr().out == "[a] epoch 1\n"
