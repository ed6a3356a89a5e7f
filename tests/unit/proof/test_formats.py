"""Evidence is judged by its own format, and a field that is missing or of another type is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.proof.claims import CLAIMS
from gangplank.proof.records import FORMAT, EvidenceError
from gangplank.proof.report.page import page
from gangplank.proof.verdict import Expected, prove
from tests.unit.proof.test_claims import EXPECTED, World, failed, interrupted, where

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.proof.test_claims import Record

DOCS, DOCS_OBSERVED = (Path(__file__).resolve().parents[3] / "docs/proof.md").read_text().split(
    "Evidence of an observed script", 1)  # fmt: skip
ROWS = re.findall(r"^\| `(\w+)` \| .* \| (`.*`) \|$", DOCS, re.MULTILINE)
NEEDED = [(kind, key) for kind, fields in ROWS for key in re.findall(r"`(\w+)`", fields)]
STRANGE: tuple[Any, ...] = (None, "x", -1, 1.5, True, [], ["x"], {}, 10**400)


def without(kind: str, key: str) -> Callable[[Record], None]:
    def change(record: Record) -> None:
        if record["kind"] == kind:
            record.pop(key)

    return change


def test_the_docs_list_fields_of_every_kind() -> None:
    assert {kind for kind, _ in NEEDED} == {"begin", "samples", "steps", "gradients", "epoch", "heads", "end"}
    assert len(NEEDED) > 15


@pytest.mark.parametrize(("kind", "key"), NEEDED)
def test_a_missing_field_fails_a_claim_that_names_record_and_field(kind: str, key: str) -> None:
    verdict = prove(World(change=without(kind, key)).train(), EXPECTED)
    message = rf"rank \d record \d+ \({kind}\) {key}: got nothing, expected .*\. Fix: write it as docs/proof.md"
    assert [claim for claim in verdict.failed if re.search(message, claim.detail)], verdict.text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({str(record["kind"]) for record in World().train()}))
def test_a_field_of_another_type_is_judged_and_shown(kind: str) -> None:
    keys = {key for record in World().train() if record["kind"] == kind for key in record}
    for key in sorted(keys - {"format", "kind"}):
        for value in STRANGE:
            records = World(2, 8, epochs=1, change=where(kind, **{key: value})).train()
            prove(records, EXPECTED).text().encode()
            page("digits", records, EXPECTED).encode()


def test_evidence_without_a_format_is_the_first() -> None:
    verdict = prove(World(format=None).train(), EXPECTED)
    assert verdict.passed, verdict.text()
    assert len(verdict.asked) == sum(claim.since == 1 for claim in CLAIMS.values())


def of_format_3(record: Record) -> None:
    """No steps, no weights at the beginning, and looks at steps of the epoch that no token names."""
    if record["kind"] == "begin":
        del record["parameters"]
    if record["kind"] == "steps":
        record["kind"] = "other"
    if record["kind"] == "gradients":
        record["step"] = 3 + int(str(record["step"]))


@pytest.mark.parametrize("version", [2, 3])
def test_older_evidence_is_judged_as_it_was_written(version: int) -> None:
    records = World(format=version, change=of_format_3).train()
    verdict = prove(records, EXPECTED)
    assert verdict.passed, verdict.text()
    assert not [claim for claim in verdict.claims if claim.passed is None]

    def kept(record: Record) -> None:
        of_format_3(record)
        if record["kind"] == "gradients":
            record["before"] = record["after"]  # hashes of bits

    assert "gradients agree after the all-reduce" in failed(prove(World(format=version, change=kept).train(), EXPECTED))
    newer = prove(World(change=of_format_3).train(), EXPECTED)
    assert {"gradients are exchanged at every step", "gradients differ before the all-reduce", "weights agree"} <= (
        failed(newer)), newer.text()


def of_format_4(record: Record) -> None:
    """No weights at the end, and samples at steps that no token names."""
    if record["kind"] == "end":
        del record["parameters"]
    if record["kind"] == "steps":
        record["sampled"] = 1


def test_evidence_of_format_4_is_judged_without_what_format_5_added() -> None:
    verdict = prove(World(samples=600, format=4, change=of_format_4).train(), EXPECTED)
    assert verdict.passed, verdict.text()
    newer = prove(World(samples=600, change=of_format_4).train(), EXPECTED)
    assert {"gradients are exchanged at every step", "weights agree"} <= failed(newer), newer.text()


def test_a_run_of_format_4_that_a_newer_trainer_resumed_is_proven() -> None:
    def change(record: Record) -> None:
        if not record["prev"]:
            record["format"] = 4
        if float(str(record["time"])) < 2000:
            of_format_4(record)

    run = interrupted(3, change=change)[0].records()
    verdict = prove([record for record in run if record["kind"] != "end" or "parameters" in record], EXPECTED)
    assert verdict.passed, verdict.text()


def test_a_run_of_format_3_that_a_newer_trainer_resumed_is_proven() -> None:
    def change(record: Record) -> None:
        if not record["prev"]:
            record["format"] = 3
        if float(str(record["time"])) < 2000:
            of_format_3(record)
        elif record["kind"] == "gradients" and record["epoch"] == 2:
            record["kind"] = "other"  # none was due in this epoch

    verdict = prove(interrupted(3, change=change)[0].records(), EXPECTED)
    assert verdict.passed, verdict.text()


@pytest.mark.parametrize("version", [0, FORMAT + 1, -1, "2", 1.0, True, None, [], 10**400])
def test_an_unknown_format_is_refused_by_name(version: object) -> None:
    records = World(change=where("begin", 1, format=version)).train()
    for use in (prove, lambda records, expected: page("digits", records, expected)):
        with pytest.raises(EvidenceError, match=r"^rank 1 record 0 \(begin\) format: got .*, expected .*\. Fix: "):
            use(records, EXPECTED)


def test_a_run_that_a_newer_trainer_resumed_is_judged_by_the_older_format(monkeypatch: pytest.MonkeyPatch) -> None:
    name, last = "weights agree", CLAIMS["weights agree"]
    monkeypatch.setitem(CLAIMS, name, type(last)(last.judge, since=2))
    world, _ = interrupted(3)
    newer = world.records()
    assert [len(prove(records, Expected(3)).asked) for records in (newer, as_older_start(newer))] == [
        len(CLAIMS) - 1, sum(claim.since == 1 for claim in CLAIMS.values()) - 1]  # the pods are not asked for


def as_older_start(records: list[Record]) -> list[Record]:
    """The same run, of which the first processes wrote no format."""

    def change(record: Record) -> None:
        if not record["prev"]:
            record.pop("format", None)

    world, _ = interrupted(3, change=change)
    assert len(world.records()) == len(records)
    return world.records()


def test_abandoned_work_of_another_format_does_not_count() -> None:
    other = World(attempt="b", clock=900.0, format=FORMAT + 1)
    other.begin()
    assert prove([*World().train(), *other.records()], EXPECTED).passed


def test_a_chain_without_a_begin_fails_and_says_so() -> None:
    verdict = prove(World(change=where("begin", 1, kind="other")).train(), EXPECTED)
    assert "every rank took part" in failed(verdict)
    assert "rank 1: got no record of the kind begin, expected one for each of its processes" in verdict.text()
