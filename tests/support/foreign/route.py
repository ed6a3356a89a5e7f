"""The README's route to an existing cluster, typed as it is printed: `python -m tests.support.foreign.route STATE`.

STATE is the cluster's folder. The commands are those of the README's section, in one shell and in this order. Between
them is what the section asks of its reader: an edited inventory. The older Volcano is installed first, so that the
README's site.yml upgrades it; the job of the README is also run on the other back-ends. Playbooks that a second run
must find done are run twice.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from gangplank.backends import BACKENDS
from lab.build.cache import cache_home
from lab.build.parts import build

ROOT = Path(__file__).resolve().parents[3]
SECTION = "## Use it on an existing cluster"
YOURS = ROOT / "inventories/yours"
COPY = "cp -r inventories/example inventories/yours"
LISTING = ROOT / "molecule/uninstall/listing.py"
IDEMPOTENT = ("site", "teams", "uninstall")
TWICE = """
again() {
  "$@" > "$HOME/again.log" || { cat "$HOME/again.log"; return 1; }
  cat "$HOME/again.log"
  if grep 'changed=[1-9]' "$HOME/again.log"; then
    echo "$*: got changes in a second run, expected none"
    return 1
  fi
}"""
TEAM = "vision"
TEAM_VALUES: dict[str, Any] = {
    "team_members": [{"user": "ada", "role": "lead"}],
    "team_cap": {"cpu": "1", "memory": "2Gi", "ephemeral_storage": "20Gi"},
    "team_claims": [{"name": "data", "size": "1Gi"}],
}


def commands(readme: str) -> list[list[str]]:
    """The lines of each block of shell commands in the README's section, without comments."""
    section = readme.split(f"{SECTION}\n")[1].split("\n## ", maxsplit=1)[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return [[line.partition("  #")[0].strip() for line in block.splitlines() if line.strip()] for block in blocks]


def edit(parts: dict[str, Any]) -> None:
    """What a user changes in the copied inventory: components, where their charts come from, storage and teams."""
    path = YOURS / "group_vars/all/site.yml"
    site = yaml.safe_load(path.read_text())
    for name in [name for name in site if name.startswith(("gpu_device_plugin", "training_job_gpu"))]:
        del site[name]
    site |= {
        "site_components": ["volcano", "storage", "training_operator", "trainer_v2"],
        "site_cluster": "https://198.51.100.10:6443",
        "volcano_source": "lab",
        "volcano_chart": parts["charts"]["volcano"],
        # The cluster has a default class; its Pod Security admits no folder of a node where nothing else is said.
        "storage_classes": [{"name": "folders", "kind": "local", "folder": "/var/lib/kubelet/of-the-site"}],
        "storage_source": "lab",
        "storage_local_path_chart": parts["charts"]["local-path-provisioner"],
        "storage_claims": [
            {"name": "data", "namespace": "default", "size": "1Gi"},
            {"name": "of-the-site", "namespace": "default", "size": "1Gi", "class": "folders"},
        ],
        "training_operator_source": "lab",
        "training_operator_crds": parts["charts"]["training-operator-crds"],
        "training_operator_gang_scheduler": "volcano",
        "trainer_v2_source": "lab",
        "trainer_v2_chart": parts["charts"]["kubeflow-trainer"],
        "trainer_v2_crds": parts["charts"]["trainer-v2-crds"],
    }
    path.write_text(yaml.safe_dump(site))
    for file in (YOURS / "host_vars").iterdir():
        file.unlink()
    (YOURS / "group_vars/teams.yml").write_text(yaml.safe_dump({"team_site_priorities": {"normal": 100}}))
    (YOURS / f"host_vars/{TEAM}.yml").write_text(yaml.safe_dump(TEAM_VALUES))
    write_hosts([TEAM])


def leave() -> None:
    """What a user changes when the team leaves."""
    (YOURS / f"host_vars/{TEAM}.yml").unlink()
    write_hosts([])


def write_hosts(teams: list[str]) -> None:
    """The inventory's hosts: this machine, and the teams."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    inventory = {"all": {"children": {"teams": {"hosts": dict.fromkeys(teams)}}, "vars": local}}
    (YOURS / "hosts.yml").write_text(yaml.safe_dump(inventory))


def older(parts: dict[str, Any], state: Path) -> list[str]:
    """The commands that install the version before."""
    values = state / "before.json"
    before = {"volcano_version": "1.15.0", "volcano_chart": parts["charts"]["volcano-before"],
              "site_components": ["volcano"]}  # fmt: skip
    values.write_text(json.dumps(before))
    return [f"ansible-playbook -i inventories/yours playbooks/site.yml -e @{values}"]


def others(state: Path) -> list[str]:
    """The commands that run the job on every back-end."""
    job = yaml.safe_load((ROOT / "jobs/digits-anywhere.yml").read_text())["training_job"]
    lines = []
    for backend in BACKENDS:
        path = state / f"digits-{backend}.yml"
        # Volcano removes workers and their logs when the master has finished; the claim is one that one node can mount.
        volume = {"claim": "of-the-site", "mount": "/output", "on": "master"}
        kept = {"volumes": [volume], "output": f"/output/{backend}"}
        own = {**job, "name": f"digits-{backend}", "backend": backend, **(kept if backend == "volcano" else {})}
        path.write_text(yaml.safe_dump({"training_job": own}))
        lines += [
            f"ansible-playbook -i inventories/yours playbooks/train.yml -e @{path}",
            f"gangplank proof digits-{backend}",
        ]
    return lines


def script(parts: dict[str, Any], state: Path) -> str:
    """The README's commands, with what comes between them."""
    first, *rest = commands((ROOT / "README.md").read_text())
    lines: list[str] = []
    for line in first:
        lines += twice(line)
        if line.startswith(COPY):
            lines.append(inventory_edit(state, "edit"))
        if line.startswith("export K8S_AUTH_KUBECONFIG="):
            lines += [listing(state, "before"), *older(parts, state)]
    lines += others(state)
    lines += [f"gangplank delete {name}" for name in ("digits", *(f"digits-{backend}" for backend in BACKENDS))]
    lines.append(inventory_edit(state, "leave"))
    lines.append(f"ansible-playbook -i inventories/yours playbooks/teams.yml -e teams_remove={TEAM}"
                 f" -e teams_remove_claims={TEAM}/data")  # fmt: skip
    lines += [line for block in rest for printed in block for line in twice(printed)]
    lines.append(listing(state, "after"))
    return "\n".join(["set -euo pipefail", TWICE, *(f"echo {shlex.quote(f'+ {line}')}\n{line}" for line in lines)])


def twice(line: str) -> list[str]:
    """A command as printed, and once more if it has nothing to do then."""
    return [line, f"again {line}"] if any(f"playbooks/{book}.yml" in line for book in IDEMPOTENT) else [line]


def inventory_edit(state: Path, verb: str) -> str:
    """The command that does with the inventory what a user does in an editor."""
    return f"{shlex.quote(sys.executable)} -m tests.support.foreign.route {shlex.quote(str(state))} {verb}"


def listing(state: Path, name: str) -> str:
    """The command that lists every object of the cluster into a file."""
    return f"{shlex.quote(sys.executable)} {LISTING} > {state}/{name}.txt"


def main(words: list[str]) -> int:
    """Type the route; the exit status is that of its first command that fails."""
    state = Path(words[0])
    installed = ["volcano", "volcano-before", "training-operator", "trainer-v2", "local-path-provisioner"]
    parts = build(["helm", *installed], print)
    if words[1:] == ["edit"]:
        edit(parts)
        return 0
    if words[1:] == ["leave"]:
        leave()
        return 0
    if YOURS.exists():
        print(f"{YOURS}: got a folder, expected none. Fix: remove or rename it", file=sys.stderr)
        return 1
    home = state / "home"
    home.mkdir(exist_ok=True)
    shutil.copy(state / "admin.kubeconfig", home / "admin.kubeconfig")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("K8S_AUTH_", "KUBECONFIG"))}
    path = f"{parts['bin']['helm']}:{kept.get('PATH', '')}"  # Helm is on the PATH, as the section asks
    # The home is another one: what is on this machine must not help. The caches stay where they are.
    cache = str(cache_home().parent)
    environment = {**kept, "HOME": str(home), "XDG_CACHE_HOME": cache, "PATH": path, "PWD": str(ROOT)}
    try:
        text = script(parts, state)
        done = subprocess.run(["bash", "-c", text], cwd=ROOT, env=environment, check=False)
    finally:
        shutil.rmtree(YOURS, ignore_errors=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
