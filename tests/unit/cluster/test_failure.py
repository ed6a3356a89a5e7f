"""Which rank failed first, and how, as torchrun's own words say it: copied from jobs on the lab."""

from __future__ import annotations

import pytest

from gangplank.cluster import failure
from gangplank.cluster.failure import LAST_CHARACTERS, LAST_LINES, LastWords

PLACE = "usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py:1002]"
PEER = ("RuntimeError: [./gloo/transport/tcp/pair.cc:532] Read error [198.18.64.9]:31211: "
        "Connection reset by peer. This may indicate a remote rank exited.")


def words(pod: str, rank: int, time: str, code: int, *said: str, local_rank: int = 0) -> LastWords:
    """A pod's log with what its script said and torchrun's report about the process that failed."""
    last, place = LastWords(pod), f"local_rank: {local_rank}"
    for line in (
        *said,
        f"E1122 {time} 1 {PLACE} failed (exitcode: {code}) {place} (pid: 8) of binary: /usr/bin/python3",
        "Traceback (most recent call last):",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-11-22_12:26:55",
        f"  rank      : {rank + 1} (local_rank: {local_rank + 1})",
        f"  rank      : {rank} ({place})",
        f"  exitcode  : {code} (pid: 8)",
        "=" * 60,
    ):
        last.take(line)
    return last


def test_the_report_names_the_rank_and_its_code_and_the_last_lines_are_the_script_s() -> None:
    last = words("fails-worker-0", 1, "12:26:55.100000", 7, "the data set is empty")
    assert (last.who, last.how, last.status) == ("rank 1 (fails-worker-0)", "exit code 7", 7)
    assert list(last.lines) == ["the data set is empty"]


def test_one_of_several_ranks_in_a_pod_is_named() -> None:
    ends = f"W1125 12:26:55.090000 1 {PLACE} Sending process 9 closing signal SIGTERM"
    lost = [f"[rank0]: {line}" for line in ["Traceback (most recent call last):"] + ["  File ..."] * 20 + [PEER]]
    reached = "[./gloo/transport/tcp/context.cc:243] INFO Rank 0 is connected to 3. Expected number of connected peers"
    said = ("the data set is empty", reached, *lost, ends)
    last = words("fails-master-0", 1, "12:26:55.100000", 7, *said, local_rank=1)
    assert (last.who, last.how) == ("rank 1 (fails-master-0)", "exit code 7")
    assert last.lines == ["the data set is empty"], "and nothing of torchrun's, or of the other rank"
    late = words("fails-worker-0", 2, "12:26:55.200000", 1, "RuntimeError: the data set is empty here too")
    assert failure.first([late, last]) is last, "the pod of a rank that lost another may be the first"


def test_a_signal_is_named_and_its_status_is_a_shell_s() -> None:
    last = words("a", 0, "12:26:55.1", -9)
    assert (last.how, last.status) == ("signal 9", 137)


def test_the_first_of_one_second_is_told_from_the_others() -> None:
    late = words("a-master-0", 0, "12:26:55.900000", 1, "late")
    early = words("a-worker-0", 1, "12:26:55.800000", 7, "early")
    assert failure.first([LastWords("alive"), late, early]) is early


@pytest.mark.parametrize("complaint", [PEER, "Connection closed by peer [198.18.65.2]:1", "Broken pipe"])
def test_a_rank_that_lost_another_did_not_fail_first(complaint: str) -> None:
    victim = words("a-master-0", 0, "12:26:55.700000", 1, complaint)
    cause = words("a-worker-0", 1, "12:26:55.800000", 7, "the data set is empty")
    assert failure.first([victim, cause]) is cause
    assert failure.first([victim]) is victim


@pytest.mark.parametrize(("line", "says"), [
    ("OSError: [Errno 30] Read-only file system: '/opt/gangplank/script/a.pt'",
     "/opt/gangplank/script/a.pt is on a read-only file system. Fix: write below /tmp, or to the volume or bucket"),
    ("PermissionError: [Errno 13] Permission denied: '/srv/a.pt'", "/srv/a.pt is not this user's. Fix: write below"),
    ("ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
     "the script does not call init_process_group. Fix: call"),
    ("OSError: [Errno 28] No space left on device: '/data/a.pt'", "/data/a.pt is on a volume that is full. Fix: free"),
    ("ValueError: the data set is empty", ""),
])
def test_a_cause_that_its_words_do_not_name_is_named_with_its_fix(line: str, says: str) -> None:
    assert failure.hint(["Traceback (most recent call last):", line, "a later line"]).startswith(says)
    assert bool(failure.hint([line])) == bool(says)


def test_what_torchrun_did_not_report_has_no_first() -> None:
    silent = LastWords("a")
    silent.take("failed (exitcode: 7), said the script itself")
    assert failure.first([silent]) is None
    assert silent.who == "a"


def test_a_progress_bar_before_the_report_hides_nothing() -> None:
    log, bar = LastWords("digits-0"), "\r 45%|####5     | 45/100 [00:01<00:01, 40.11it/s]"
    log.take(f"{bar}E1122 12:26:55.1 1 {PLACE} failed (exitcode: -9) local_rank: 0 (pid: 8) of binary: python3")
    assert (log.how, log.status, len(log.lines)) == ("signal 9", 137, 1)


def test_only_the_end_of_a_log_is_kept() -> None:
    last = LastWords("a")
    for number in range(100):
        last.take(f"{number} {'x' * 1000}")
    assert len(last.lines) == LAST_LINES
    assert {len(line) for line in last.lines} == {LAST_CHARACTERS}
