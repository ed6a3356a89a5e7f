"""Whatever a script prints, who reads the ranks' words ends with no error and keeps little of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangplank.cluster import pace
from gangplank.cluster.failure import LAST_CHARACTERS, LastWords
from gangplank.cluster.stuck import CONTINUES, SAID, Stuck
from tests.support.sweeps import examples
from tests.unit.cluster.test_progress import HOSTILE, LINES, MANY

NUMBERS = st.sampled_from(["0", "1", "7", "256", "999", "-9", MANY, "\u0661", "\u00b2", "", "x"])
SHAPES = (
    "E1122 12:26:55.1 1 a.py:1] failed (exitcode: {}) local_rank: {} (pid: {}) of binary: a",
    "  rank      : {} (local_rank: {})",
    "gangplank: rank {}: no step and no exchange for {} s; it is at a.py:{}",
    "gangplank: rank {}: it continues",
    "gangplank: rank {}: {} steps in {}.0 s: data {}.1 s, compute 0.1 s, exchange {}.1 s",
    "gangplank: rank {}: {} steps in {}.0 s: data {}.1 s, GPU and exchange {}.1 s",
)
PRINTED = LINES | st.tuples(st.sampled_from(SHAPES), st.lists(NUMBERS, min_size=5, max_size=5)).map(
    lambda both: both[0].format(*both[1])
)


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_d3_a_line_of_another_program_is_no_word_of_a_rank(line: str) -> None:
    words, stuck = LastWords("a"), Stuck(2)
    words.take(line)
    assert (words.time, words.code, len(words.lines)) == ("", 0, 1)
    assert not stuck.take(line, 0.0)
    assert (pace.is_pace(line), pace.window(line)) == (False, None)


@settings(max_examples=examples(300))
@given(st.lists(PRINTED, max_size=12))
def test_d3_whatever_is_printed_is_read_without_an_error(lines: list[str]) -> None:
    words, stuck = LastWords("a"), Stuck(2)
    for line in lines:
        words.take(line)
        stuck.take(line, 0.0)
    assert 0 < words.status < 256 or not words.time, "a failure never exits with 0"
    assert words.who
    assert words.how
    assert stuck.places.keys() <= {0, 1}
    stuck.message(60.0)
    pace.behind({"a": lines, "b": lines}, 2)


def test_a_place_is_kept_only_of_the_ranks_that_a_job_has_and_only_its_beginning() -> None:
    stuck, line = Stuck(2), "gangplank: rank {}: no step and no exchange for 120 s; it is at {}"
    taken = [stuck.take(line.format(rank, 10_000 * "x"), 0.0) for rank in range(1000)]
    assert taken == [True, True, *(998 * [False])]
    assert list(stuck.places) == [0, 1]
    assert {len(place) for place in stuck.places.values()} == {LAST_CHARACTERS}


def test_the_patterns_take_the_largest_job() -> None:
    assert SAID.match("gangplank: rank 100000: no step and no exchange for 9999999 s; it is at a.py:4")
    assert CONTINUES.match("gangplank: rank 100000: it continues")
