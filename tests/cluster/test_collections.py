"""The lower end of the range in requirements.yml: the storage role with kubernetes.core as an older Ansible bundles it.

All other tests have the upper end, which the installed Ansible bundles.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.conftest import Lab

OLDER = "ansible==11.12.0"  # bundles the lowest version of the range
INSIDE = "ansible_collections/kubernetes/core/"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of collections with the older kubernetes.core, out of the package of that Ansible."""
    folder = tmp_path_factory.mktemp("older")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", OLDER]
    subprocess.run([*command, "--dest", str(folder)], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(INSIDE)])
    return folder


def manifest(folder: Path) -> dict[str, Any]:
    """What a collection says of itself."""
    information: dict[str, Any] = json.loads((folder / INSIDE / "MANIFEST.json").read_text())["collection_info"]
    return information


def test_a_site_is_installed_twice_and_removed_with_the_older_collection(
    lab: Lab, older: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, lowest = lab.installed(), manifest(older)["version"]
    assert f">={lowest}," in (ROOT / "requirements.yml").read_text()
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", f"{older}:{ROOT}/.collections")
    show = "{{ lookup('community.general.collection_version', 'kubernetes.core') }}"
    (tmp_path / "version.yml").write_text(json.dumps([{
        "hosts": "localhost", "tasks": [{"name": "Show", "ansible.builtin.debug": {"msg": show}}]}]))  # fmt: skip
    assert lowest in lab.playbook(str(tmp_path / "version.yml"))
    site = ("-e", json.dumps({"site_components": ["storage"]}))
    lab.playbook("playbooks/uninstall.yml", *site)
    said = [lab.playbook("playbooks/site.yml", *site) for _ in range(2)]
    assert ["changed=0" in text for text in said] == [False, True]
    assert lab.get("deployments", "--namespace=local-path-storage")
    lab.playbook("playbooks/uninstall.yml", *site)
    assert "NotFound" in lab.kubectl("get", "namespace", "local-path-storage", check=False)
    if before:  # others share it
        lab.install(before)
