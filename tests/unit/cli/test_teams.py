"""The commands of teams: their help and completion, and what is told when an inventory or a file is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangplank.cli import main, terminal
from gangplank.errors import Unreadable

ROOT = Path(__file__).resolve().parents[3]


def test_help_knows_the_commands_below_team(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["team", "kubeconfig", "--help"])
    assert end.value.code == 0
    assert "a certificate of a few hours" in capsys.readouterr().out


@pytest.mark.slow
def test_a_job_takes_its_team_s_values_where_an_inventory_is_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = tmp_path / "job.yml"
    job.write_text("training_job: {name: j, team: vision, workers: 1, script: /a.py}\n")
    assert main(["expand", str(job), "--site", str(ROOT / "inventories/lab")]) == 0
    assert capsys.readouterr().out.startswith("j in vision on volcano")
    assert main(["expand", str(job)]) == terminal.REFUSED
    assert "training_job.image: got nothing" in capsys.readouterr().err
    job.write_text("training_job: {name: j, team: visoin, image: i, script: /a.py}\n")
    assert main(["expand", str(job), "--site", str(ROOT / "inventories/lab")]) == terminal.REFUSED
    assert 'team: got "visoin", expected a team of the inventory (speech, vision)' in capsys.readouterr().err


@pytest.mark.slow
def test_a7_what_the_team_s_file_does_not_grant_is_refused_offline_with_file_key_and_fix(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job, teams = tmp_path / "job.yml", str(ROOT / "inventories/lab")
    job.write_text("training_job: {name: j, team: vision, script: /a.py, node_selector: {team: a}, secrets: [key]}\n")
    for command in (["expand"], ["submit", "--kubeconfig", "/nowhere"]):
        assert main([*command, str(job), "--site", teams]) == terminal.REFUSED
        error = capsys.readouterr().err
        assert f"{job}: 2 problems" in error
        assert 'training_job.node_selector.team: got "team=a", expected a label of nodes that the file of team' in error
        assert f"Fix: leave it out, or have team_secrets in {teams}/host_vars/vision.yml grant it" in error
    raw = tmp_path / "raw.yml"
    raw.write_text(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: j, namespace: vision}\n"
        "spec: {queue: speech, tasks: [{name: a, replicas: 1, template: {spec: {schedulerName: volcano,"
        " runtimeClassName: nvidia, containers: [{name: c, image: gangplank.dev/trainer:0.1.0}]}}}]}\n"
    )
    assert main(["expand", str(raw), "--site", teams]) == terminal.REFUSED
    error = capsys.readouterr().err
    assert 'spec.queue: got "speech"' in error
    assert 'spec.tasks[0].template.spec.runtimeClassName: got "nvidia"' in error


def test_an_inventory_that_does_not_exist_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", str(ROOT / "jobs/digits.yml"), "--site", "nowhere"]) == Unreadable.exit_code
    assert "nowhere: got no such file or folder, expected a site's inventory" in capsys.readouterr().err
