"""Every playbook is read by Ansible without complaint, and does no more than call roles."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bench.parts.lab import MARKS
from gangplank.cluster.lease import PATIENCE_S
from lab.build.versions import load_pins

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = sorted(ROOT.glob("playbooks/*.yml"))
FREE = "gangplank.gangplank.cluster_lock"
each_playbook = pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda playbook: playbook.name)


def test_the_playbooks_that_the_docs_name_exist() -> None:
    assert {"lab.yml", "site.yml", "train.yml", "lab-down.yml"} <= {playbook.name for playbook in PLAYBOOKS}


def test_the_benchmark_waits_for_tasks_that_exist() -> None:
    for mark in MARKS:
        role, title = mark.removeprefix("TASK [").split(" : ")
        files = ROOT.glob(f"roles/{role}/tasks/*.yml")
        names = [task["name"] for file in files for task in yaml.safe_load(file.read_text())]
        assert any(name.startswith(title) for name in names), mark


@pytest.mark.slow
@each_playbook
def test_ansible_reads_it(playbook: Path) -> None:
    command = [sys.executable, "-m", "ansible", "playbook", "--syntax-check", str(playbook)]
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr


@each_playbook
def test_every_play_has_a_name_and_at_most_a_line_or_two_of_its_own(playbook: Path) -> None:
    for play in yaml.safe_load(playbook.read_text()):
        assert play["name"][0].isupper()
        if "ansible.builtin.import_playbook" not in play:
            tasks = play.get("tasks", []) + play.get("pre_tasks", []) + play.get("post_tasks", [])
            assert len([task for task in tasks if FREE not in task]) <= 2


@pytest.mark.parametrize("name", ["site.yml", "teams.yml", "uninstall.yml"])
def test_what_changes_the_cluster_keeps_other_runs_out_until_its_last_task(name: str) -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks" / name).read_text())
    take, (free,) = play["pre_tasks"][-1], play["post_tasks"]
    arguments = take["gangplank.gangplank.cluster_ready"]
    assert arguments["lock"]
    assert arguments["lock_timeout_s"] == "{{ site_lock_timeout_s | default(omit) }}"
    assert free[FREE] == {"state": "free"} | ({"kubeconfig": arguments["kubeconfig"]} if name == "teams.yml" else {})
    assert free.get("tags") == take.get("tags")


def test_all_that_names_the_patience_for_a_lock_names_the_library_s() -> None:
    for module in ("cluster_lock", "cluster_ready"):
        documentation = (ROOT / f"plugins/modules/{module}.py").read_text()
        assert f"Without it, {PATIENCE_S}." in documentation
    example = (ROOT / "inventories/example/group_vars/all/site.yml").read_text()
    assert f"# site_lock_timeout_s: {PATIENCE_S}\n" in example


@each_playbook
def test_every_role_that_it_names_exists(playbook: Path) -> None:
    named = set()
    for play in yaml.safe_load(playbook.read_text()):
        named |= {role if isinstance(role, str) else role["role"] for role in play.get("roles", [])}
        for task in play.get("tasks", []):
            for module in ("ansible.builtin.include_role", "ansible.builtin.import_role"):
                named |= {task[module]["name"]} if module in task else set()
    looped = {name for name in named if "{{" in name}  # names of a loop, which --syntax-check does not follow either
    assert {name for name in named - looped if not (ROOT / "roles" / name / "tasks/main.yml").exists()} == set()


def test_the_components_that_can_be_removed_are_those_that_can_be_installed() -> None:
    (install,) = yaml.safe_load((ROOT / "playbooks/site.yml").read_text())
    (remove,) = yaml.safe_load((ROOT / "playbooks/uninstall.yml").read_text())
    names = {role["role"] for role in install["roles"]}
    assert set(re.findall(r"'(\w+)'", remove["tasks"][0]["loop"])) - {"in"} == names
    assert [name for name in names if not (ROOT / "roles" / name / "tasks/remove.yml").exists()] == []


def test_the_one_lab_of_all_scenarios_has_only_what_several_of_them_install() -> None:
    """What one scenario alone needs, it builds itself: `make molecule` builds it for no other."""
    (create,) = yaml.safe_load((ROOT / "molecule/default/create.yml").read_text())
    built = set(create["vars"]["site_components"])
    installed = [set(values) for path in (ROOT / "molecule").glob("*/converge.yml")
                 for play in yaml.safe_load(path.read_text())
                 if (values := play.get("vars", {}).get("site_components"))]  # fmt: skip
    several = {name for names in installed for name in names if sum(name in other for other in installed) > 1}
    assert built == several
    parts = yaml.safe_load((ROOT / "inventories/lab/group_vars/all/lab.yml").read_text())["lab_component_parts"]
    assert not {part for name in built for part in parts[name]} & load_pins().on_demand
