"""Which rank is behind the others, by what ranks print of their steps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gangplank.cluster.pace import PACE, behind, is_pace, window

Lines = list[str]


def line(rank: int, data: float, compute: float, exchange: float, steps: int = 100) -> str:
    total = data + compute + exchange
    shares = f"data {data:.3f} s, compute {compute:.3f} s, exchange {exchange:.3f} s"
    return f"gangplank: rank {rank}: {steps} steps in {total:.3f} s: {shares}"


def epoch(rank: int, data: float, compute: float, allreduce: float, steps: int = 100, update: float = 0.1) -> str:
    seconds = {"data": data, "compute": compute, "update": update, "allreduce": allreduce, "evaluate": 3.0}
    fields = {"rank": rank, "epoch": 1, "epochs": 9, "steps": steps, "samples": 8, "loss": 1.0, "accuracy": 0.5}
    return json.dumps({"event": "epoch", **fields, "test_loss": 1.0, "seconds": seconds}, separators=(",", ":"))


def together(exchange: float = 0.05, late: str = "") -> list[dict[str, float]]:
    """Three ranks that take 100 steps together, from first principles: the seconds of each, by kind.

    After an exchange all continue together: each updates its weights, loads data and computes. The exchange begins when
    the last one has done so. Each kind takes 0.05 s, but one of them, `late`, takes rank 1 0.35 s.
    """
    own = [dict.fromkeys(("update", "data", "compute"), 0.05) for _ in range(3)]
    if late:
        own[1][late] = 0.35
    arrives = max(sum(one.values()) for one in own)
    ranks = [{**one, "exchange": arrives + exchange - sum(one.values())} for one in own]
    return [{kind: 100 * seconds for kind, seconds in one.items()} for one in ranks]


def printed(by: str, rank: int, spent: dict[str, float]) -> str:
    """What a rank prints of such steps: the observer counts an update as computing, the trainer waits while it does."""
    if by == "observer":
        return line(rank, spent["data"], spent["compute"] + spent["update"], spent["exchange"])
    compute = spent["compute"] + spent["exchange"]
    return epoch(rank, spent["data"], compute, spent["exchange"], update=spent["update"])


@pytest.mark.parametrize("by", ["observer", "trainer"])
@pytest.mark.parametrize(("late", "kind"), [("data", "data"), ("compute", "compute"), ("update", "compute")])
def test_who_takes_longer_by_itself_is_named_and_not_who_waits_for_it(by: str, late: str, kind: str) -> None:
    ranks = together(late=late)
    assert ranks[0]["exchange"] > 6 * ranks[1]["exchange"], "the others wait"
    cause = behind(logs(*(2 * [printed(by, rank, spent)] for rank, spent in enumerate(ranks))), 3)
    assert cause is not None
    shares = "data takes it 0.35 s, and them 0.05 s" if kind == "data" else "compute takes it 0.40 s, and them 0.10 s"
    assert cause.text == f"rank 1 (a-1) is behind the others by 0.30 s a step: {shares}"
    assert [text.rpartition(" exchange ")[2] for text in cause.evidence] == ["0.35 s", "0.05 s", "0.35 s"]


@pytest.mark.parametrize("by", ["observer", "trainer"])
@pytest.mark.parametrize("exchange", [0.0, 0.05, 3.0])
def test_a_slow_exchange_is_that_of_all_ranks_and_names_none(by: str, exchange: float) -> None:
    ranks = together(exchange)
    assert len({round(spent["exchange"], 6) for spent in ranks}) == 1
    assert behind(logs(*(2 * [printed(by, rank, spent)] for rank, spent in enumerate(ranks))), 3) is None


def test_the_trainer_s_mean_exchange_on_a_gpu_blames_nobody_for_computing() -> None:
    """It includes that of the first steps, in which one rank waits for another that still begins."""
    first = 2 * [epoch(0, 0.1, 8.0, 30.0, update=12.0)]
    other = 2 * [epoch(1, 0.1, 8.0, 0.5, update=12.0)]
    assert behind(logs(first, other), 2) is None
    cause = behind(logs(first, 2 * [epoch(1, 12.1, 4.0, 0.5, update=4.0)]), 2)
    assert cause is not None
    assert "data takes it 0.12 s, and them 0.00 s" in cause.text
    assert cause.evidence[1] == "rank 1, a step: data 0.12 s, GPU and exchange 0.08 s"


def logs(*ranks: Lines) -> dict[str, Lines]:
    return {f"a-{rank}": lines for rank, lines in enumerate(ranks)}


def usual(rank: int, exchange: float = 28.0) -> Lines:
    return ["step 3", line(rank, 0.5, 1.5, exchange), "step 4", line(rank, 0.5, 1.5, exchange)]


@pytest.mark.parametrize(("kind", "data", "compute"), [("data", 28.0, 1.5), ("compute", 0.5, 28.0)])
def test_a_rank_that_is_behind_is_named_with_what_takes_it_longer(kind: str, data: float, compute: float) -> None:
    cause = behind(logs(usual(0), 2 * [line(1, data, compute, 0.5)], usual(2)), 3)
    assert cause is not None
    assert cause.code == "slow"
    assert cause.text.startswith("rank 1 (a-1) is behind the others by 0.2")
    assert f"{kind} takes it 0.28 s, and them 0.0" in cause.text
    assert cause.evidence[0] == "rank 0, a step: data 0.01 s, compute 0.01 s, exchange 0.28 s"


def test_of_the_trainer_an_exchange_is_no_computing() -> None:
    """Its `compute` ends when all gradients are averaged: that of a rank which waits is as long as that of the slow."""
    waits, slow = 2 * [epoch(0, 0.1, 20.0, 18.0)], 2 * [epoch(1, 0.1, 20.0, 0.1)]
    cause = behind(logs(waits, slow), 2)
    assert cause is not None
    assert cause.text == (
        "rank 1 (a-1) is behind the others by 0.18 s a step: compute takes it 0.20 s, and them 0.02 s"
    )


def test_on_a_gpu_only_loading_is_compared() -> None:
    text = "gangplank: rank {}: 100 steps in 30.000 s: data {} s, GPU and exchange {} s"
    cause = behind(logs(2 * [text.format(0, "1.000", "29.000")], 2 * [text.format(1, "20.000", "10.000")]), 2)
    assert cause is not None
    assert "data takes it 0.20 s, and them 0.01 s" in cause.text
    assert cause.evidence[0] == "rank 0, a step: data 0.01 s, GPU and exchange 0.29 s"
    assert behind(logs(2 * [text.format(0, "0.100", "29.900")], 2 * [text.format(1, "0.000", "30.000")]), 2) is None


def test_of_a_job_that_does_not_say_how_many_ranks_it_has_all_that_are_seen_are_compared() -> None:
    slow = 2 * [line(2, 28, 1.5, 0.5)]
    cause = behind(logs(usual(0), usual(1), slow, usual(3)), None)
    assert cause is not None
    assert cause.text.startswith("rank 2 (a-2) is behind the others by ")
    assert behind(logs(usual(0), usual(1), slow, []), None) is not None
    assert behind(logs([], usual(1), slow, usual(3)), None) is None, "rank 0 has not said enough"
    assert behind({}, None) is None


def test_several_that_are_behind_are_named_together() -> None:
    slow = [2 * [line(rank, 20.0 + rank, 1.5, 0.5)] for rank in (0, 1)]
    cause = behind(logs(*slow, usual(2), usual(3), usual(4)), 5)
    assert cause is not None
    assert cause.text.startswith("ranks 0, 1 are behind the others by up to 0.2")


@pytest.mark.parametrize(
    "ranks",
    [
        (usual(0), usual(1), usual(2)),
        (usual(0), [line(1, 28, 1.5, 0.5), line(1, 0.5, 1.5, 28)], usual(2)),  # it is not behind any longer
        (usual(0), [line(1, 0.5, 1.5, 28), line(1, 28, 1.5, 0.5)], usual(2)),  # or only just
        (usual(0), [line(1, 28, 1.5, 0.5), line(1, 1.5, 28, 0.5)], usual(2)),  # once in this, once in that
        (usual(0), [line(1, 28, 1.5, 0.5)], usual(2)),  # once
        (usual(0), [], usual(2)),  # nobody knows
        (usual(0), 2 * [line(1, 7, 1.5, 21.5)], usual(2)),  # by less than a quarter of a step
        (2 * [line(0, 0.5, 10, 0.1)], 2 * [line(1, 0.5, 10, 0.1)], 2 * [line(2, 0.5, 5, 5)]),  # one is ahead
    ],
    ids=["equal", "was", "just now", "two reasons", "one window", "silent", "a little", "one ahead"],
)
def test_nobody_else_is_blamed(ranks: tuple[Lines, ...]) -> None:
    assert behind(logs(*ranks), 3) is None


def test_less_than_ten_seconds_are_chance_and_more_short_windows_are_not() -> None:
    short = [[line(0, 0.1, 0.3, 3.6)], [line(1, 3.6, 0.3, 0.1)]]
    assert behind(logs(*(2 * own for own in short)), 2) is None
    assert behind(logs(*(6 * own for own in short)), 2) is not None


def test_a_world_of_one_has_nobody_to_compare() -> None:
    assert behind(logs(2 * [line(0, 28, 1, 1)]), 1) is None


def test_other_lines_are_not_taken() -> None:
    assert window("gangplank: rank 1: 0 steps in 0.000 s: data 0.000 s, compute 0.000 s, exchange 0.000 s") is None
    assert window(epoch(1, 1, 1, 1, steps=0)) is None
    assert window("rank 1: 7 steps in 1.000 s: data 1.000 s") is None
    assert not is_pace("epoch 1")
    line = "gangplank: rank 1: 7 steps in 1.000 s: data 0.100 s, compute 0.500 s, exchange 0.400 s"
    assert is_pace(f"\rstep 10/100{line}"), "a progress bar does not end its line"


def test_the_line_is_that_of_the_observer() -> None:
    source = (Path(__file__).parents[3] / "trainer/observe.py").read_text()
    printed = re.search(r'emit\(f"(gangplank: rank .* steps in .*)\\n"\)', source)
    assert printed
    for shares in re.findall(r'f"((?:GPU|compute) .*?exchange .*? s)"', source):
        text = printed[1].replace("{shares}", shares)
        assert PACE.match(re.sub(r"\{[^}]*\.3f\}", "1.000", re.sub(r"\{[\w.]+\}", "7", text))), text
