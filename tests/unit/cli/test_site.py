"""A site's settings of GPUs reach the commands as they reach the role training_job."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cli import main, scripts
from gangplank.cli.inputs import site_teams
from gangplank.cli.parser import command_line
from gangplank.cluster.progress import Phase
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_settings import read_settings
from gangplank.teams import inventory as module
from tests.support.inventories import write_inventory

if TYPE_CHECKING:
    from tests.unit.conftest import Api

ROOT = Path(__file__).resolve().parents[3]
JOB = {"name": "j", "image": "i", "script": "/a.py", "workers": 0, "resources": {"gpus": 1}}
TOLERATION = {"key": "flyte/gpu", "operator": "Equal", "value": "dedicated", "effect": "NoSchedule"}
TAINTS = "training_job_gpu_taints: [{key: flyte/gpu, value: dedicated, effect: NoSchedule}]\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    place = tmp_path / "job.json"
    place.write_text(json.dumps(JOB | {"collective": "gloo"}))
    return place


def site(folder: Path, text: str) -> str:
    (folder / "group_vars").mkdir()
    (folder / "hosts.yml").write_text("all: {}\n")
    (folder / "group_vars/all.yml").write_text(text)
    return str(folder)


def tolerations(text: str) -> list[dict[str, str]]:
    (manifest,) = yaml.safe_load_all(text)
    pod = manifest["spec"]["tasks"][0]["template"]["spec"]
    return [item for item in pod["tolerations"] if "gpu" in item["key"]]


@pytest.mark.parametrize("how", ["ansible", "plain"])
def test_a_job_with_gpus_tolerates_the_site_s_taints(
    job: Path, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "plain":
        monkeypatch.setattr(module, "program_of_ansible", lambda _: None)
    template = "mine: dedicated\n" + TAINTS.replace("dedicated", '"{{ mine }}"')
    place = site(tmp_path, TAINTS if how == "plain" else template)
    assert main(["expand", str(job), "-o", "yaml"]) == 0
    assert TOLERATION not in tolerations(capsys.readouterr().out)
    assert main(["expand", str(job), "-o", "yaml", "--site", place]) == 0
    assert tolerations(capsys.readouterr().out) == [TOLERATION]


@pytest.mark.slow
def test_nccl_is_refused_where_the_gpus_are_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    for command in (["expand"], ["submit", "--kubeconfig", "/nowhere"]):
        assert main([*command, str(tmp_path / "job.json"), "--site", str(ROOT / "inventories/lab")]) == 1
        assert "gloo (this site's GPUs are simulated" in capsys.readouterr().err


@pytest.fixture
def gpu_node(api: Api) -> Api:
    """A cluster with one node, which has a GPU and this site's taint."""
    room = {"cpu": "8", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "1"}
    taint = {key: TOLERATION[key] for key in ("key", "value", "effect")}
    status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    api.objects["/api/v1/nodes/a"] = {"metadata": {"name": "a"}, "spec": {"taints": [taint]}, "status": status}
    return api


