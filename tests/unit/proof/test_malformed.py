"""Evidence of any shape (E5, E6): a verdict or one message, no traceback, bounded memory."""

from __future__ import annotations

import base64
import json
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangplank.cli import main
from gangplank.proof.expected import OF_EVIDENCE
from gangplank.proof.records import FORMAT, EvidenceError, record_hash
from gangplank.proof.report.page import page
from gangplank.proof.verdict import Expected, prove, read_records
from tests.support.sweeps import examples
from tests.unit.proof.test_claims import EXPECTED, World, where

if TYPE_CHECKING:
    from pathlib import Path

    from gangplank.proof.records import Records

numbers = st.integers() | st.sampled_from([2**53, 2**53 + 1, 10**12, 10**400, -1]) | st.floats()
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["heads", "epoch", "position", "0", "x"]) | st.text(max_size=3), inner, max_size=4), max_leaves=12)  # fmt: skip
SOUND = World(2, 8, epochs=1).train()
FIELDS = sorted({(index, key) for index, record in enumerate(SOUND) for key in record if key != "hash"})
MEBIBYTE = 1 << 20


def judge(records: Records, expected: Expected) -> None:
    """Verdict and page, or the one error that there is."""
    def verdict() -> str:
        return prove(records, expected).text()

    def shown() -> str:
        return page("digits", records, expected)

    for use in (verdict, shown):
        try:
            use().encode()
        except EvidenceError as error:
            assert "\n" not in str(error)  # either may be raised


@pytest.mark.slow
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(FIELDS), anything), min_size=1, max_size=4), st.booleans())
def test_fields_of_any_value_are_judged(changes: list[tuple[tuple[int, str], Any]], linked: bool) -> None:
    """With right hashes; chained anew if `linked`, so that the changed records are the ones that are judged."""
    records = [dict(record) for record in SOUND]
    for (index, key), value in changes:
        records[index][key] = value
    heads: dict[object, str] = {}
    for record in records:
        before = record.pop("hash")
        if linked and isinstance(record["prev"], str):
            record["prev"] = heads.get(record["prev"], record["prev"])
        try:
            record["hash"] = heads[before] = record_hash(record)
        except ValueError:  # a number of more digits than Python writes
            record["hash"] = before
    text = "".join(f"{line}\n" for record in records if (line := written(record)))
    for expected in (EXPECTED, OF_EVIDENCE):
        judge(read_records(text), expected)


def written(record: dict[str, Any]) -> str:
    try:
        return json.dumps(record)
    except ValueError:
        return ""


@settings(max_examples=examples(200))
@given(st.lists(st.text() | anything.map(lambda value: json.dumps(value, default=str)[:500]), max_size=5))
def test_lines_of_any_text_are_judged(lines: list[str]) -> None:
    records = read_records("\n".join([*lines, '{"event":"evidence",' + "[" * 3000, "{" * 3000 + '"hash"']))
    judge(records, OF_EVIDENCE)


SIZE = 1 << 29


def bomb() -> str:
    """Half a gibibyte of zeros in half a mebibyte: a compressed mebibyte, repeated, and the checksum of all."""
    pack = zlib.compressobj(9)
    first, block = (pack.compress(bytes(MEBIBYTE)) + pack.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    end = b"\x03\x00" + (SIZE % 65521 << 16 | 1).to_bytes(4, "big")  # an empty last block, and Adler-32 of zeros
    return base64.b64encode(first + block * (SIZE // MEBIBYTE - 1) + end).decode()


BOMB = bomb()


@pytest.mark.slow
@pytest.mark.parametrize("change", [
    where("samples", bitmap=BOMB), where("samples", 1, repeats=[2**53] * 10), where("begin", dataset_samples=10**12),
    where("begin", world_size=2**53), where("epoch", epoch=2**53), where("epoch", steps=2**53, exchanges=2**53),
    where("samples", epoch=2**53), where("gradients", epoch=2**53, step=2**53, elements=2**53),
    where("begin", 0, resumed={"heads": {}, "epoch": 2**53, "position": 2**53}), where("begin", resumed={}),
    where("begin", 1, resumed={"heads": {"9" * 9: "0" * 64}, "epoch": 1, "position": 0}),
    where("begin", accumulate=0, batch_size=2**53),
], ids=[f"change {number}" for number in range(12)])  # fmt: skip
def test_numbers_and_bombs_do_not_fill_the_memory(change: Any) -> None:
    records = read_records("\n".join(json.dumps(record) for record in World(2, 8, epochs=1, change=change).train()))
    for expected in (EXPECTED, OF_EVIDENCE, Expected(2**53)):
        tracemalloc.start()
        try:
            judge(records, expected)
            assert tracemalloc.get_traced_memory()[1] < 400 * MEBIBYTE
        finally:
            tracemalloc.stop()


def test_a_bomb_is_one_line_at_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "evidence.jsonl"
    place.write_text("\n".join(json.dumps(record) for record in World(change=where("samples", bitmap=BOMB)).train()))
    assert main(["proof", "--file", str(place)]) == 1
    error = capsys.readouterr().err
    assert "bitmap: got " in error
    assert error.count("\n") == 1
    assert len(error) < 600


def test_the_format_of_a_fake_may_be_anything(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = tmp_path / "evidence.jsonl"
    place.write_text("\n".join(json.dumps(record) for record in World(format=FORMAT + 1).train()))
    assert main(["proof", "--file", str(place)]) == 3
    assert capsys.readouterr().err.count("\n") == 1
