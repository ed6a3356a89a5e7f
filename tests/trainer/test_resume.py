"""A run that is interrupted and resumed ends where an uninterrupted one ends, to the bit."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from gangplank.proof.verdict import Expected, prove, read_records

if TYPE_CHECKING:
    from tests.trainer.harness import Root

# 1000 samples: no number of ranks above 2 divides them; dropout makes the random state matter.
FLAGS = ["--epochs", "4", "--batch-size", "32", "--train-samples", "1000", "--dropout", "0.2", "--log-interval", "1",
         "--schedule", "cosine", "--warmup-epochs", "0.5"]


def result(root: Root, out: str) -> dict[str, object]:
    values: dict[str, object] = json.loads((root.host(out) / "result.json").read_text())
    return values


def saved(step: int) -> str:
    return f'"event":"checkpoint","rank":0,"step":{step},'


@pytest.fixture(scope="module")
def whole(root: Root) -> str:
    """An uninterrupted run of three ranks, with no checkpoint before the last step."""
    out = root.new()
    ranks = root.train(3, *FLAGS, "--checkpoint-interval", "0", "--output", out)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    return out


def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(root: Root, whole: str) -> None:
    killed_and_resumed(root, whole, [*FLAGS, "--checkpoint-interval", "7"])


def test_adamw_and_gradient_accumulation_resume_exactly(root: Root) -> None:
    flags = [*FLAGS, "--optimizer", "adamw", "--learning-rate", "0.003", "--batch-size", "10", "--accumulate", "3",
             "--checkpoint-interval", "7"]
    whole = root.new()
    assert {rank.code for rank in root.train(3, *flags, "--output", whole)} == {0}
    killed_and_resumed(root, whole, flags, batch=90)


def killed_and_resumed(root: Root, whole: str, flags: list[str], batch: int = 96) -> None:
    """Kill rank 1 after step 14 was saved, start all again, and compare with the uninterrupted run."""
    broken = root.new()
    codes = [rank.code for rank in root.interrupt(3, saved(14), {1: signal.SIGKILL}, *flags, "--output", broken)]
    assert codes == [1, -signal.SIGKILL, 1]
    ranks = root.train(3, *flags, "--output", broken)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    assert ranks[0].event("resume")["step"] >= 14
    first, second = result(root, whole), result(root, broken)
    assert first["parameters"] == second["parameters"]
    weights = [(root.host(out) / "model.safetensors").read_bytes() for out in (whole, broken)]
    assert weights[0] == weights[1]
    assert first["epoch_accuracies"] == second["epoch_accuracies"]
    assert first["ranks"] == second["ranks"]
    evidence = read_records((root.host(broken) / "evidence.jsonl").read_text())
    verdict = prove(evidence, Expected(3, epochs=4, global_batch=batch, job_uid="job-1"))
    assert verdict.passed, verdict.text()
    assert "1 resume," in verdict.text()


def test_sigterm_to_one_rank_saves_at_the_next_step_and_all_ranks_leave(root: Root, whole: str) -> None:
    flags = [*FLAGS, "--checkpoint-interval", "0"]
    broken = root.new()
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
def test_another_number_of_ranks_resumes_at_the_same_sample(root: Root, before: int, after: int) -> None:
    out = root.new()
    flags = [*FLAGS, "--checkpoint-interval", "15", "--output", out]
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


def test_only_the_last_checkpoints_stay(root: Root) -> None:
    out = root.new()
    root.train(2, *FLAGS, "--epochs", "1", "--schedule", "constant", "--checkpoint-interval", "3",
               "--keep-checkpoints", "2", "--output", out)
    assert sorted(p.name for p in (root.host(out) / "checkpoints").iterdir()) == ["step-00000015", "step-00000016"]


def test_a_finished_run_that_is_started_again_trains_no_further(root: Root) -> None:
    out = root.new()
    first = root.train(2, *FLAGS, "--epochs", "2", "--output", out)
    before = (root.host(out) / "model.safetensors").read_bytes()
    second = root.train(2, *FLAGS, "--epochs", "2", "--output", out)
    assert [rank.code for rank in first + second] == [0, 0, 0, 0]
    assert second[0].event("end")["steps"] == first[0].event("end")["steps"]
    assert (root.host(out) / "model.safetensors").read_bytes() == before
    assert not [event for event in second[0].events if event["event"] == "step"]
