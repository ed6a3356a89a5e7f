"""The report about a real run, opened by a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.cli import main
from gangplank.proof.claims import CLAIMS
from tests.trainer.browser import look

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.trainer.harness import Root


def test_chromium_draws_the_curves_of_every_rank(
    root: Root, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = root.new()
    flags = ["--epochs", "3", "--batch-size", "32", "--log-interval", "4", "--checkpoint-interval", "8"]
    assert {rank.code for rank in root.train(3, *flags, "--output", out)} == {0}
    page = tmp_path / "report.html"
    assert main(["report", "--file", str(root.host(out)), "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"report: {page}\n"

    (tmp_path / "work").mkdir()
    view = look(page, tmp_path / "work")
    assert view["title"].endswith(": proven")
    assert not view["wide"], "nothing is cut off at the right"
    curves = view["curves"]
    assert [(curve["chart"], curve["name"]) for curve in curves] == [
        (f"chart-{kind}", f"rank {rank}") for kind in ("loss", "accuracy") for rank in range(3)]
    assert all(curve["shown"] and curve["inside"] and curve["length"] > 300 for curve in curves), curves
    assert len({curve["stroke"] for curve in curves}) == 3, "each rank has its colour"
    assert view["rows"] == {"proof": len(CLAIMS), "wiring": 4, "time": 7, "samples": 4, "starts": 2}
