"""Every site is whole: its teams render, its values are inputs that exist, and its playbooks pass Ansible's check."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangplank.teams.inventory import is_value
from gangplank.teams.load import load
from gangplank.teams.objects import team_objects
from gangplank.teams.parse import RESERVED

ROOT = Path(__file__).resolve().parents[2]
SITES = sorted(path.parent for path in ROOT.glob("inventories/*/hosts.yml"))
each_site = pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)
PLAYBOOKS = ("site.yml", "teams.yml", "train.yml", "uninstall.yml")
ALONE = ("lab", "site")  # prefixes of values that belong to no role: an inventory's own, and the playbooks'


def inputs() -> set[str]:
    """What the roles take."""
    names: set[str] = set()
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        names |= yaml.safe_load(path.read_text())["argument_specs"]["main"].get("options", {}).keys()
    return names


def test_there_are_a_lab_and_a_site_to_copy() -> None:
    assert {"lab", "example"} <= {site.name for site in SITES}


@pytest.mark.slow
@each_site
def test_its_teams_render(site: Path) -> None:
    held, teams = load(str(site))
    objects = team_objects(teams, held)
    assert {"Namespace", "Queue", "ResourceQuota", "RoleBinding", "NetworkPolicy"} <= {one["kind"] for one in objects}


def test_no_team_takes_a_namespace_that_a_role_installs_into() -> None:
    spaces = [
        value
        for path in ROOT.glob("roles/*/defaults/main.yml")
        for name, value in (yaml.safe_load(path.read_text()) or {}).items()
        if name == f"{path.parts[-3]}_namespace" and value
    ]
    assert "kubeflow-system" in spaces
    assert [name for name in spaces if not RESERVED.fullmatch(name)] == []


@each_site
def test_every_value_is_an_input_of_a_role(site: Path) -> None:
    variables: set[str] = set()
    for path in [*site.glob("group_vars/all/*.yml"), *site.glob("group_vars/*.yml"), *site.glob("host_vars/*.yml")]:
        variables |= yaml.safe_load(path.read_text()).keys()
    variables -= {"gpu_allocation"}  # the site's own switch, from which inputs of roles follow
    assert {name for name in variables - inputs() if name.split("_")[0] not in ALONE and not is_value(name)} == set()


@pytest.mark.slow
@each_site
def test_its_playbooks_pass_the_syntax_check(site: Path) -> None:
    command = [sys.executable, "-m", "ansible", "playbook", "--syntax-check", "-i", str(site)]
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1"}
    books = [f"playbooks/{name}" for name in PLAYBOOKS]
    done = subprocess.run([*command, *books], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, list[Path]]:
    """Ways to name a site."""
    lab, copy = ROOT / "inventories/lab", tmp_path / "copy"
    shutil.copytree(lab, copy)
    (tmp_path / "more").mkdir()
    (tmp_path / "more/hosts.yml").write_text("all: {hosts: {more: }}\n")
    return {
        "nothing": [],
        "folder": [lab],
        "file": [lab / "hosts.yml"],
        "copied folder": [copy],
        "and hosts without teams": [lab, tmp_path / "more/hosts.yml"],
        "and a list of hosts": [lab, Path("one,two")],
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", ["nothing", "folder", "file", "copied folder", "and hosts without teams", "and a list of hosts"]
)
def test_a_job_starts_from_its_teams_values_however_the_site_is_named(
    sources: dict[str, list[Path]], way: str, tmp_path: Path
) -> None:
    book = []  # both jobs with one start of Ansible
    for name, more in (("mine", {"team": "vision"}), ("nobodys", {"image": "own"})):
        job = {"name": name, "script": "/a.py", **more}
        variables = {"training_job": job, "training_job_manifest_dir": str(tmp_path)}
        book.append({"import_playbook": str(ROOT / "playbooks/train.yml"), "vars": variables})
    (tmp_path / "both.json").write_text(json.dumps(book))
    play(tmp_path / "both.json", sources[way], tmp_path, "--tags", "manifests")
    (job,) = yaml.safe_load_all((tmp_path / "vision.mine.yml").read_text())
    assert job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] == "gangplank.dev/trainer:0.1.0"
    assert (tmp_path / "default.nobodys.yml").exists()


@pytest.mark.slow
def test_f2_a_kept_manifest_is_for_its_owner_alone(sources: dict[str, list[Path]], tmp_path: Path) -> None:
    kept = tmp_path / "default.mine.yml"
    kept.touch(mode=0o644)  # from before
    tmp_path.chmod(0o2770)
    job = {"name": "mine", "script": "/a.py", "image": "own", "env": {"TOKEN": "literal"}}
    (tmp_path / "job.json").write_text(json.dumps({"training_job": job, "training_job_manifest_dir": str(tmp_path)}))
    words = ("--tags", "manifests", "-e", f"@{tmp_path}/job.json")
    play(ROOT / "playbooks/train.yml", sources["folder"], tmp_path, *words)
    assert "literal" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert tmp_path.stat().st_mode & 0o7777 == 0o2770, "the folder is the user's"


def play(book: Path, inventories: list[Path], folder: Path, *words: str) -> str:
    """Run a playbook from another folder, with these inventories; what it printed."""
    command = [sys.executable, "-m", "ansible", "playbook", str(book), *words]
    for source in inventories:
        command += ["-i", str(source)]
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "COLUMNS": "400"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_lab_with_the_gpus_of_its_machine_follows_from_one_value(tmp_path: Path) -> None:
    names = ["lab_component_parts", "gpu_device_plugin_source", "gpu_device_plugin_values", "lab_cluster_binds",
             "training_job_simulated_gpus"]  # fmt: skip
    values = "{{ dict(names | zip(query('vars', *names))) | to_json }}"
    copy = {"ansible.builtin.copy": {"dest": "{{ folder }}/values.json", "mode": "0600", "content": values}}
    book = tmp_path / "show.yml"
    book.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [copy]}]))
    built = {"bin": {"nvidia-programs": "/cache/parts/nvidia-programs-v1-key/bin"}, "charts": {}}
    wanted = {"lab_gpus": "machine", "lab_gpu_driver": "/d"}
    extra = json.dumps({"folder": str(tmp_path), "names": names, "lab_parts_built": built, **wanted})
    play(book, [ROOT / "inventories/lab"], tmp_path, "-e", extra)
    got = json.loads((tmp_path / "values.json").read_text())
    assert got["lab_component_parts"]["gpu_device_plugin"] == ["nvidia-device-plugin", "nvidia-programs"]
    assert (got["gpu_device_plugin_source"], got["training_job_simulated_gpus"]) == ("lab", False)
    assert got["lab_cluster_binds"] == [{"source": "/d", "target": "/run/nvidia/driver/usr"}]
    hook = got["gpu_device_plugin_values"]["cdi"]["nvidiaHookPath"]
    assert hook == "/mnt/parts/nvidia-programs-v1-key/bin/nvidia-cdi-hook"  # where nodes see the parts


def test_the_site_to_copy_has_what_a_real_one_has() -> None:
    held, teams = load(str(ROOT / "inventories/example"))
    assert len(teams) == 3
    assert held.queues
    members = [member for team in teams for member in team.members]
    assert {"Group", "ServiceAccount"} <= {member.kind for member in members}
    hosts = yaml.safe_load((ROOT / "inventories/example/hosts.yml").read_text())
    assert len(hosts["all"]["children"]["cluster"]["children"]["gpu_nodes"]["hosts"]) > 1
    # gpu_nodes.yml runs modules on the nodes, which lack the Python of this machine's virtual environment
    assert hosts["all"]["vars"] == {"ansible_connection": "local"}
    values = yaml.safe_load((ROOT / "inventories/example/group_vars/all/site.yml").read_text())
    assert values["volcano_source"] == values["gpu_device_plugin_source"] == "release"
    assert any("nfs" in one.get("provisioner", "") for one in values["storage_classes"])
