"""Where ranks stand still, in one message."""

from __future__ import annotations

from pathlib import Path

from gangplank.cluster.stuck import CONTINUES, SAID, Stuck

LINE = "gangplank: rank {}: no step and no exchange for {} s; it is at {}"
HERE = "a.py:4, in train: dist.barrier()"


def test_ranks_at_one_place_are_named_together_once_all_have_spoken() -> None:
    ranks = Stuck(3)
    assert ranks.take(LINE.format(2, 120, HERE), 5.0)
    assert ranks.take(LINE.format(0, 121, HERE), 6.0)
    assert ranks.message(7.0) == ""
    assert ranks.take(LINE.format(1, 120, "a.py:9, in load: time.sleep(1)"), 8.0)
    text = ranks.message(8.0)
    assert text.startswith(f"no step and no exchange for 121 s: ranks 0, 2 are at {HERE}; rank 1 is at a.py:9, in load")
    assert ranks.message(9.0) == ""
    assert ranks.take(LINE.format(1, 240, HERE), 130.0), "it says so again after twice as long"
    assert ranks.message(131.0) == ""


def test_a_rank_that_says_nothing_is_named_after_a_while() -> None:
    ranks = Stuck(3)
    ranks.take(LINE.format(0, 120, HERE), 5.0)
    assert ranks.message(14.9) == ""
    assert f"rank 0 is at {HERE}; ranks 1, 2 said nothing. Fix: " in ranks.message(15.0)


def test_a_rank_that_goes_on_is_no_longer_named() -> None:
    ranks = Stuck(2)
    ranks.take(LINE.format(0, 120, HERE), 5.0)
    assert ranks.take("gangplank: rank 0: it continues", 6.0)
    assert ranks.message(60.0) == ""


def test_a_script_s_own_lines_are_not_taken() -> None:
    assert not Stuck(3).take("rank 0: no step and no exchange for 120 s", 0.0)


def test_the_line_is_that_of_the_observer() -> None:
    source = (Path(__file__).parents[3] / "trainer/observe.py").read_text()
    start, middle = "gangplank: rank {rank}: no step and no exchange for ", " s; it is at {place()}"
    assert start + "{idle_s:.0f}" + middle in source
    assert SAID.match((start + "9" + middle).replace("{rank}", "0"))
    assert "gangplank: rank {os.environ.get('RANK', '?')}: it continues" in source
    assert CONTINUES.match("gangplank: rank 0: it continues")
