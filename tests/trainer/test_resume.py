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
