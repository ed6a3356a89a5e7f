"""What the logs of ranks say of one another."""

from __future__ import annotations

import pytest

from gangplank.cluster.failure import LastWords
from gangplank.cluster.ranks import idle, meeting
from gangplank.cluster.stuck import Stuck

ALONE = "torch.distributed.DistStoreError: Timed out after 121 seconds waiting for clients. 1/3 clients joined."
UNREACHED = "[c10d] The client socket has timed out after 120000ms while trying to connect to (digits-master-0, 29500)."
HERE = "gangplank: rank {}: no step and no exchange for 120 s; it is at a.py:4, in train: dist.barrier()"


def words(pod: str, *lines: str) -> LastWords:
    log = LastWords(pod)
    for line in lines:
        log.take(line)
    return log


def test_the_pods_that_did_not_join_are_named_with_their_last_lines() -> None:
    cause = meeting([words("a-0", "starting", ALONE), words("a-1", "downloading"), words("a-2")])
    assert cause is not None
    assert cause.text == "a-1, a-2 did not join the others within 121 s"
    assert cause.evidence == ("1 of 3 had joined", "the last line of a-1: downloading", "a-2 has printed nothing")


def test_their_number_is_said_where_their_pods_are_gone() -> None:
    cause = meeting([words("a-0", ALONE)])
    assert cause is not None
    assert cause.text == "2 of its 3 pods did not join the others within 121 s"


def test_a_first_rank_that_nobody_reaches_is_named() -> None:
    cause = meeting([words("a-0", "training"), words("a-1", UNREACHED), words("a-2", UNREACHED)])
    assert cause is not None
    assert cause.text == "a-1, a-2 could not reach the first rank at digits-master-0:29500"


def test_a_script_that_fails_by_itself_is_no_matter_of_the_others() -> None:
    assert meeting([words("a-0", "ValueError: 7"), words("a-1", "training")]) is None


def test_ranks_stand_still_only_until_they_go_on() -> None:
    logs = {"a-0": ["epoch 1", HERE.format(0)], "a-1": [HERE.format(1), "gangplank: rank 1: it continues"]}
    cause = idle(logs, 2)
    assert cause is not None
    place = "rank 0 is at a.py:4, in train: dist.barrier()"
    assert cause.text == f"there was no step and no exchange for 120 s: {place}; rank 1 said nothing"
    assert idle({"a-0": [*logs["a-0"], "gangplank: rank 0: it continues"]}, 2) is None


@pytest.mark.parametrize("line", [
    "gangplank: rank 0: 60 steps in 30.0 s: data 6.0 s, compute 12.0 s, exchange 12.0 s",
    '{"event":"start","rank":0,"world_size":2,"host":"a","pod":"a-0","node":"n","job_uid":null,"pod_uid":null}',
])
def test_ranks_that_torchrun_has_started_again_in_their_container_do_not_stand_still(line: str) -> None:
    """The process that stood still was killed, and never said that it continues."""
    assert idle({"a-0": [HERE.format(0)]}, 1) is not None
    assert idle({"a-0": [HERE.format(0), line]}, 1) is None
    none = "gangplank: rank 0: 0 steps in 30.0 s: data 6.0 s, compute 12.0 s, exchange 12.0 s"
    assert idle({"a-0": [HERE.format(0), none]}, 1) is not None


FRAME = "gangplank: rank {}: thread {}: {}"


def stack(rank: int, *places: str) -> list[str]:
    """What a rank prints that stands still: its stack, innermost first, and what another thread does."""
    library = "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py:2810, in all_reduce: work.wait()"
    frames = [library, *places, "<frozen runpy>:88, in _run_code"]
    return [
        f"gangplank: rank {rank}: no step and no exchange for 120 s; it is at {places[0]}",
        *(FRAME.format(rank, "MainThread", one) for one in frames),
        FRAME.format(rank, "MainThread", "2 frames more"),
        FRAME.format(rank, "Thread-1 (load)", "data.py:7, in load: queue.get()"),
    ]


TRAIN = ("a.py:9, in exchange: dist.all_reduce(x)", "a.py:20, in train: exchange(x)", "a.py:41, in <module>: train()")
LOAD = ("lib/data.py:3, in read: os.read(3, 9)", "a.py:18, in train: read()", "a.py:41, in <module>: train()")


def test_from_where_in_the_script_ranks_came_to_where_they_stand_still() -> None:
    cause = idle({"a-0": stack(0, *TRAIN), "a-1": stack(1, *LOAD), "a-2": stack(2, *TRAIN)}, 3)
    assert cause is not None
    assert f"ranks 0, 2 are at {TRAIN[0]}; rank 1 is at {LOAD[0]}" in cause.text
    assert cause.evidence == (
        "ranks 0, 2: called from a.py:20, in train: exchange(x); from a.py:41, in <module>: train()",
        "rank 1: called from a.py:18, in train: read(); from a.py:41, in <module>: train()",
    )


def test_of_several_stacks_the_newest_counts_and_of_a_deep_one_its_innermost_frames() -> None:
    deep = [f"a.py:{line}, in walk: walk(tree)" for line in range(50)]
    cause = idle({"a-0": [*stack(0, *TRAIN), *stack(0, *deep)]}, 1)
    assert cause is not None
    assert cause.evidence == ("rank 0: called from " + "; from ".join(deep[1:4]),)


def test_a_stack_alone_and_that_of_a_rank_that_nobody_has_say_nothing() -> None:
    assert idle({"a-0": stack(0, *TRAIN)[1:]}, 1) is None
    assert idle({"a-0": stack(7, *TRAIN)}, 1) is None


def test_a_stack_does_not_take_the_place_of_a_rank_s_last_words() -> None:
    assert words("a-0", "loading", *stack(0, *TRAIN)[1:]).lines[-1] == "loading"


def test_a_stack_is_no_line_of_the_script_that_run_would_show() -> None:
    ranks = Stuck(2)
    assert all(ranks.take(line, 0.0) for line in stack(1, *TRAIN))
    assert not any(ranks.take(line, 0.0) for line in stack(2, *TRAIN))
