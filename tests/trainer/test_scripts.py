"""Scripts that nobody here wrote, unedited: they run by the launcher, and what can be seen of them is claimed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gangplank.proof.verdict import Expected, prove, read_records
from tests.support import documents

if TYPE_CHECKING:
    from tests.trainer.harness import Root

ROOT = Path(__file__).resolve().parents[2]


def test_the_studys_script_is_proven_as_printed(root: Root) -> None:
    script = documents.printed('title="pytorch-demo.py"')
    folder = root.new()
    (root.host(folder) / "pytorch-demo.py").write_text(script)
    env = {"TORCH_CPP_LOG_LEVEL": "ERROR", "TORCHELASTIC_USE_AGENT_STORE": "True"}  # as torchrun sets it
    ranks = root.train(3, script=f"{folder}/pytorch-demo.py", env=env)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    assert "Epoch [5/5], Average Loss: " in ranks[0].text
    assert [line for line in ranks[1].text.splitlines() if line.startswith("Epoch")] == []
    pods = {f"uid-{rank}": f"node-{rank % 2}" for rank in range(3)}
    records = read_records("\n".join(rank.text for rank in ranks))
    verdict = prove(records, Expected(3, job_uid="job-1", created=0.0, pods=pods))
    assert verdict.word == "PROVEN", verdict.text()
    assert {claim.name for claim in verdict.claims if claim.passed is None} == {
        "all epochs", "samples are disjoint and complete", "global batch"}


EDITS = {  # of trainer/linear.py: what a demo of a distributed training must not do
    "as it is": ({}, "PROVEN"),
    "no sampler": ({"batch_size=BATCH_SIZE, sampler=sampler": "batch_size=BATCH_SIZE"}, "NOT PROVEN"),
    "no DistributedDataParallel": (
        {"DistributedDataParallel(nn.Linear(1, 1))": "nn.Linear(1, 1)", "model.module.": "model."}, "NOT PROVEN"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_the_linear_demo_is_distributed_and_learns(root: Root, edit: str) -> None:
    changes, word = EDITS[edit]
    script = (ROOT / "trainer/linear.py").read_text()
    for old, new in changes.items():
        assert old in script
        script = script.replace(old, new)
    folder = root.new()
    (root.host(folder) / "demo.py").write_text(script)
    env = {"TORCH_CPP_LOG_LEVEL": "ERROR", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    ranks = root.train(3, script=f"{folder}/demo.py", env=env)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    losses = [float(text) for text in re.findall(r"Average Loss: (\S+)", ranks[0].text)]
    assert len(losses) == 5
    assert losses[-1] < 0.8 * losses[0], "it learns"
    records = read_records("\n".join(rank.text for rank in ranks))
    pods = {f"uid-{rank}": f"node-{rank % 2}" for rank in range(3)}
    verdict = prove(records, Expected(3, job_uid="job-1", created=0.0, pods=pods))
    assert verdict.word == word, verdict.text()
