"""A team is a host of the inventory: its values are Ansible's variables, read by Ansible, or plain without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangplank.cli import main
from gangplank.errors import GangplankError, Unreadable
from gangplank.teams import inventory as module
from gangplank.teams.inventory import Inventory, is_value, load_inventory, plain_inventory, refuse_earlier_layout
from gangplank.teams.load import teams_of

ROOT = Path(__file__).resolve().parents[3]
CAP = {"cpu": "4", "memory": "16Gi", "ephemeral_storage": "50Gi"}
JOB = {"name": "j", "script": "/a.py", "team": "vision"}


def site(folder: Path, **files: str) -> Path:
    """An inventory with the team vision, valid by itself, and these files: `host_vars__vision`, `group_vars__all`."""
    folder.mkdir(exist_ok=True)
    (folder / "hosts.yml").write_text("all: {children: {teams: {hosts: {vision: }}}}\n")
    own = yaml.safe_dump({"team_members": [{"user": "ada"}], "team_cap": CAP})
    for name, text in {"host_vars__vision": own, **files}.items():
        path = folder / f"{name.replace('__', '/')}.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def refusal(inventory: Inventory) -> str:
    with pytest.raises(GangplankError) as caught:
        teams_of(inventory)
    return str(caught.value)


@pytest.fixture
def without_ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the library is installed."""
    monkeypatch.setattr(module, "program_of_ansible", lambda _: None)


@pytest.mark.parametrize("name", ["lab", "example"])
def test_plain_files_are_read_as_ansible_reads_them(name: str) -> None:
    place = ROOT / "inventories" / name
    by_ansible = load_inventory(str(place))
    assert len(by_ansible.values) >= 2
    assert plain_inventory(str(place)).values == by_ansible.values == plain_inventory(str(place / "hosts.yml")).values


