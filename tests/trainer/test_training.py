"""Training as shipped: what it learns, says and leaves behind."""

from __future__ import annotations

import json

FLAGS = ["--epochs", "3", "--batch-size", "64", "--test-batch-size", "512", "--learning-rate", "0.05",
         "--sgd-momentum", "0.9", "--seed", "1", "--log-interval", "10"]


def test_three_ranks_learn_handwritten_digits_and_leave_results(root) -> None:
    out = root.new()
    ranks = root.train(3, *FLAGS, "--output", out)
    assert [rank.code for rank in ranks] == [0, 0, 0], ranks[0].text
    result = json.loads((root.host(out) / "result.json").read_text())
    assert result["accuracy"] > 0.93
    assert result["epoch_accuracies"][-1] == result["accuracy"]
    assert [(row["rank"], row["pod"], row["node"], row["world_size"], row["steps"], row["samples"])
            for row in result["ranks"]] == [(r, f"pod-{r}", f"node-{r % 2}", 3, 24, 1536) for r in range(3)]
    assert json.loads((root.host(out) / "config.json").read_text())["batch_size"] == 64
    assert (root.host(out) / "model.safetensors").stat().st_size > 100_000
