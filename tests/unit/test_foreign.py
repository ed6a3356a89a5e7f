"""What molecule `foreign` types is what the README prints, on the Kubernetes that lab/versions.yml pins."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangplank.teams.load import load
from lab.build.versions import load_pins
from tests.support.foreign import documents, route
from tests.support.foreign.cluster import ForeignError, run
from tests.support.foreign.route import COPY, commands, script

ROOT = Path(__file__).resolve().parents[2]
PARTS: dict[str, Any] = {"charts": defaultdict(lambda: "/charts")}


def test_types_every_command_of_the_readme_once_and_in_order(tmp_path: Path) -> None:
    blocks = commands((ROOT / "README.md").read_text())
    typed = script(PARTS, tmp_path).splitlines()
    printed = [line for block in blocks for line in block]
    assert [line for line in typed if line in printed] == printed
    assert len(blocks) == 2
    assert any(line.startswith(COPY) for line in printed)
    for book in ("site", "teams", "train", "uninstall"):
        (line,) = (line for line in printed if f"playbooks/{book}.yml" in line)
        assert (f"again {line}" in typed) == (book != "train")


def test_the_edited_copy_of_the_example_has_one_team_until_it_leaves(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yours = tmp_path / "yours"
    shutil.copytree(ROOT / "inventories/example", yours)
    monkeypatch.setattr(route, "YOURS", yours)
    route.edit(PARTS)
    assert [team.name for team in load(str(yours))[1]] == [route.TEAM]
    route.leave()
    assert [*load(str(yours))[1]] == []


def test_the_cluster_has_the_version_of_the_pin() -> None:
    part = load_pins().parts["kubeadm"]
    assert part.version == documents.VERSION
    assert load_pins().parts["coredns"].version == documents.DNS
    assert "kubeadm" in load_pins().on_demand
    config = list(yaml.safe_load_all(documents.init("198.51.100.10", "a", {})))[1]
    names = {image.name.rpartition(":")[0] for image in part.images}
    assert config["kubernetesVersion"] == part.version
    assert {f"registry.k8s.io/kube-{name}" for name in ("apiserver", "proxy", "scheduler")} < names


def test_a_command_without_an_end_is_an_error_with_its_output() -> None:
    with pytest.raises(ForeignError, match=r"(?s)sh -c .*: no end after 1 s\nwaiting for etcd\nno answer"):
        run(["sh", "-c", "echo waiting for etcd; echo no answer >&2; exec sleep 60"], timeout_s=1)