@pytest.mark.parametrize("name", ["lab", "example"])
def test_ansible_inventory_shows_the_values_of_one_team_as_the_page_says(name: str) -> None:
    page = (ROOT / "docs/teams.md").read_text()
    (command,) = re.findall(r"`(ansible-inventory -i inventories/<site> --host \w+)`", page)
    words = command.replace("<site>", name).split()
    program = Path(sys.executable).with_name(words[0])
    done = subprocess.run([program, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = {key: item for key, item in json.loads(done.stdout).items() if is_value(key)}
    assert listed == plain_inventory(str(ROOT / "inventories" / name)).values[words[-1]]
    assert "team_cap" in listed


@pytest.mark.slow
def test_the_nearer_file_wins_and_a_group_s_values_are_those_of_each_team(tmp_path: Path) -> None:
    folder = site(
        tmp_path,
        group_vars__all="team_max_jobs: 1\nteam_weight: 1\nteam_pod_security: baseline\n",
        group_vars__teams="team_max_jobs: 2\nteam_weight: 2\n",
        host_vars__vision=yaml.safe_dump({"team_members": [{"user": "ada"}], "team_cap": CAP, "team_max_jobs": 3}),
    )
    for inventory in (load_inventory(str(folder)), plain_inventory(str(folder))):
        (team,) = teams_of(inventory)[1]
        assert (team.max_jobs, team.queues[0].weight, team.pod_security) == (3, 2, "baseline")


HOSTS = "all: {children: {teams: {vars: {team_weight: 1, team_max_jobs: 1}, hosts: {vision: {team_max_jobs: 3}}}}}\n"
LINES = """
all:
  children:
    teams:
      vars:
        team_weight: 0
      hosts:
        vision:
          team_max_jobs: 0
"""


@pytest.mark.slow
def test_a_variable_beside_the_host_is_stronger_than_those_of_its_groups_and_weaker_than_its_file(
    tmp_path: Path,
) -> None:
    folder = site(tmp_path, group_vars__teams="team_weight: 2\nteam_max_jobs: 2\n")
    (folder / "hosts.yml").write_text(HOSTS)
    own = folder / "host_vars/vision.yml"
    for jobs in (3, 4):
        for inventory in (load_inventory(str(folder)), plain_inventory(str(folder))):
            (team,) = teams_of(inventory)[1]
            assert (team.max_jobs, team.queues[0].weight) == (jobs, 2)
        own.write_text(own.read_text() + "team_max_jobs: 4\n")


def test_a_problem_of_a_variable_beside_the_host_names_the_file_of_hosts(tmp_path: Path) -> None:
    folder = site(tmp_path, group_vars__teams="team_weight: 0\nteam_max_jobs: 0\n")
    (folder / "hosts.yml").write_text(LINES)
    for read in (load_inventory, plain_inventory):
        places = read(str(folder)).places("vision")
        assert places["team_max_jobs"] == str(folder / "hosts.yml")
        assert places["team_weight"] == str(folder / "group_vars/teams.yml")
    (folder / "hosts.yml").unlink()
    (folder / "hosts").write_text("[teams]\nvision team_max_jobs=0\n")
    assert load_inventory(str(folder)).places("vision")["team_max_jobs"] == str(folder / "hosts")


def test_files_that_all_teams_share_are_not_read_for_each_team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of hosts grows with the teams: read for each of them, a site of 1,000 would take minutes."""
    reads: list[int] = []
    for count in (2, 20):
        folder = site(tmp_path / str(count), group_vars__teams="team_weight: 2\n")
        names = [f"t{number}" for number in range(count)]
        hosts = {name: {"team_max_jobs": 3} for name in names}
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"teams": {"hosts": hosts}}}}))
        for name in names:
            (folder / f"host_vars/{name}.yml").write_text((folder / "host_vars/vision.yml").read_text())
        asked: list[str] = []
        with monkeypatch.context() as patch:
            for function in ("read_file", "text_of"):
                real = getattr(module, function)
                patch.setattr(module, function, lambda path, *rest, real=real, asked=asked, **more: (
                    asked.append(Path(path).name), real(path, *rest, **more))[1])  # fmt: skip
            assert len(teams_of(plain_inventory(str(folder)))[1]) == count
        shared = [name for name in asked if name in ("hosts.yml", "teams.yml")]
        assert shared
        reads.append(len(shared))
    assert reads[0] == reads[1]


@pytest.mark.slow
def test_templates_of_all_teams_are_rendered_by_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "team_members: [{user: '{{ inventory_hostname }}-lead'}]\n" + yaml.safe_dump({"team_cap": CAP})
    folder = site(
        tmp_path, host_vars__vision=text, host_vars__speech=text, group_vars__all="other: a | SUCCESS => {}\n"
    )
    (folder / "hosts.yml").write_text("all: {children: {teams: {hosts: {vision: , speech: }}}}\n")
    runs: list[str] = []
    real = module.ansible

    def counted(command: list[str], place: str) -> str:
        runs.append(command[1])
        return real(command, place)

    monkeypatch.setattr(module, "ansible", counted)
    values = load_inventory(str(folder)).values
    assert {team: own["team_members"] for team, own in values.items()} == {
        team: [{"user": f"{team}-lead"}] for team in ("vision", "speech")
    }  # fmt: skip
    assert runs == ["-i", "teams"]


@pytest.mark.parametrize("name", ["hosts", "hosts.ini"])
def test_a_file_of_hosts_that_only_ansible_can_read_is_refused_by_name_without_it(tmp_path: Path, name: str) -> None:
    folder = site(tmp_path)
    (folder / name).write_text("[teams]\nspeech\n")
    with pytest.raises(GangplankError, match="hosts that only Ansible can read") as caught:
        plain_inventory(str(folder))
    assert f"{folder / name}: 1 problem" in str(caught.value)
    (folder / name).write_text("# nobody yet\n---\nall: {children: {teams: {hosts: {vision: }}}}\n")
    (folder / "hosts.yml").unlink()
    (folder / "README.md").write_text("not hosts")
    assert list(plain_inventory(str(folder)).values) == ["vision"]


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ("teams: {hosts: [vision]}", 'teams.hosts: got ["vision"], expected a mapping'),
        ("all: {children: [teams]}", 'all.children: got ["teams"], expected a mapping'),
        ("teams: {vars: [a], hosts: {vision: x}}", 'teams.vars: got ["a"], expected a mapping'),
        ("teams: {vars: [a], hosts: {vision: x}}", 'teams.hosts.vision: got "x", expected variables of the host'),
        ("teams: {hosts: {1: }}", "teams.hosts: got the name 1, expected a name that is text"),
        ("teams: [vision]", 'teams: got ["vision"], expected a group'),
        ("all: {children: {1: {hosts: {vision: }}}}", "1: got the name 1, expected a name that is text"),
    ],
)
def test_groups_that_ansible_could_not_read_are_refused_by_name_without_it(
    tmp_path: Path, hosts: str, said: str
) -> None:
    folder = site(tmp_path)
    (folder / "hosts.yml").write_text(hosts)
    with pytest.raises(GangplankError) as caught:
        plain_inventory(str(folder))
    assert f"{folder / 'hosts.yml'}: " in str(caught.value)
    assert said in str(caught.value)


def test_a_word_alone_is_a_host_as_ansible_has_it(tmp_path: Path) -> None:
    folder = site(tmp_path)
    (folder / "hosts.yml").write_text("teams: {hosts: vision}\n")
    assert list(plain_inventory(str(folder)).values) == list(load_inventory(str(folder)).values) == ["vision"]


def test_every_problem_names_the_variable_and_the_file_that_sets_it(tmp_path: Path) -> None:
    folder = site(
        tmp_path,
        group_vars__teams="team_weight: 0\nteam_site_queues: [{name: root}]\n",
        host_vars__vision=yaml.safe_dump({"team_members": [{"user": "ada"}], "team_caps": CAP, "team_parent": "x"}),
    )
    text = refusal(load_inventory(str(folder)))
    assert text == refusal(plain_inventory(str(folder)))
    heads = sorted(line for line in text.splitlines() if not line.startswith(" "))
    assert heads == [
        f"{folder}/group_vars/teams.yml: 2 problems",
        f"{folder}/host_vars/vision.yml: 3 problems",
    ]
    assert "team_caps: got an unknown field, expected one that exists. Did you mean team_cap?" in text
    assert 'team_parent: got "x", expected a queue of the site (none yet). Fix: add it to team_site_queues' in text
    assert "team_weight: got 0" in text
    assert 'team_site_queues[0].name: got "root"' in text
    assert "team_cap: got nothing" in text


def test_a_team_cannot_have_a_value_of_the_site_for_itself_nor_another_name(tmp_path: Path) -> None:
    folder = site(tmp_path, group_vars__teams="team_site_priorities: {normal: 1}\n")
    (folder / "hosts.yml").write_text("all: {children: {teams: {hosts: {speech: , vision: }}}}\n")
    own = {"team_members": [{"user": "zoe"}], "team_cap": CAP, "team_site_priorities": {"normal": 2}, "team_name": "x"}
    (folder / "host_vars/speech.yml").write_text(yaml.safe_dump(own))
    text = refusal(load_inventory(str(folder)))
    assert 'team_name: got "x", expected no such variable: the team is called speech as its host' in text
    assert "group_vars/teams.yml alone" in text


@pytest.mark.slow
def test_a_host_whose_name_no_team_can_have_is_refused(tmp_path: Path) -> None:
    folder = site(tmp_path)
    (folder / "hosts.yml").write_text("all: {children: {teams: {hosts: {Vision: }}}}\n")
    (folder / "host_vars/vision.yml").rename(folder / "host_vars/Vision.yml")
    assert 'inventory_hostname: got "Vision", expected a-z, 0-9 and -' in refusal(load_inventory(str(folder)))


@pytest.mark.parametrize("how", ["ansible", "plain"])
def test_words_that_yaml_reads_differently_are_refused_in_every_file_at_once(tmp_path: Path, how: str) -> None:
    text = "team_members: [{user: on}]\nteam_max_jobs: 1_000\n"
    folder = site(tmp_path, group_vars__teams="team_weight: 0_1\n", host_vars__vision=text)
    said = refusal((load_inventory if how == "ansible" else plain_inventory)(str(folder)))
    for word in ("bare word on", "bare word 1_000", "bare word 0_1", "vision.yml: 2 problems", "teams.yml: 1 problem"):
        assert word in said


TEMPLATES = {
    "a template": "base: 2\nteam_max_jobs: '{{ base * 3 }}'\n",
    "a lookup": "team_max_jobs: \"{{ lookup('ansible.builtin.env', 'SIX') }}\"\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_command_reads_templates_through_ansible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("SIX", "6")
    folder = site(tmp_path, group_vars__teams=TEMPLATES[kind])
    (team,) = teams_of(load_inventory(str(folder)))[1]
    assert team.max_jobs == 6


@pytest.mark.usefixtures("without_ansible")
@pytest.mark.parametrize("kind", TEMPLATES)
def test_without_ansible_a_template_is_refused_by_its_file(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = site(tmp_path, group_vars__teams=TEMPLATES[kind])
    (tmp_path / "job.json").write_text(json.dumps(JOB | {"image": "i"}))
    assert main(["expand", str(tmp_path / "job.json"), "--site", str(folder)]) == 1
    error = capsys.readouterr().err
    assert f"{folder}/group_vars/teams.yml: 1 problem" in error
    assert "team_max_jobs: got a template (" in error
    assert "install Ansible" in error


def encrypted(folder: Path, text: str) -> str:
    """A value that ansible-vault encrypts with the password `secret`."""
    (folder / "password").write_text("secret")
    vault = Path(sys.executable).with_name("ansible-vault")
    command = [str(vault), "encrypt_string", "--vault-password-file", str(folder / "password"), text]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_command_reads_what_ansible_vault_encrypted_and_without_ansible_refuses_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site(tmp_path)
    path = folder / "host_vars/vision.yml"
    path.write_text(path.read_text() + "team_namespace: " + encrypted(tmp_path, "hidden") + "\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "password"))
    (team,) = teams_of(load_inventory(str(folder)))[1]
    assert team.namespace == "hidden"
    with pytest.raises(GangplankError, match=r"vision\.yml: 1 problem\n.*values that ansible-vault has encrypted"):
        plain_inventory(str(folder))


def test_an_earlier_layout_is_refused_with_the_way_to_move_it(tmp_path: Path) -> None:
    folder = site(tmp_path, teams__vision="team: {name: vision}\n", teams___site="site: {}\n")
    for place in (folder, folder / "hosts.yml", folder / "teams"):
        with pytest.raises(Unreadable) as caught:
            load_inventory(str(place))
        assert "files of teams as earlier versions read them (_site.yml, vision.yml)" in str(caught.value)
        assert "move its file to host_vars/TEAM.yml" in str(caught.value)


@pytest.mark.parametrize("text", [
    "site:\n  hosts: {a: {}}\n", "team: # of nodes\n\n  # all\n  children:\n    teams: {}\n", "site: {vars: {a: 1}}\n",
    "site:\n",
])  # fmt: skip
def test_a_group_of_an_inventory_is_no_earlier_layout(text: str, tmp_path: Path) -> None:
    folder = site(tmp_path)
    (folder / "more.yml").write_text(text)
    refuse_earlier_layout([folder])


def test_an_inventory_that_ansible_cannot_read_is_reported(tmp_path: Path) -> None:
    folder = site(tmp_path)
    (folder / "hosts.yml").write_text("all: [\n")
    with pytest.raises(Unreadable, match="an inventory that Ansible refuses"):
        load_inventory(str(folder))


def train(folder: Path, *words: str) -> tuple[str, list[dict[str, Any]]]:
    """What train.yml prints for a job of the team vision, and the manifests that it writes."""
    (folder / "job.json").write_text(json.dumps({"training_job": JOB, "training_job_manifest_dir": str(folder)}))
    command = [sys.executable, "-m", "ansible", "playbook", "-i", str(folder), "playbooks/train.yml"]
    command += ["--tags", "manifests", "-e", f"@{folder}/job.json", "-e", "ansible_connection=local", *words]
    env = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "COLUMNS": "400"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    kept = [path.read_text() for path in folder.glob("*.j.yml")]  # one, called after its namespace
    return done.stdout + done.stderr, [item for text in kept for item in yaml.safe_load_all(text)]


@pytest.mark.slow
def test_a_playbook_takes_templates_vaulted_values_and_those_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site(tmp_path, group_vars__all="registry: a.example\nteam_job_defaults: {image: '{{ registry }}/t:1'}\n")
    own = folder / "host_vars/vision.yml"
    own.write_text(own.read_text() + "team_namespace: " + encrypted(tmp_path, "hidden") + "\n")
    said, _ = train(folder)
    assert "no vault secrets" in said
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "password"))
    said, manifests = train(folder)
    assert '"image": "a.example/t:1"' in json.dumps(manifests), said
    assert {item["metadata"]["namespace"] for item in manifests} == {"hidden"}, said
    said, manifests = train(folder, "-e", '{"team_job_defaults": {"image": "b.example/t:2"}}')
    assert '"image": "b.example/t:2"' in json.dumps(manifests), said
    said, _ = train(folder, "-e", '{"team_weight": 0}')
    assert "-e: 1 problem" in said
    assert "team_weight: got 0" in said


@pytest.mark.slow
def test_a_playbook_names_each_value_that_cannot_be_rendered_or_is_unknown(tmp_path: Path) -> None:
    folder = site(tmp_path, group_vars__teams="team_max_jobs: '{{ nowhere }}'\nteam_namespace: 'x{{ nobody.a }}'\n")
    said, manifests = train(folder)
    assert manifests == []
    assert f"{folder}/host_vars/vision.yml: 2 problems" in said
    assert "team_max_jobs: got a template without a value" in said
    assert "team_namespace: got a template without a value" in said
    assert "Traceback" not in said
    said, _ = train(site(tmp_path, group_vars__teams="team_maxjobs: 2\n"))
    assert f"{folder}/group_vars/teams.yml: 1 problem" in said
    assert "Did you mean team_max_jobs?" in said
