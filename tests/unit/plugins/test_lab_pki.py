"""Fault F1: the task that makes the lab's certificates shows why it fails, and no key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.plugins.test_cluster_actions import run

if TYPE_CHECKING:
    from pathlib import Path

LEAF = {"name": "admin", "common_name": "admin"}


def test_f1_a_failure_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "pki").touch()
    result = run("lab_pki", folder=str(tmp_path / "pki"), authorities=["ca"], certificates=[LEAF])
    assert result["failed"]
    assert f"{tmp_path}/pki" in result["msg"]
    assert "File exists" in result["msg"]


def test_f1_the_result_has_names_and_no_keys(tmp_path: Path) -> None:
    result = run("lab_pki", folder=str(tmp_path / "pki"), authorities=["ca"], certificates=[LEAF])
    assert result == {"changed": True, "made": ["ca", "admin", "sa", "encryption"], "healed": []}
