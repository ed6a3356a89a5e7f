"""The report shows what the evidence holds, even if that proves nothing; tests/trainer opens it in chromium."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cli import main
from gangplank.proof.claims import CLAIMS
from gangplank.proof.records import select
from gangplank.proof.report import page as report
from gangplank.proof.report.svg_plot import MOST_POINTS, chart
from gangplank.proof.report.tensorboard import write_events
from gangplank.proof.verdict import Expected
from tests.support.event_files import scalars
from tests.unit.proof.test_claims import EXPECTED, World, interrupted, where

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Json = dict[str, Any]


class Page(HTMLParser):
    """The rows of each table by its id, and every tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: dict[str, list[list[str]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.table, self.open = "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "table":
            self.table = str(attributes.get("id"))
            self.rows[self.table] = []
        if tag == "tr":
            self.rows[self.table].append([])
        if tag in ("td", "th"):
            self.rows[self.table][-1].append("")
            self.open = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.open = False

    def handle_data(self, data: str) -> None:
        if self.open:
            self.rows[self.table][-1][-1] += data


def rendered(records: list[Json] | None = None, expected: Expected = EXPECTED) -> tuple[str, Page]:
    text = report.page("digits", World().train() if records is None else records, expected)
    return text, Page(text)


@pytest.mark.parametrize(("expected", "ranks"), [
    (EXPECTED, "3 of 3"), (Expected(4), "3 of 4"), (Expected(1, processes_per_pod=None, unsized=True), "3 of 3")])
def test_the_ranks_of_a_job_that_does_not_say_their_number_are_those_of_the_evidence(
        expected: Expected, ranks: str) -> None:
    assert ranks in rendered(expected=expected)[0]


def test_every_rank_has_its_curve_of_loss_and_accuracy() -> None:
    _, page = rendered()
    curves = [attrs for tag, attrs in page.tags if tag == "polyline"]
    assert [attrs["data-name"] for attrs in curves] == ["rank 0", "rank 1", "rank 2"] * 2
    losses = [attrs["points"] for attrs in curves[:3]]
    assert len(set(losses)) == 3
    assert all(re.fullmatch(r"([\d.]+,[\d.]+ ?)+", str(points)) for points in losses)


def test_needs_no_network_and_no_script() -> None:
    text, page = rendered()
    assert not re.search(r"(?:src|href)=|url\(|@import|https?:", text)
    assert "script" not in {tag for tag, _ in page.tags}


def test_samples_and_time_of_every_rank() -> None:
    _, page = rendered()
    assert page.rows["samples"] == [
        ["rank", "epoch 1", "epoch 2", "in all"],
        ["0", "34", "34", "68"],
        ["1", "34", "34", "68"],
        ["2", "34", "34", "68"],
    ]
    first = page.rows["time"][1]  # 2 epochs of 4 steps: data 0.5 s, compute 4 s of which all-reduce 1 s, ...
    assert first == ["0", "8", "62.500", "375.000", "125.000", "62.500", "125.000", "62.500", "6.50"]


def test_the_wiring_and_every_claim() -> None:
    text, page = rendered()
    assert [row[0] for row in page.rows["wiring"]] == ["rank", "0", "1", "2"]
    assert page.rows["wiring"][2][4:6] == ["pod-1", "uid-1"]
    assert [row[0] for row in page.rows["proof"]] == ["ok"] * len(CLAIMS)
    assert "Proven" in text


def test_restarts_are_shown_with_the_checkpoint_they_resumed() -> None:
    world, lost = interrupted(3)
    _, page = rendered(world.records() + lost, Expected(3))
    assert [row[1:] for row in page.rows["starts"][1:]] == [
        ["3", "from the beginning"],
        ["3", "from the checkpoint of step 2, epoch 1"],
    ]


def test_a_training_that_is_not_proven_is_shown_with_the_claim_that_fails() -> None:
    text, page = rendered(World(change=where("epoch", 1, parameters="other")).train())
    assert "Not proven" in text
    assert ["FAILED", "weights agree"] in [row[:2] for row in page.rows["proof"]]


def test_evidence_is_shown_as_text_and_never_as_markup() -> None:
    text, _ = rendered(World(change=where("begin", 1, pod="<script>alert(1)</script>")).train())
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    "change",
    [
        where("epoch", losses="none", spent=3, loss=None, steps="x"),
        where("epoch", losses=[[1], "a", [1, None], [2, 0.5]]),
        where("begin", node=None, time=None),
        where("samples", count="many"),
        where("begin", kind="other"),
    ],
)
def test_strange_evidence_still_makes_a_page(change: Callable[[Json], None]) -> None:
    text, _ = rendered(World(change=change).train())
    assert text.rstrip().endswith("</html>")


def test_older_evidence_without_losses_shows_one_point_an_epoch() -> None:
    records = World(change=where("epoch", losses=None, spent=None)).train()
    run = select(records)
    assert report.losses(run)[1] == [(4.0, 1.0), (8.0, 1.0)]
    assert rendered(records)[1].rows["time"][1][-1] == "0.50"  # from the record of the end


def test_the_same_evidence_makes_the_same_page() -> None:
    assert rendered()[0] == rendered(list(reversed(World().train())))[0]


@pytest.mark.parametrize("points", [[(0.0, 1e-9), (1.0, 2e-9)], [(5.0, 3.0)], [(0.0, -2.0), (1e6, 4.0)],
                                    [(1.0, 0.3), (2.0, 0.1 + 0.2)], [(1.0, 1e-14), (2.0, 0.0)],
                                    [(2.0**53 - 1, 1.0), (2.0**53, 2.0)]])
def test_every_point_lies_inside_the_chart(points: list[tuple[float, float]]) -> None:
    plot = chart("loss", "step", {"a": points}, zero=False)
    assert plot is not None
    assert len(plot.lines[0].marks) == len(points)
    assert all(0 <= x <= plot.width and 0 <= y <= plot.height for x, y, _ in plot.lines[0].marks)
    assert plot.x_ticks[0].at == 0
    assert plot.y_ticks[-1].at == 0


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    plot = chart("loss", "step", {"a": [(float(x), 1.0) for x in range(10_001)]}, zero=True)
    assert plot is not None
    marks = plot.lines[0].marks
    assert len(marks) <= MOST_POINTS + 1
    assert (marks[0][2], marks[-1][2]) == ("a: 1 at step 0", "a: 1 at step 10000")


def test_a_curve_without_a_finite_value_is_left_out() -> None:
    assert chart("loss", "step", {"a": [(1.0, float("nan"))]}, zero=True) is None


def test_tensorboard_gets_a_run_per_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "evidence.jsonl"
    source.write_text("".join(f"{json.dumps(record)}\n" for record in World().train()))
    code = main(
        ["report", "--file", str(source), "-o", str(tmp_path / "r.html"), "--tensorboard", str(tmp_path / "tb")]
    )
    assert (code, capsys.readouterr().err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "tb").iterdir()) == ["rank-0", "rank-1", "rank-2"]
    (events,) = (tmp_path / "tb/rank-1").iterdir()
    rows = scalars(events)
    assert [row for row in rows if row[0] == "loss"] == [("loss", 1, 2.0), ("loss", 2, 1.5)]
    assert [row for row in rows if row[0] == "accuracy"] == [("accuracy", 1, 0.9), ("accuracy", 2, 0.9)]
    assert ("seconds/allreduce", 1, 0.5) in rows


def test_a_second_report_replaces_its_own_event_files_and_no_others(tmp_path: Path) -> None:
    records = World().train()
    write_events(tmp_path, records)
    (first,) = (tmp_path / "rank-1").iterdir()
    others = tmp_path / "rank-1/events.out.tfevents.1795363895.somebody.1"
    others.write_bytes(b"theirs")
    write_events(tmp_path, [record for record in records if record["rank"] != 2])
    assert [*(tmp_path / "rank-2").iterdir()] == []
    (second,) = {*(tmp_path / "rank-1").iterdir()} - {others}
    assert second != first
    assert scalars(second)
    assert others.read_bytes() == b"theirs"
