"""What a job's log says of it: the trainer's own lines and no others, whatever a script prints beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangplank.cluster.progress import Progress, events, table
from gangplank.proof.log_lines import EVENTS, OTHERS
from gangplank.proof.records import record_hash
from gangplank.proof.report.page import page
from gangplank.proof.verdict import prove, read_records
from tests.support.sweeps import examples
from tests.unit.proof.test_claims import EXPECTED, World

Json = dict[str, Any]
START: Json = {
    "event": "start", "rank": 1, "world_size": 3, "host": "h", "pod": "p", "node": "n", "job_uid": None, "pod_uid": "u",
}  # fmt: skip
STEP: Json = {
    "event": "step", "rank": 0, "epoch": 2, "step": 5, "steps_total": 9, "loss": 0.5, "mean_loss": 0.6,
    "gradient_norm": 1.5,
}  # fmt: skip
EPOCH: Json = {
    "event": "epoch", "rank": 0, "epoch": 2, "epochs": 6, "steps": 16, "samples": 512, "loss": 0.25, "accuracy": 0.5,
    "test_loss": 0.3, "seconds": {"data": 0.1},
}  # fmt: skip
ROW: Json = {
    "rank": 0, "pod": "p", "node": "n", "world_size": 3, "steps": 9, "samples": 288, "loss": 0.25, "accuracy": 0.5,
}  # fmt: skip
RESULT: Json = {
    "event": "result", "rank": 0, "world_size": 3, "accuracy": 0.5, "loss": 0.25, "seconds": 9.5, "ranks": [ROW],
}  # fmt: skip
WORDS = {"checkpoint": "c", "reason": "no space left"}  # the other fields are numbers
REST: list[Json] = [{"event": kind, **{key: WORDS.get(key, 3) for key in shape}} for kind, shape in OTHERS.items()]
KNOWN = (START, STEP, EPOCH, RESULT, *REST)
SOUND = World().train()
OURS = [json.dumps({"event": "evidence", **record}, separators=(",", ":")) for record in SOUND]
MANY = 5000 * "9"  # digits: int() refuses more than 4300
# What libraries and scripts print: each of these once ended a playbook, or made a sound run NOT PROVEN.
HOSTILE = (
    '{"event": "step", "loss": 1.0}',
    '{"event":"step","loss":1.0}',
    '{"event":"start","rank":0}',
    '{"event":"start","rank":{},"world_size":[]}',
    '{"event":"step","rank":0,"epoch":1,"step":1,"steps_total":2,"loss":"low"}',
    '{"event":"epoch","rank":0}',
    '{"event":"result","ranks":7}',
    '{"event":"result","rank":0,"ranks":[{}]}',
    '{"event":{}}',
    '{"event":null}',
    '{"event":"evidence"}',
    '{"event":"evidence","kind":"begin","rank":0}',
    '{"event":"evidence","kind":"begin","rank":true,"seq":"x","prev":"","time":1,"hash":"0","resumed":{}}',
    '{"kind": "metrics"}',
    '{"kind":"heads","rank":0,"epoch":null}',
    '{"kind":"metrics","rank":0,"seq":1,"prev":"","time":1.0,"hash":"d41d8cd98f00b204e9800998ecf8427e"}',
    '{"kind":"metrics","rank":0,"seq":"x","prev":"","time":1.0,"hash":"' + 64 * "0" + '"}',
    '{"event":"step","rank":0,"epoch":1,"step":' + 5000 * "9" + "}",
    '{"event":"step","rank":0,"epoch":1,"step":' + 400 * "9" + ',"steps_total":1,"loss":' + 400 * "9" + "}",
    '{"event":"step","rank":0,"epoch":1,"step":1,"steps_total":2,"loss":NaN,"mean_loss":NaN,"gradient_norm":NaN}',
    '{"event":"step","loss":' + 100_000 * "[",
    '{"event":"step","loss":' + 100_000 * "[" + 100_000 * "]" + "}",
    '{"hash":' + 100_000 * '{"hash":',
    '{"kind":' + 100_000 * '{"kind":',
    '{"event":"evidence","hash":' + 900 * "[" + 900 * "]" + "}",
    100_000 * "[" + 100_000 * "]",
    '["event"]',
    '"event"',
    "{",
    '{"event"',
    "\x1b]0;title\x07\x1b[2J",
    "a\u2028b\x0bc\x85d",
    "\ufffd\ufffd{",
    "\r 10%|#",
    f"E1122 12:26:55.1 1 a.py:1] failed (exitcode: {MANY}) local_rank: 0 (pid: 8) of binary: a",
    f"gangplank: rank {MANY}: no step and no exchange for 120 s; it is at a.py:4",
    f"gangplank: rank 0: no step and no exchange for {MANY} s; it is at a.py:4",
    f"gangplank: rank {MANY}: it continues",
    f"gangplank: rank {MANY}: 9 steps in 1.0 s: data 0.1 s, compute 0.1 s, exchange 0.1 s",
    f"gangplank: rank 0: {MANY} steps in 1.0 s: data 0.1 s, compute 0.1 s, exchange 0.1 s",
    f"gangplank: rank 0: 9 steps in {MANY}.0 s: data {MANY}.0 s, compute 0.1 s, exchange 0.1 s",
)


def line(fields: Json) -> str:
    """As the trainer's log.py prints it."""
    return json.dumps(fields, separators=(",", ":"))


