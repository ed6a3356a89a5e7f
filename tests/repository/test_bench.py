"""docs/bench.md, its drawings and the figures of README.md are those of bench/results, and of nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from bench import page
from bench.figures import read
from bench.part import parts

ROOT = Path(__file__).parents[2]


def test_pages_and_drawings_show_the_committed_results() -> None:
    assert page.stale() == []


def test_a_result_is_of_a_part_that_exists_and_every_figure_has_a_name_of_its_own() -> None:
    results = read(ROOT / "bench/results")
    assert set(results) - set(parts()) == set()
    names = [one.id for result in results.values() for one in result.figures]
    assert len(names) == len({*names})
    assert [(part, one.id) for part, it in results.items() for one in it.figures if one.id.split(".")[0] != part] == []


def test_the_usual_parts_take_at_most_an_hour_as_measured() -> None:
    """A result says how long its part took, which may be longer than the part declares."""
    results = read(ROOT / "bench/results")
    usual = {name: module.PART.minutes for name, module in parts().items() if module.PART.usual}
    minutes = {name: max(declared, results[name].minutes if name in results else 0) for name, declared in usual.items()}
    assert sum(minutes.values()) <= 60, minutes


def test_the_page_of_the_proof_shows_the_committed_figures_of_evidence() -> None:
    figures = {one.id: one.value for one in read(ROOT / "bench/results")["evidence"].figures}
    page_of_proof = (ROOT / "docs/proof.md").read_text()
    table = page_of_proof.partition("| added to the whole run |\n")[2].partition("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    names = {name: None for key in figures if (name := re.sub(r"^evidence\.(.+)\.cpu$", r"\1", key)) != key}
    assert [[cpu, *percents] for _, cpu, _, *percents in cells] == [
        [f"{figures[f'evidence.{name}.cpu']:.1f} s",
         *(f"{figures[f'evidence.{name}.{key}']:.1f} %" for key in ("added", "counted", "whole"))]
        for name in names
    ]  # fmt: skip
