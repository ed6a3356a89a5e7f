"""docs/bench.md, its drawings and the figures of README.md are those of bench/results, and of nothing else."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from bench import page
from bench.figures import read
from bench.part import parts
from bench.parts import faults as bench_of_faults
from bench.reasons import REASONS, reason
from gangplank.jobs.parse import parse_job
from tests.cluster import faults
from tests.cluster.jobs import DESCRIPTION

ROOT = Path(__file__).parents[2]


def test_pages_and_drawings_show_the_committed_results() -> None:
    assert page.stale() == []


def test_a_result_is_of_a_part_that_exists_and_every_figure_has_a_name_of_its_own() -> None:
    results = read(ROOT / "bench/results")
    assert set(results) - set(parts()) == set()
    names = [one.id for result in results.values() for one in result.figures]
    assert len(names) == len({*names})
    assert [(part, one.id) for part, it in results.items() for one in it.figures if one.id.split(".")[0] != part] == []


def test_every_missed_goal_has_a_reason_and_every_reason_a_missed_goal() -> None:
    figures = [one for result in read(ROOT / "bench/results").values() for one in result.figures]
    missed = [one for one in figures if one.met is False]
    assert [one.id for one in missed if not reason(one)] == []
    assert [pattern for pattern in REASONS if not any(fnmatchcase(one.id, pattern) for one in missed)] == []


def test_the_usual_parts_take_at_most_an_hour_as_measured() -> None:
    """A result says how long its part took, which may be longer than the part declares."""
    results = read(ROOT / "bench/results")
    usual = {name: module.PART.minutes for name, module in parts().items() if module.PART.usual}
    minutes = {name: max(declared, results[name].minutes if name in results else 0) for name, declared in usual.items()}
    assert sum(minutes.values()) <= 60, minutes


def test_the_page_of_the_proof_shows_the_committed_figures_of_evidence() -> None:
    figures = {one.id: one.value for one in read(ROOT / "bench/results")["evidence"].figures}
    page_of_proof = (ROOT / "docs/proof.md").read_text()
    table = page_of_proof.partition("| both, of the whole run |\n")[2].partition("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    names = {name: None for key in figures if (name := re.sub(r"^evidence\.(.+)\.cpu$", r"\1", key)) != key}
    assert [[cpu, *percents] for _, cpu, _, *percents in cells] == [
        [f"{figures[f'evidence.{name}.cpu']:.1f} s",
         *(f"{figures[f'evidence.{name}.{key}']:.1f} %" for key in ("observation", "evidence", "counted", "whole"))]
        for name in names
    ]  # fmt: skip


@pytest.mark.parametrize("name", faults.FAULTS)
def test_a_fault_is_made_on_volcano_and_another_back_end_or_the_page_says_why_not(name: str) -> None:
    one, text = faults.FAULTS[name], (ROOT / "docs/faults.md").read_text()
    assert one.backends[0] == "volcano"
    assert (len(one.backends) == 1) == bool(one.alone)
    assert bench_of_faults.alone(name) in text


@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, backend) for name, one in faults.FAULTS.items() if not one.long for backend in one.backends],
)
def test_the_page_has_the_end_of_a_training_under_every_fault(name: str, backend: str) -> None:
    assert "," not in name, "FAULTS=… lists names with commas"
    assert f"\n| {name} | {backend} | exact weights" in (ROOT / "docs/faults.md").read_text()


@pytest.mark.parametrize(
    ("name", "backend"), [(name, backend) for name, one in faults.FAULTS.items() for backend in one.backends]
)
def test_a_job_under_a_fault_is_one_that_its_back_end_accepts(name: str, backend: str) -> None:
    """On the claim of its fault, if that has one: then one node has all the files."""
    one = faults.FAULTS[name]
    change = faults.description("job", backend, **faults.under(one, backend))
    spec = parse_job({**DESCRIPTION, **change, "name": "job", "backend": backend})
    assert bool(spec.queue) == (backend != "indexed")
    (volume,) = spec.volumes
    assert volume.claim == (one.own[-1]["metadata"]["name"] if one.own else "shared")
    assert volume.on == ("master" if one.own and backend == "volcano" else "all")
    pinned = spec.node_selector.get(faults.HOSTNAME) == faults.SMALL
    assert pinned == (bool(one.own) and backend == "indexed")