def shown(lines: list[str]) -> Progress:
    """What the lines add up to."""
    progress = Progress()
    for event in events("\n".join(lines)):
        progress.take(event)
    return progress


def test_every_event_of_the_trainer_is_known() -> None:
    """The number of one that is not would seem to be a line that its node has lost."""
    programs = sorted((Path(__file__).resolve().parents[3] / "trainer").glob("*.py"))
    said = {kind for program in programs for kind in re.findall(r"\bsay\(\s*\"(\w+)\"", program.read_text())}
    assert said == {*EVENTS, *OTHERS}


def test_the_trainers_lines_add_up() -> None:
    progress = shown([line(START), line({**START, "rank": 0}), line(STEP)])
    assert progress.text() == "2/3 ranks joined, epoch 2, step 5/9, loss 0.5000"
    progress = shown([line(START), line(STEP), line({**STEP, "rank": 2, "step": 8}), line(EPOCH), line(RESULT)])
    assert progress.text() == "1/3 ranks joined, epoch 2/6, step 5/9, loss 0.2500, accuracy 0.500"
    assert progress.rows == [ROW]
    assert table(progress.rows).splitlines()[1].split() == ["0", "p", "n", "3", "9", "288", "0.2500", "0.500"]


@pytest.mark.parametrize("foreign", HOSTILE, ids=range(len(HOSTILE)))
def test_d3_a_line_of_another_program_changes_nothing(foreign: str) -> None:
    ours = [line(START), line(STEP), line(EPOCH), line(RESULT)]
    assert shown([foreign]) == Progress()
    assert shown([part for one in ours for part in (foreign, one, foreign)]) == shown(ours)
    assert read_records(foreign) == []
    mixed = read_records("\n".join(part for one in OURS for part in (foreign, one, foreign)))
    assert mixed == SOUND
    assert prove(mixed, EXPECTED) == prove(SOUND, EXPECTED)


def test_words_without_an_end_of_line_hide_no_line_of_ours() -> None:
    """`print(".", end="")` before the trainer prints: both are one line of the log."""
    assert read_records("\n".join(f"\r 10%|#{one}" for one in OURS)) == SOUND
    assert shown([f"...{line(START)}", f"\x1b[0m{line(STEP)}"]).text() == shown([line(START), line(STEP)]).text()


@pytest.mark.parametrize("shape", KNOWN, ids=lambda shape: str(shape["event"]))
def test_d3_every_field_of_a_line_is_looked_at(shape: Json) -> None:
    assert events(line(shape)) == [shape]
    for key in shape.keys() - {"event"}:
        assert events(line({name: value for name, value in shape.items() if name != key})) == []
        strange: tuple[Any, ...] = ([], {"a": "b"}, 10**400, float("nan"), True, "\x1b[2J")
        for wrong in strange[:-1] if key == "reason" else strange:
            assert events(line({**shape, key: wrong})) == [], (key, wrong)
        if isinstance(shape[key], int):
            assert events(line({**shape, key: -1})) == [], key


def test_d3_a_reason_that_a_script_has_printed_is_shown_without_control_characters_and_not_at_any_length() -> None:
    reason = "\x1b[2Jxxx" + 10**6 * "\x1b"
    for kind in ("checkpoint_failed", "upload_failed"):
        event = {"event": kind, "rank": 0, "step": 3, "reason": reason}
        progress = shown([line(event)])
        text = progress.unsaved or progress.refused
        assert r"\x1b[2Jxxx" in text
        assert text.isprintable()
        assert len(text) < 1000


@pytest.mark.parametrize("record", [SOUND[0], SOUND[-1]], ids=["begin", "heads"])
def test_our_own_record_that_was_changed_is_altered_or_missing_and_never_passed_over(record: Json) -> None:
    changes: tuple[Any, ...] = (None, "x", [], {}, 1, 99, "0" * 64, float("inf"), True)
    for key in record:
        for changed in changes:
            if changed == record[key] and type(changed) is type(record[key]):
                continue
            lines = [line({**one, key: changed} if one is record else one) for one in SOUND]
            verdict = prove(read_records("\n".join(lines)), EXPECTED)
            assert "records are whole" in {claim.name for claim in verdict.failed} or not verdict.passed, (key, changed)