@pytest.mark.slow
def test_fit_and_why_see_the_job_as_the_site_has_it(
    gpu_node: Api, job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On this site the job tolerates the node's taint; elsewhere it does not."""
    place = site(tmp_path, TAINTS)
    job.write_text(json.dumps(JOB | {"collective": "gloo", "backend": "indexed", "volumes": []}))
    assert main(["fit", str(job)]) == 5
    assert "flyte/gpu" in capsys.readouterr().out
    assert main(["fit", str(job), "--site", place]) == 0
    assert "yes, it would start now" in capsys.readouterr().out
    main(["why", str(job)])
    assert "flyte/gpu" in capsys.readouterr().out
    main(["why", str(job), "--site", place])
    assert "flyte/gpu" not in capsys.readouterr().out
    assert not [line for line in gpu_node.seen if line.startswith(("POST", "PATCH")) and "dryRun" not in line]


@pytest.mark.slow
def test_fit_refuses_a_job_that_the_site_refuses(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    for command in ("fit", "why"):
        assert main([command, str(tmp_path / "job.json"), "--site", str(ROOT / "inventories/lab")]) == 1
        assert "gloo (this site's GPUs are simulated" in capsys.readouterr().err
    assert api.seen == []


BY_NAME = ("status j", "why j", "fit j", "when j", "logs j", "fetch j", "scale j 2", "delete j", "proof j", "report j")


@pytest.mark.parametrize("words", [*BY_NAME, "status", "proof --file evidence.jsonl", "report --file evidence.jsonl"])
def test_a_site_without_a_job_file_is_refused(api: Api, capsys: pytest.CaptureFixture[str], words: str) -> None:
    """It was ignored, although the job's own file with this site may mean another namespace."""
    assert main([*words.split(), "--site", "nowhere"]) == 2
    got = "it with j, which is not a file" if "j" in words.split() else "it without a job"
    expected = f"--site: got {got}, expected it with a job file. Fix: leave out --site, or name the job's file\n"
    assert capsys.readouterr().err.endswith(expected)
    assert api.seen == []


def test_run_takes_the_site_s_settings_before_it_asks_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("")
    place = site(tmp_path, "training_job_gpu_taints: [{key: a, effect: Never}]\n")
    assert main(["run", str(tmp_path / "a.py"), "--site", place, "--kubeconfig", "/nowhere"]) == 1
    assert 'training_job_gpu_taints[0].effect: got "Never", expected one of NoSchedule' in capsys.readouterr().err


def test_run_submits_the_job_as_the_site_has_it(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its pull secrets: `run` asks for no GPUs, so that taints change nothing of its jobs."""
    (tmp_path / "a.py").write_text("")
    monkeypatch.setattr(scripts, "follow", lambda _: Phase("Failed"))
    place = site(tmp_path, "training_job_pull_secrets: [registry]\n")
    main(["run", str(tmp_path / "a.py"), "--site", place])
    (job,) = (item for item in api.objects.values() if item["kind"] == "Job")
    for task in job["spec"]["tasks"]:
        assert task["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}], capsys.readouterr().err


def test_without_ansible_a_template_is_refused_by_its_file(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "program_of_ansible", lambda _: None)
    assert main(["expand", str(job), "--site", str(ROOT / "inventories/lab")]) == 1
    error = capsys.readouterr().err
    assert "group_vars/all/gpus.yml: 3 problems" in error
    assert "training_job_gpu_taints: got a template" in error


def test_all_that_is_wrong_with_the_settings_is_reported_together() -> None:
    variables = {"training_job_gpu_taints": [{"value": "x"}], "training_job_simulated_gpus": "perhaps",
                 "training_job_gpu_allocation": "both", "training_job_gpu_device_class": "GPU",
                 "training_job_pull_secrets": ["registry", "user:password"]}  # fmt: skip
    with pytest.raises(SpecError) as caught:
        read_settings(variables, "site")
    assert len(caught.value.problems) == 6
    assert 'training_job_pull_secrets[1]: got "user:password"' in str(caught.value)


@pytest.mark.slow
def test_a_job_without_pull_secrets_has_the_site_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = site(tmp_path, "training_job_pull_secrets: [registry]\n")
    for own, expected in (({}, "registry"), ({"pull_secrets": ["mine"]}, "mine")):
        described = {"name": "j", "image": "i", "script": "/a.py", "workers": 0, **own}
        (tmp_path / "job.json").write_text(json.dumps(described))
        assert main(["expand", str(tmp_path / "job.json"), "-o", "yaml", "--site", place]) == 0
        (manifest,) = yaml.safe_load_all(capsys.readouterr().out)
        pod = manifest["spec"]["tasks"][0]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": expected}]


def run_of_vision(folder: Path, monkeypatch: pytest.MonkeyPatch, defaults: dict[str, Any]) -> list[str]:
    """The words that run a script of a team with these defaults for its jobs."""
    (folder / "a.py").write_text("")
    monkeypatch.setattr(module, "program_of_ansible", lambda _: None)  # which would take seconds for each command
    monkeypatch.setattr(scripts, "follow", lambda _: Phase("Failed"))
    (folder / "site/group_vars/all").mkdir(parents=True)
    team = {"members": [{"user": "ada", "role": "lead"}], "namespace": "their-own", "images": ["a.b/*"],
            "cap": {"cpu": "8", "memory": "8Gi", "ephemeral_storage": "8Gi"}, "job_defaults": defaults}
    place = write_inventory(folder / "site", {"vision": team})
    return ["run", str(folder / "a.py"), "--team", "vision", "--site", str(place)]


def test_run_starts_from_the_values_of_a_team_and_is_refused_what_they_do_not_grant(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = run_of_vision(tmp_path, monkeypatch, {"workers": 5})
    assert main(words) == 1
    assert "training_job.image: got" in capsys.readouterr().err
    assert main([*words, "--image", "a.b/c:1"]) == 1, "as the job fails"
    (job,) = (item for item in api.objects.values() if item["kind"] == "Job")
    assert (job["metadata"]["namespace"], job["spec"]["queue"]) == ("their-own", "vision")
    assert job["spec"]["minAvailable"] == 6


@pytest.mark.parametrize("settings", ["training_job_pull_secrets: [registry]\n", "{}\n"], ids=["changed", "unchanged"])
@pytest.mark.parametrize("defaults", [{}, {"hyperparameters": {"epochs": 3}, "output": "s3://bucket/out"}],
                         ids=["no flags", "flags"])  # fmt: skip
def test_the_command_in_a_saved_job_file_submits_the_same_job(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, settings: str,
    defaults: dict[str, Any]
) -> None:
    folder, target = tmp_path / "my sites", tmp_path / "my job.yml"
    folder.mkdir()
    words = run_of_vision(folder, monkeypatch, {"image": "a.b/c:1", **defaults})
    (folder / "site/group_vars/all/secrets.yml").write_text(settings)
    main([*words, "--save", str(target), "--", "--lr", "1"])
    (before,) = (item for item in api.objects.values() if item["kind"] == "Job")
    api.objects.clear()
    start, *command = shlex.split(target.read_text().splitlines()[0].removeprefix("# "))
    assert (start, "--site" in command) == ("gangplank", settings != "{}\n")
    assert main(command) == 0, capsys.readouterr().err
    (after,) = (item for item in api.objects.values() if item["kind"] == "Job")
    assert after == before


@pytest.mark.parametrize(("defaults", "more", "image", "retries"), [
    ({"max_retries": 2}, [], "a.b/c:1", 2),
    ({"max_retries": 2}, ["--image", "a.b/c:2", "--max-retries", "1"], "a.b/c:2", 1),
    ({"backend": "trainjob"}, ["--backend", "volcano"], "a.b/c:1", 0),
    ({"hyperparameters": {"epochs": 3}, "output": "s3://bucket/out"}, [], "a.b/c:1", 0),
])
def test_run_has_the_team_s_defaults_before_its_own_but_no_flag_that_a_script_may_not_know(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defaults: dict[str, Any], more: list[str], image: str,
    retries: int
) -> None:
    words = run_of_vision(tmp_path, monkeypatch, {"image": "a.b/c:1", **defaults})
    main([*words, *more, "--save", str(tmp_path / "job.yml"), "--", "--lr", "1"])
    (job,) = (item for item in api.objects.values() if item["kind"] == "Job")
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert (container["image"], job["spec"]["maxRetry"]) == (image, retries + 1)
    assert container["args"] == ["--lr", "1"]
    described = yaml.safe_load((tmp_path / "job.yml").read_text())
    saved = parse_job(described, scripts={described["training_job"]["script"]: ""})
    assert (saved.namespace, saved.image, saved.max_retries) == ("their-own", image, retries)


@pytest.mark.parametrize(("defaults", "code", "message"), [
    ({"volumes": [{"claim": "data", "mount": "/data", "on": "master"}]}, 1, ""),
    ({"volumes": [{"claim": "data", "mount": "/other", "on": "master"}]}, 1,
     'training_job.output: got "/data/out", expected a folder below one of the volumes\' mounts'),
    ({}, 3, "--output: got /data/out, expected a folder below a --volume, s3://"),
], ids=["there", "elsewhere", "none"])  # fmt: skip
def test_the_result_of_run_may_go_to_a_volume_that_the_team_s_jobs_mount(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    defaults: dict[str, Any], code: int, message: str
) -> None:
    words = run_of_vision(tmp_path, monkeypatch, {"image": "a.b/c:1", **defaults})
    assert main([*words, "--output", "/data/out"]) == code
    assert (message or "Failed") in capsys.readouterr().err
    args = [item["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["args"]
            for item in api.objects.values() if item["kind"] == "Job"]  # fmt: skip
    assert args == ([] if message else [["--output", "/data/out"]])


def test_run_with_a_back_end_of_its_team_that_counts_no_retries_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = run_of_vision(tmp_path, monkeypatch, {"image": "a.b/c:1", "backend": "trainjob"})
    args = command_line().parse_args(words)
    args.arguments = []
    assert "max_retries" not in scripts.description(args, site_teams(args.site))["training_job"]
