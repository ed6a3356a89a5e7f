"""What `make dist` makes, installed in an empty place as docs/install.md prints it, installs a site and trains."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank import __version__
from lab.build.cache import cache_home
from tests.cluster.conftest import ROOT, STATE, Lab
from tests.support.checkout import copy_checkout

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs/install.md"
COPIES = "cp -r ~/.ansible/"  # after these, the page asks to edit the inventory
EDITS = (
    "rm -r site/host_vars site/group_vars/teams.yml",
    "cp ../site.yml site/group_vars/all/site.yml",
    "cp ../hosts.yml site/hosts.yml",
)
CHARTED = "--set training_job.name=charted --set training_job.output=/opt/pytorch/output/charted"
BY_HELM = (  # what the page renders, installed
    f"helm install charted charts/training-job-*.tgz --kubeconfig ~/admin.kubeconfig -f jobs/digits.yml {CHARTED}",
    "timeout 1200 bash -c 'until gangplank status charted | grep -q Completed; do sleep 1; done'",
    "gangplank proof charted",
    "helm uninstall charted --kubeconfig ~/admin.kubeconfig --wait",
)
OURS = ("K8S_", "KUBE", "ANSIBLE_", "GANGPLANK_", "PYTHON")  # variables that a user's shell has not


def commands() -> list[str]:
    """The commands of the page, without that of the checkout."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line != "make dist"]


def site(parts: dict[str, Any]) -> dict[str, Any]:
    """The values of a site for the lab's cluster: what its user would write."""
    return {
        "site_components": ["volcano", "storage"],
        "volcano_source": "lab",
        "volcano_chart": parts["charts"]["volcano"],
        "volcano_queue_plugin": "capacity",
        "volcano_actions": ["gangreclaim"],
        "storage_source": "lab",
        "storage_local_path_chart": parts["charts"]["local-path-provisioner"],
        "storage_classes": [
            {"name": "local-path", "kind": "local", "folder": "/opt/local-path-provisioner", "default": True},
            {"name": "local-shared", "kind": "shared", "folder": "/mnt/shared"},
        ],
        "storage_claims": [{"name": "data", "namespace": "default", "size": "10Gi", "labels": {"app": "data"}}],
    }


@pytest.fixture
def place(kubeconfig: str, tmp_path: Path) -> Path:  # noqa: ARG001  the fixture: the lab is up, with Volcano and storage
    """An empty folder with the content of dist/, and the site's values beside it."""
    checkout = copy_checkout(tmp_path / "checkout")
    subprocess.run([sys.executable, "-m", "tools.dist"], cwd=checkout, check=True, timeout=900)
    place = tmp_path / "place"
    shutil.move(checkout / "dist", place)
    shutil.rmtree(checkout)
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(STATE / "admin.kubeconfig", home)
    (tmp_path / "site.yml").write_text(yaml.safe_dump(site(Lab().parts)))
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"teams": {}}, "vars": {
        "ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}}}))  # fmt: skip
    return place


def test_the_page_installs_it_in_an_empty_place_and_trains(place: Path) -> None:
    lines = commands()
    last = max(number for number, line in enumerate(lines) if line.startswith(COPIES))
    lines[last + 1 : last + 1] = EDITS
    lines += ["gangplank delete digits", *BY_HELM]  # the lab is shared
    text = "\n".join(["set -eu", *(f"echo {shlex.quote(f'+ {line}')}\n{line}" for line in lines)])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    path = [word for word in kept["PATH"].split(":") if not word.startswith(str(ROOT))]
    env = {**kept, "HOME": str(place.parent / "home"), "XDG_CACHE_HOME": str(cache_home().parent), "PWD": str(place),
           "PATH": ":".join([Lab().parts["bin"]["helm"], *path])}  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", text], cwd=place, env=env, capture_output=True, text=True, check=False, timeout=3600
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    steps = dict(re.findall(r"^\+ (.*)\n((?:(?!\+ ).*\n)*)", done.stdout, re.MULTILINE))
    assert set(lines) <= steps.keys()
    assert "changed=0" in steps["ansible-playbook -i site gangplank.gangplank.site"]  # the lab's own site is as this
    assert "3 pods, a gang of 3" in steps["gangplank expand --site site jobs/digits.yml"]
    assert "PROVEN" in steps["ansible-playbook -i site gangplank.gangplank.train -e @jobs/digits.yml"]
    for name in ("digits", "charted"):
        assert "PROVEN" in steps[f"gangplank proof {name}"]
    assert (place / "reports/default.digits.html").exists()
    (render,) = (text for line, text in steps.items() if line.startswith("helm template "))
    assert "kind: Job" in render
    show = "import gangplank; print(gangplank.__version__, gangplank.__file__)"
    python = place / "venv/bin/python"
    done = subprocess.run([python, "-c", show], cwd=place, env=env, capture_output=True, text=True, check=True)
    (file,) = place.glob("venv/lib/*/site-packages/gangplank/__init__.py")
    assert done.stdout.split() == [__version__, str(file)]
