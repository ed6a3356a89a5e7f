"""Fault F1: the task that makes the lab's certificates shows why it fails, and no key."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.plugins.test_cluster_actions import run

if TYPE_CHECKING:
    from pathlib import Path

LEAF = {"name": "admin", "common_name": "admin"}


def test_f1_a_failure_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "pki").touch()
    result = run("lab_pki", folder=str(tmp_path / "pki"), authorities=["ca"], certificates=[LEAF])
    assert result["failed"]
    assert f"{tmp_path}/pki" in result["msg"]
    assert "File exists; correct or restore it, then run it again" in result["msg"]


def test_f1_the_result_has_names_and_no_keys(tmp_path: Path) -> None:
    result = run("lab_pki", folder=str(tmp_path / "pki"), authorities=["ca"], certificates=[LEAF])
    assert result == {"changed": True, "made": ["ca", "admin", "sa", "encryption"], "healed": []}


def test_d5_pods_that_a_new_key_cuts_off_are_named_with_the_command_that_restarts_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words: dict[str, Any] = {"folder": str(tmp_path / "pki"), "authorities": ["ca"], "certificates": [LEAF]}
    for broken, cut_off in (("", False), ("ca.crt", False), ("ca.key", True)):
        if broken:
            (tmp_path / "pki" / broken).write_text("")
        assert bool(run("lab_pki", **words)["healed"]) == bool(broken)
        assert ("Fix: kubectl rollout restart deployment -n" in capsys.readouterr().out) == cut_off


@pytest.mark.parametrize(("failure", "message"), [
    (OSError(errno.ENOSPC, "No space left on device", "/a"), "/a: No space left on device; free some space, then"),
    (PermissionError(errno.EACCES, "Permission denied", "/a"), "/a: Permission denied; correct its permissions, then"),
    (TimeoutError("timed out"), "lab_pki: timed out; correct or restore it, then run it again"),
])  # fmt: skip
def test_f1_a_failure_of_the_machine_has_the_fix_that_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError, message: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("plugins.action.lab_pki.ensure", fail)
    result = run("lab_pki", folder=str(tmp_path / "pki"), authorities=["ca"], certificates=[LEAF])
    assert result["msg"].startswith(message)
