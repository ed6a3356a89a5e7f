"""Wrong or missing wiring is one clear line and exit status 2 within seconds; never a run that only looks right."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.trainer.harness import Rank, Root


SOON_S = 50.0  # less than the trainer's own time-outs, which the flags shorten


def refused(rank: Rank) -> str:
    """The one line that a refused rank prints."""
    assert rank.code == 2, rank.text
    lines = [line for line in rank.text.splitlines() if line.startswith("train.py: ")]
    assert len(lines) == 1, rank.text
    assert "Traceback" not in rank.text
    return lines[0]


@pytest.mark.parametrize(("env", "reason"), [
    ({"TORCHELASTIC_RUN_ID": ""},
     "Fix: use `torchrun --nnodes=$WORLD_SIZE --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"),
    ({"TORCHELASTIC_RUN_ID": "", "RANK": ""}, "Fix: use `torchrun --standalone --nproc-per-node=1 train.py"),
    ({"TORCHELASTIC_RUN_ID": "", "RANK": "", "PET_MASTER_ADDR": "m"}, "PET_MASTER_ADDR"),
    ({"MASTER_ADDR": ""}, "MASTER_ADDR not set"),
    ({"RANK": "", "WORLD_SIZE": ""}, "RANK, WORLD_SIZE not set"),
    ({"RANK": "one"}, "RANK: got 'one', expected an integer"),
    ({"RANK": "-1"}, "RANK: got '-1', expected an integer"),
    ({"WORLD_SIZE": "2.0"}, "WORLD_SIZE: got '2.0'"),
    ({"MASTER_PORT": "0"}, "MASTER_PORT: got '0', expected an integer from 1 to 65535"),
    ({"GANGPLANK_STUCK_S": "2m"}, "GANGPLANK_STUCK_S: got '2m', expected seconds"),
    ({"RANK": "3", "WORLD_SIZE": "3"}, "RANK 3 does not exist in a world of 3 (0 to 2)"),
])
def test_refuses_wrong_wiring(root: Root, env: dict[str, str], reason: str) -> None:
    assert reason in refused(root.start([0], 1, port=1, env=env).wait()[0])


@pytest.mark.parametrize(("flags", "reason"), [
    (["--epoch", "2"], "unrecognized arguments: --epoch 2"),
    (["--epochs", "two"], "--epochs: invalid int value: 'two'"),
    (["--epochs", "0", "--dropout", "1"], "--dropout: got 1.0, expected 0 <= dropout < 1; --epochs: got 0"),
    (["--precision", "tf32"], "tf32 is a GPU's format. Fix: add --backend nccl"),
    (["--device", "cpu", "--backend", "nccl"], "--backend nccl has nothing to carry on --device cpu. Fix: leave one"),
    (["--device", "tpu"], "--device: got 'tpu', expected one of auto, cpu, cuda"),
    (["--resume", "must"], "--resume must needs the checkpoints' folder. Fix: add --output"),
    (["--warmup-epochs", "3"], "Fix: make it smaller than --epochs"),
    (["--learning-rate", "nan"], "--learning-rate: got nan, expected a finite number > 0"),
    (["--data", "cifar"], "--data: got 'cifar', expected digits, synthetic or mnist:<dir>"),
])
def test_refuses_wrong_flags_before_meeting_anyone(root: Root, flags: list[str], reason: str) -> None:
    assert reason in refused(root.start([0], 2, *flags, port=1).wait()[0])


def test_help_explains_every_flag(root: Root) -> None:
    rank = root.start([0], 1, "--help", port=1).wait()[0]
    assert rank.code == 0
    assert "--collective-timeout INT" in rank.text
    assert "Seconds a collective operation may take" in " ".join(rank.text.split())


def test_missing_data_is_refused(root: Root) -> None:
    assert "put the four MNIST idx files into that folder" in refused(root.train(1, "--data", "mnist:/nowhere")[0])
    assert "digits has 1536 training samples" in refused(root.train(1, "--train-samples", "2000")[0])


def test_a_gpu_backend_without_a_gpu_is_refused(root: Root) -> None:
    for flags in (["--backend", "nccl"], ["--device", "cuda"]):
        assert f"{' '.join(flags)} needs a GPU and this process sees none" in refused(root.train(1, *flags)[0])


def test_no_master_at_the_masters_address_is_an_error_within_the_time_out(root: Root) -> None:
    rank = root.start([1], 2, "--rendezvous-timeout", "2", port=9).wait(SOON_S)[0]
    assert "rank 1 of 2 could not meet the others at 127.0.0.1:9 within 2 s" in refused(rank)


def test_a_rank_that_never_comes_is_an_error_within_the_time_out(root: Root) -> None:
    store = root.store()
    ranks = root.start([0, 2], 3, "--rendezvous-timeout", "20", port=store["port"]).wait(SOON_S)
    root.close_store(store)
    assert ["rank 1 did not join" in refused(rank) for rank in ranks] == [True, True]


def test_a_second_process_of_the_same_rank_is_refused_at_once(root: Root) -> None:
    """Two masters, or a worker that restarts in place while the others keep running: it must not meet stale keys."""
    store = root.store()
    running = root.start([0, 1], 2, "--epochs", "5000", "--log-interval", "1", port=store["port"])
    try:
        root.wait_for(lambda: '"event":"step"' in running.text(0), "the ranks train")
        for rank in (0, 1):
            late = root.start([rank], 2, port=store["port"]).wait()[0]
            assert f"rank {rank} has already joined this rendezvous" in refused(late)
        assert '"event":"error"' not in running.text(0)
        running.kill(0, signal.SIGTERM)
        assert [rank.code for rank in running.wait()] == [143, 143], "the first ranks continued to train"
    finally:
        root.close_store(store)


def test_a_stopped_rank_costs_the_others_no_more_than_the_time_out_and_they_say_where_they_wait(root: Root) -> None:
    store = root.store()
    running = root.start([0, 1], 2, "--epochs", "5000", "--log-interval", "1", "--collective-timeout", "20",
                         port=store["port"])
    try:
        root.wait_for(lambda: '"event":"step"' in running.text(0), "the ranks train")
        running.kill(1, signal.SIGSTOP)
        root.wait_for(lambda: "lost the others" in running.text(0), "rank 0 gives rank 1 up", SOON_S)
        assert re.search(r"gangplank: rank 0: no step and no exchange for \d+ s; it is at train\.py:", running.text(0))
        assert ", in _step: loss.backward()" in running.text(0)
        running.kill(1, signal.SIGCONT)
        assert [rank.code for rank in running.wait()] == [1, 1]
    finally:
        root.close_store(store)


def test_a_loss_that_is_not_a_number_stops_every_rank_at_the_same_step(root: Root) -> None:
    ranks = root.train(2, "--learning-rate", "1e30", "--log-interval", "1")
    assert [rank.code for rank in ranks] == [1, 1]
    lines = {line for rank in ranks for line in rank.text.splitlines() if line.startswith("train.py: ")}
    assert len(lines) == 1
    assert "expected finite numbers. Fix: lower --learning-rate" in lines.pop()
