"""A run that is interrupted and goes on ends where an uninterrupted one ends, to the bit."""

from __future__ import annotations

import json
import signal

import pytest
from gangplank.proof import Expected, prove, read_records

# 1000 samples: no number of ranks above 2 divides them; dropout makes the random state matter.
FLAGS = ["--epochs", "4", "--batch-size", "32", "--train-samples", "1000", "--dropout", "0.2", "--log-interval", "1",
         "--schedule", "cosine", "--warmup-epochs", "0.5"]


def result(root, out: str) -> dict[str, object]:
    return json.loads((root.host(out) / "result.json").read_text())


def saved(step: int) -> str:
    return f'"event":"checkpoint","rank":0,"step":{step},'


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(root, optimizer) -> None:
    flags = [*FLAGS, "--optimizer", optimizer, "--learning-rate", "0.01", "--checkpoint-interval", "7"]
    whole, broken = root.new(), root.new()
    assert {rank.code for rank in root.train(3, *flags, "--output", whole)} == {0}
    codes = [rank.code for rank in root.interrupt(3, saved(14), {1: signal.SIGKILL}, *flags, "--output", broken)]
    assert codes == [1, -signal.SIGKILL, 1]
    ranks = root.train(3, *flags, "--output", broken)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    assert ranks[0].event("resume")["step"] >= 14
    first, second = result(root, whole), result(root, broken)
    assert first["parameters"] == second["parameters"]
    assert (root.host(whole) / "model.safetensors").read_bytes() == (root.host(broken) / "model.safetensors").read_bytes()
    assert first["epoch_accuracies"] == second["epoch_accuracies"]
    assert first["ranks"] == second["ranks"]
    evidence = read_records((root.host(broken) / "evidence.jsonl").read_text())
    verdict = prove(evidence, Expected(3, epochs=4, global_batch=96, job_uid="job-1"))
    assert verdict.passed, verdict.text()
    assert "1 resumes" in verdict.text()


def test_sigterm_to_one_rank_saves_at_the_next_step_and_all_ranks_leave(root) -> None:
    flags = [*FLAGS, "--checkpoint-interval", "0"]
    whole, broken = root.new(), root.new()
    assert {rank.code for rank in root.train(3, *flags, "--output", whole)} == {0}
    stopped = root.interrupt(3, '"event":"step","rank":0,"epoch":2,"step":15', {2: signal.SIGTERM}, *flags,
                             "--output", broken)
    assert [rank.code for rank in stopped] == [143, 143, 143], stopped[0].text
    step = stopped[2].event("stopped")["step"]
    assert {rank.event("stopped")["step"] for rank in stopped} == {step}
    assert [path.name for path in (root.host(broken) / "checkpoints").iterdir()] == [f"step-{step:08d}"]
    assert 15 <= step < 44
    assert {rank.code for rank in root.train(3, *flags, "--output", broken, "--resume", "must")} == {0}
    assert result(root, whole)["parameters"] == result(root, broken)["parameters"]


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3)])
def test_another_number_of_ranks_goes_on_at_the_same_sample(root, before, after) -> None:
    out = root.new()
    flags = [*FLAGS, "--checkpoint-interval", "15", "--output", out]
    assert before == 2 or after == 2  # 15 steps are in the middle of an epoch of both
    root.interrupt(before, saved(15), {0: signal.SIGKILL}, *flags)
    ranks = root.train(after, *flags)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    resume = ranks[-1].event("resume")
    per_epoch = -(-1000 // before)
    assert resume["position"] % (32 * before) == 0
    assert resume["world_size_before"] == before
    assert (resume["epoch"] - 1) * -(-per_epoch // 32) + resume["position"] // (32 * before) == resume["step"]
    verdict = prove(read_records((root.host(out) / "evidence.jsonl").read_text()),
                    Expected(after, epochs=4, global_batch=32 * after, job_uid="job-1"))
    assert verdict.passed, verdict.text()


def test_only_the_last_checkpoints_stay(root) -> None:
    out = root.new()
    root.train(2, *FLAGS, "--epochs", "1", "--schedule", "constant", "--checkpoint-interval", "3",
               "--keep-checkpoints", "2", "--output", out)
    assert sorted(p.name for p in (root.host(out) / "checkpoints").iterdir()) == ["step-00000015", "step-00000016"]


def test_a_finished_run_that_is_started_again_trains_no_further(root) -> None:
    out = root.new()
    first = root.train(2, *FLAGS, "--epochs", "2", "--output", out)
    before = (root.host(out) / "model.safetensors").read_bytes()
    second = root.train(2, *FLAGS, "--epochs", "2", "--output", out)
    assert [rank.code for rank in first + second] == [0, 0, 0, 0]
    assert second[0].event("end")["steps"] == first[0].event("end")["steps"]
    assert (root.host(out) / "model.safetensors").read_bytes() == before
    assert not [event for event in second[0].events if event["event"] == "step"]
