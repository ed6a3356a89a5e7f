"""The report about a real run, opened by a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.cli import main
from gangplank.cli.overview import page as site_page
from gangplank.cluster.overview import Overview, Section
from gangplank.proof.claims import CLAIMS
from tests.support.site_page import SITE, WIDTH
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

    view = look(page.read_text())
    assert view["title"].endswith(": proven")
    assert not view["wide"], "nothing is cut off at the right"
    curves = view["curves"]
    assert [(curve["chart"], curve["name"]) for curve in curves] == [
        (f"chart-{kind}", f"rank {rank}") for kind in ("loss", "accuracy") for rank in range(3)]
    assert all(curve["shown"] and curve["inside"] and curve["length"] > 300 for curve in curves), curves
    assert len({curve["stroke"] for curve in curves}) == 3, "each rank has its colour"
    assert view["rows"] == {"proof": len(CLAIMS), "wiring": 4, "time": 7, "samples": 4, "starts": 2}


def test_a_browser_draws_the_page_of_a_site_and_cuts_nothing_off() -> None:
    amounts = {"cpu": 63_500, "memory": 1000 * 2**38, "nvidia.com/gpu": 8_000}
    node = {"node": "a-node-with-a-rather-long-name.example.com", "state": "ready", "held": amounts, "free": amounts}
    job = {"job": "<b>", "namespace": "vision", "left": 90.0}
    sections = (
        Section("jobs", ("job", "namespace", "left"), (job,)),
        Section("gpus", ("device",), ()),
        Section("nodes", ("node", "state", "held", "free"), (node, node)),
    )
    page = site_page(Overview("lab", "v1.35.4", sections, ("queues: you may not list them",)))
    assert "<td>&lt;b&gt;</td><td>vision</td><td>1 min 30 s</td>" in page
    view = look(page)
    assert (view["title"], view["rows"], view["wide"]) == ("lab", {"jobs": 2, "nodes": 3}, False)


def test_a_browser_draws_the_site_of_the_picture_in_docs() -> None:
    view = look(site_page(SITE), WIDTH)
    assert view["rows"] == {one.name: len(one.rows) + 1 for one in SITE.sections if one.rows}
    assert not view["wide"]