def test_a_changed_number_in_a_log_is_named_as_altered() -> None:
    lines = [*OURS[:3], OURS[3].replace('"time":1000.0', '"time":1001.0'), *OURS[4:]]
    verdict = prove(read_records("\n".join(lines)), EXPECTED)
    assert f"rank {SOUND[3]['rank']} record {SOUND[3]['seq']} ({SOUND[3]['kind']}) was altered" in verdict.text()


STRANGE = ("\ud800\x1b[2J", 10**400, -1, 2**53, 1e18)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(STRANGE),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KEYS = {key for record in SOUND for key in record} - {"format"}  # an unknown format is refused, not judged
NAMES = sorted({*(name for shape in KNOWN for name in shape), *ROW, *KEYS, "resumed"})
KINDS = (*EVENTS, *OTHERS, "evidence", "begin", "heads", "samples")
OBJECTS = st.dictionaries(st.sampled_from(NAMES) | st.text(), st.sampled_from(KINDS) | JSON_VALUES)
LINES = st.one_of(
    st.text(),
    st.binary().map(lambda raw: raw.decode("utf-8", "replace")),
    JSON_VALUES.map(json.dumps),
    OBJECTS.map(line),
    OBJECTS.map(json.dumps),
    st.tuples(st.sampled_from(KNOWN), st.sampled_from(NAMES), JSON_VALUES).map(
        lambda three: line({**three[0], three[1]: three[2]})
    ),
    st.tuples(st.sampled_from(OURS), st.integers(0, 400)).map(lambda two: two[0][: -1 - two[1]]),  # a half of ours
)


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.lists(LINES, max_size=8), st.randoms(use_true_random=False))
def test_d3_whatever_is_printed_the_verdict_of_sound_evidence_stays(foreign: list[str], chance: Any) -> None:
    lines = [*OURS]
    for one in foreign:
        lines.insert(chance.randrange(len(lines) + 1), one)
    assert prove(read_records("\n".join(lines)), EXPECTED) == prove(SOUND, EXPECTED)
    progress = shown(lines)
    assert progress.text().isprintable()
    table(progress.rows).encode()


@settings(max_examples=examples(100))
@given(st.sampled_from(range(len(SOUND))), st.sampled_from(NAMES), JSON_VALUES, st.booleans())
def test_e5_a_lie_with_the_right_hash_is_judged_and_shown(at: int, key: str, value: Any, new: bool) -> None:
    """Evidence is also read from files that anybody can write; its world and data stay as small as they were."""
    lie = {**SOUND[at], key: value if key not in {"world_size", "dataset_samples", "bitmap"} else str(value)}
    lie["hash"] = record_hash(lie)
    records = read_records("\n".join(map(line, [*SOUND[:at], *([SOUND[at]] if new else []), lie, *SOUND[at + 1 :]])))
    prove(records, EXPECTED).text().encode()
    page("digits", records, EXPECTED).encode()


@pytest.mark.parametrize("value", [*STRANGE, None, [], {}, True, [[1, 2]], {"a": [[]]}])
@pytest.mark.parametrize(("kind", "key"), [
    ("begin", "time"), ("begin", "node"), ("begin", "pod_uid"), ("epoch", "epoch"), ("epoch", "accuracy"),
    ("epoch", "losses"), ("epoch", "spent"), ("end", "seconds"), ("heads", "heads"), ("samples", "count"),
])  # fmt: skip
def test_e5_ranks_that_lie_all_the_way_are_judged_without_an_error(kind: str, key: str, value: object) -> None:
    world = World(change=lambda record: record.update({key: value}) if record["kind"] == kind else None)
    records = read_records("\n".join(map(json.dumps, world.train())))
    assert prove(records, EXPECTED).text().replace("\n", "").isprintable()
    page("digits", records, EXPECTED).encode()


@pytest.mark.parametrize("resumed", [{}, [], 1, {"heads": []}, {"heads": {"x": 1}}, {"heads": {"1": {}}}])
def test_e5_a_resume_without_its_chains_is_a_gap(resumed: object) -> None:
    world = World(change=lambda record: record.update(resumed=resumed) if record["kind"] == "begin" else None)
    verdict = prove(world.train(), EXPECTED)
    assert "rank 0 record 0 (begin) does not say which chains it resumed" in verdict.text()


@pytest.mark.parametrize("seq", ["x", None, 1.5, True, 10**400])
def test_e5_a_record_without_a_number_is_altered(seq: object) -> None:
    world = World(change=lambda record: record.update(seq=seq) if record["kind"] == "begin" else None)
    assert "was altered" in prove(world.train(), EXPECTED).text()


def test_e5_records_nested_as_deeply_as_json_can_be_read_are_altered() -> None:
    start = line({**SOUND[0], "event": "evidence", "hash": 64 * "0"})[:-1]
    deep = [f'{start},"deep":{depth * "["}{depth * "]"}}}' for depth in range(600, 1000)]
    records = read_records("\n".join(deep))
    assert records

    def further_down(calls: int) -> str:
        return further_down(calls - 1) if calls else prove(records, EXPECTED).text()

    assert "was altered" in further_down(100)
