"""What the logs of ranks say of one another."""

from __future__ import annotations

from gangplank.cluster.failure import LastWords
from gangplank.cluster.ranks import idle, meeting

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
