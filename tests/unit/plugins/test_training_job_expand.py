"""A job is expanded for the role; what the library refuses reaches the person as it was written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible import context

from gangplank.errors import SpecError
from plugins.action.training_job_expand import job_file, parsed, traps

ROOT = Path(__file__).resolve().parents[3]
DIGITS = "{{ lookup('ansible.builtin.file', '" + str(ROOT / "jobs/digits.yml") + "') | from_yaml }}"


def ansible(*words: str | Path, more: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", *words]
    env = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "COLUMNS": "400"} | (more or {})
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120)


def expanded(folder: Path, job: object) -> dict[str, Any]:
    """What the action returns."""
    result = folder / "result.json"
    tasks = [
        {"gangplank.gangplank.training_job_expand": {"job": job}, "register": "expansion"},
        {"ansible.builtin.copy": {"content": "{{ expansion | to_json }}", "dest": str(result)}},
    ]
    book = folder / "book.yml"
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    book.write_text(json.dumps([{"hosts": "localhost", "vars": local, "tasks": tasks}]))
    done = ansible(book)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(result.read_text()))


@pytest.mark.slow
def test_makes_manifests_and_describes_the_job_with_its_pods_in_the_order_of_their_ranks(tmp_path: Path) -> None:
    expansion = expanded(tmp_path, DIGITS)
    assert [manifest["kind"] for manifest in expansion["manifests"]] == ["Job"]
    job = expansion["job"]
    assert job["pods"] == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    assert (job["namespace"], job["backend"], job["world_size"]) == ("default", "volcano", 3)
    assert job["ranks"][2] == {"role": "worker", "index": 1, "rank": 2, "pod": "digits-worker-1"}


def test_a_refused_job_is_reported_with_its_file_and_all_its_lines_and_no_words_about_templates(tmp_path: Path) -> None:
    job = tmp_path / "mine.yml"
    job.write_text('training_job: {name: false, workers: "x"}\n')
    output = ansible("playbooks/train.yml", "--tags", "manifests", "-e", f"@{job}")
    assert output.returncode != 0
    assert f"Action failed: {job}: 3 problems\n  training_job.name: got false" in output.stdout
    assert "training_job.workers: got " in output.stdout
    for words in ("Finalization of", "Error while resolving", "filter plugin", "Traceback"):
        assert words not in output.stdout + output.stderr


def test_a_job_file_below_the_home_is_found_as_ansible_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yml").write_text("training_job: {}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(context, "CLIARGS", {"extra_vars": ["@~/mine.yml", "training_job_wait=false"]})
    assert job_file() == ("~/mine.yml", "training_job: {}\n")


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("training_job:\n  workers: 010\n", ["the bare word 010"]),
        ("training_job:\n  workers: 1_0\n  epochs: 1:30\n", ["the bare word 1_0", "the bare word 1:30"]),
        ("training_job:\n  name: a\n  name: b\n", ["the key 'name' twice"]),
        ("training_job_secret: !vault |\n  x\ntraining_job: {}\n", []),
        ("training_job: {name: a}\n", []),
        ("site_open: yes\nx: &x [1]\ny: *x\ntraining_job:\n  name: a\ntraining_job_replace: yes\n", []),
        ("site_open: yes\ntraining_job:\n  workers: 010\n", ["the bare word 010"]),
        ("", []),
    ],
)
def test_a_word_that_ansible_reads_otherwise_is_refused_as_gangplank_refuses_it(text: str, got: list[str]) -> None:
    problems = traps(text, "mine.yml")
    assert [problem.got for problem in problems] == got
    job = {"name": "a", "image": "i"}
    if not problems:
        assert parsed(job, "mine.yml", problems).name == "a"
        return
    with pytest.raises(SpecError, match=rf"mine.yml: {len(got) + 1} problem") as caught:
        parsed(job | {"workers": "x"}, "mine.yml", problems)
    assert problems == [*caught.value.problems][:-1]


@pytest.mark.slow
def test_an_unknown_team_is_reported_the_same_way(tmp_path: Path) -> None:
    job = tmp_path / "mine.yml"
    job.write_text("training_job: {name: digits, image: i, script: /a.py, team: nobody}\n")
    output = ansible("playbooks/train.yml", "--tags", "manifests", "-e", f"@{job}", "-i", ROOT / "inventories/example")
    assert f'Action failed: {job}: 1 problem\n  team: got "nobody", expected a team of the inventory' in output.stdout
    assert "Finalization of" not in output.stdout + output.stderr


@pytest.mark.slow
def test_an_inventory_with_a_localhost_uses_the_interpreter_that_has_the_packages(tmp_path: Path) -> None:
    """Otherwise, Ansible takes the first python3 of PATH there: a shim that runs nothing, or one without packages."""
    for name in ("python3", *(f"python3.{minor}" for minor in range(8, 16))):
        shim = tmp_path / "shims" / name
        shim.parent.mkdir(exist_ok=True)
        shim.write_text("#!/bin/sh\necho this version is not set >&2\nexit 127\n")
        shim.chmod(0o755)
    job = tmp_path / "mine.yml"
    job.write_text("training_job: {name: digits, image: i, script: /a.py, workers: 1}\n")
    done = ansible("playbooks/train.yml", "--tags", "manifests", "-e", f"@{job}", "-i", ROOT / "inventories/example",
                   "-e", f"training_job_manifest_dir={tmp_path}",
                   more={"PATH": f"{tmp_path / 'shims'}:{os.environ['PATH']}"})  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert list(tmp_path.glob("*digits.yml"))


def test_every_playbook_of_a_site_runs_beside_an_inventory_s_localhost() -> None:
    for name in ("site", "teams", "train", "uninstall", "mirror"):
        for play in yaml.safe_load((ROOT / f"playbooks/{name}.yml").read_text()):
            assert play.get("connection") == "local", play["name"]


@pytest.mark.slow
def test_the_site_s_pull_secrets_reach_a_job_that_names_none(tmp_path: Path) -> None:
    job = tmp_path / "mine.yml"
    job.write_text("training_job: {name: digits, image: i, script: /a.py, workers: 1}\n")
    keep = f"training_job_manifest_dir={tmp_path}"
    words = ("playbooks/train.yml", "--tags", "manifests", "-e", f"@{job}", "-e", keep, "-i",
             ROOT / "inventories/example")  # fmt: skip
    done = ansible(*words, "-e", json.dumps({"training_job_pull_secrets": ["registry"]}))
    assert done.returncode == 0, done.stdout
    (written,) = tmp_path.glob("*digits.yml")
    assert written.read_text().count("imagePullSecrets") == 2
    refused = ansible(*words, "-e", json.dumps({"training_job_pull_secrets": ["user:password"]}))
    assert 'training_job_pull_secrets[0]: got "user:password"' in refused.stdout
