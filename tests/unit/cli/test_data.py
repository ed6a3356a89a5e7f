"""The command line of gangplank data; what it does is tests/unit/cluster/test_data.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gangplank.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Api


@pytest.mark.parametrize(("words", "message"), [
    ((".", "https://a.example/b", "mnist"), ".: got a place on this machine, expected addresses alone"),
    (("https://a.example/", "mnist"), "https://a.example/: got an address without a file's name"),
    (("ftp://a.example/b", "mnist"), "ftp://a.example/b: got an address of another kind"),
    ((".", "mnist:a/../b"), "a/../b: got a name that leads out of the folder, expected a folder of the claim"),
    (("rm", "mnist"), "mnist: got a whole claim, expected a file or a folder of it. Fix: gangplank data rm mnist:PATH"),
    (("rm", "mnist:../a"), "../a: got a name that leads out of the folder, expected a file or a folder of the claim"),
    (("ls", "mnist:/a/../b"), "a/../b: got a name that leads out of the folder"),
    ((".", "mnist", "--sha256", "0" * 64), "--sha256: got one hash, expected one for each file"),
])  # fmt: skip
def test_a_command_line_that_cannot_be_carried_out_asks_no_cluster(
        api: Api, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    assert main(["data", *words]) == 2
    assert message in capsys.readouterr().err
    assert api.seen == []


def test_a_claim_that_is_missing_is_named_with_those_of_the_namespace(
        api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    claim = {"metadata": {"name": "mnist"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    api.objects["/api/v1/namespaces/vision/persistentvolumeclaims/mnist"] = claim
    assert main(["data", str(tmp_path), "mnits", "-n", "vision"]) == 4
    expected = "claim vision/mnits: got nothing, expected a claim of the namespace, which has mnist. Fix: "
    assert expected in capsys.readouterr().err
    assert [line.split()[0] for line in api.seen] == ["GET", "GET"], "nothing is written"


def test_a_file_here_that_is_missing_is_named_before_anything_is_written(
        api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    claim = {"metadata": {"name": "mnist"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    api.objects["/api/v1/namespaces/default/persistentvolumeclaims/mnist"] = claim
    assert main(["data", str(tmp_path / "gone"), "mnist"]) == 3
    assert f"{tmp_path}/gone: got nothing, expected a folder or a file" in capsys.readouterr().err
    assert {line.split()[0] for line in api.seen} == {"GET"}
