"""A misspelt input of a role, or a component that is not known, ends the run before anything is changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


LOCALHOST = "{localhost: {ansible_connection: local}}"
BOOKS = pytest.mark.parametrize("book", ["playbooks/site.yml", "gangplank.gangplank.site"], ids=["file", "collection"])


def site(folder: Path, group_vars: str, host: str = LOCALHOST, book: str = "playbooks/site.yml") -> str:
    """Run site.yml with an inventory of these variables; return what it printed. It must fail."""
    (folder / "group_vars").mkdir()
    (folder / "hosts.yml").write_text(f"all: {{hosts: {host}}}\n")
    (folder / "group_vars" / "all.yml").write_text(group_vars)
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "COLUMNS": "400"}
    helm = folder / "helm"
    helm.touch(0o755)
    environment |= {"PATH": f"{folder}:{environment['PATH']}"}
    command = [sys.executable, "-m", "ansible", "playbook", "-i", str(folder / "hosts.yml"), book]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "changed=0" in done.stdout
    return done.stdout + done.stderr


pytestmark = pytest.mark.usefixtures("api")  # the cluster, in which nothing is changed


@pytest.mark.slow
@BOOKS
@pytest.mark.parametrize("host", [LOCALHOST, "{node-0: }"])
def test_a_misspelt_input_is_told_with_its_file_and_line_and_the_nearest_name(
    tmp_path: Path, host: str, book: str
) -> None:
    said = site(tmp_path, "site_components: [volcano]\nvolcano_verison: 1.15.1\nvolcano_xyz: 1\n", host, book)
    file = tmp_path / "group_vars" / "all.yml"
    assert f"{file}:2: volcano_verison: role volcano has no such input. Fix: write volcano_version." in said
    assert f"{file}:3: volcano_xyz: role volcano has no such input. Fix: remove it" in said


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.12.3", "1.13.2", "1.14.1"])
def test_a_vulnerable_volcano_is_refused_before_anything_is_changed(tmp_path: Path, version: str) -> None:
    said = site(tmp_path, f"site_components: [volcano]\nvolcano_version: {version}\nvolcano_source: release\n")
    assert f"volcano_version: got {version}, which has CVE-2026-44247" in " ".join(said.split())


@pytest.mark.slow
@BOOKS
@pytest.mark.parametrize("line", ["site_components: [volcanoo]", "site_component: [volcano]"])
def test_a_component_that_is_not_known_is_refused_with_the_known_ones(tmp_path: Path, line: str, book: str) -> None:
    said = site(tmp_path, line + "\n", book=book)
    assert "site_components: got" in said
    assert "expected a list of ['volcano', " in said
