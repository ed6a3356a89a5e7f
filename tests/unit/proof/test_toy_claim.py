"""A claim that lives here alone goes everywhere: one decorated function, and no edit of the package."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from gangplank.cli import main
from gangplank.proof.claims import CLAIMS, Expected, claim
from gangplank.proof.judgement import Judgement, judged
from gangplank.proof.report.page import page
from gangplank.proof.verdict import prove
from tests.unit.proof.test_claims import EXPECTED, MUTATIONS, World, failed, where, without_mutation
from tools import write_docs_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gangplank.proof.records import Run

NAME = "toys are tidy"
OLD = sum(claim.since == 1 for claim in CLAIMS.values())  # claims that are asked of evidence of the first format
NEWER = len(CLAIMS) - OLD + 1  # that are not, the toy's among them
TIDY = where("end", toys=3)


def toys_are_tidy(run: Run, _: Expected) -> Judgement:
    """Every rank put its toys away.

    Fails for: a rank that left one out*.
    """
    toys = [record.whole("toys") for record in run.of("end")]
    return judged([f"{count} toys, expected 3" for count in toys if count != 3], f"{sum(toys)} toys", proven=bool(toys))


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with mock.patch.dict(CLAIMS):
        claim(NAME, since=2)(toys_are_tidy)
        yield


def test_is_judged_with_all_others() -> None:
    verdict = prove(World(change=TIDY).train(), EXPECTED)
    assert verdict.passed, verdict.text()
    assert verdict.text().splitlines()[-2:] == [
        f"ok      {NAME}: 9 toys", f"PROVEN: {len(CLAIMS)} of {len(CLAIMS)} claims hold"]  # fmt: skip


def test_fails_alone() -> None:
    verdict = prove(World(change=where("end", toys=2)).train(), EXPECTED)
    assert failed(verdict) == {NAME}
    assert verdict.text().splitlines()[-2].startswith(f"FAILED  {NAME}: 2 toys, expected 3, 2 toys")
    assert failed(prove([], EXPECTED)) == set(CLAIMS)


def test_names_the_field_that_a_record_of_its_format_lacks() -> None:
    verdict = prove(World().train(), EXPECTED)
    assert [(outcome.name, outcome.detail.partition(". Fix: ")[0]) for outcome in verdict.failed] == [
        (NAME, "rank 0 record 11 (end) toys: got nothing, expected a whole number >= 0")
    ]


def test_is_not_asked_of_older_evidence() -> None:
    records = World(format=None).train()
    verdict = prove(records, EXPECTED)
    assert verdict.passed
    assert NAME not in failed(verdict)
    assert verdict.text().splitlines()[-2:] == [
        f"skipped {NAME}: not asked: got evidence of format 1, needs 2",
        f"PROVEN: {OLD} of {OLD} claims hold, {NEWER} not asked",
    ]
    text = page("digits", records, EXPECTED)
    assert f"all {OLD} claims hold, {NEWER} not asked." in text
    assert f'<td class="">skipped</td><td>{NAME}</td>' in text


def test_older_evidence_is_not_proven_by_a_claim_that_it_is_not_asked() -> None:
    records = World(format=None, change=where("epoch", 1, parameters="other")).train()
    verdict = prove(records, EXPECTED)
    assert failed(verdict) == {"weights agree"}
    assert verdict.text().endswith(f"\nNOT PROVEN: {OLD - 1} of {OLD} claims hold, {NEWER} not asked")
    assert f"1 of {OLD} claims fail, {NEWER} not asked: weights agree." in page("digits", records, EXPECTED)


@pytest.mark.parametrize(("world", "code", "line"), [
    (World(change=TIDY), 0, f"ok      {NAME}: 9 toys"),
    (World(change=where("end", toys=0)), 1, f"FAILED  {NAME}: 0 toys"),
    (World(format=None), 0, f"skipped {NAME}: not asked"),
])
def test_is_in_the_verdict_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world: World, code: int, line: str
) -> None:
    (tmp_path / "evidence.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in world.train()))
    assert main(["proof", "--file", str(tmp_path)]) == code
    output = capsys.readouterr()
    assert [text for text in output.out.splitlines() if text.startswith(line)]
    assert output.err.count("\n") == code


def test_has_a_row_in_the_docs() -> None:
    row = f"| {NAME} | Every rank put its toys away. Needs evidence of format 2. | a rank that left one out\\* |"
    assert row in write_docs_tables.page("docs/proof.md", write_docs_tables.PAGES["docs/proof.md"]).splitlines()


def test_is_missed_among_the_mutations_until_it_has_one() -> None:
    assert without_mutation(MUTATIONS) == [NAME]
    assert without_mutation([*MUTATIONS, (where("end", toys=0), {NAME})]) == []
