"""Scripts that nobody here wrote, unedited: they run by the launcher, and what can be seen of them is claimed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gangplank.proof.verdict import Expected, prove, read_records
from tests.support import documents

if TYPE_CHECKING:
    from gangplank.proof.verdict import Verdict
    from tests.trainer.harness import Rank, Root

ROOT = Path(__file__).resolve().parents[2]


ENV = {"TORCH_CPP_LOG_LEVEL": "ERROR", "TORCHELASTIC_USE_AGENT_STORE": "True"}  # as torchrun sets it


def run(root: Root, script: str) -> list[Rank]:
    """Three ranks of a script, all of which have succeeded."""
    folder = root.new()
    (root.host(folder) / "script.py").write_text(script)
    ranks = root.train(3, script=f"{folder}/script.py", env=ENV)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    return ranks


def proof(ranks: list[Rank]) -> Verdict:
    """What is proven of three ranks on two nodes."""
    pods = {f"uid-{rank}": f"node-{rank % 2}" for rank in range(3)}
    records = read_records("\n".join(rank.text for rank in ranks))
    return prove(records, Expected(3, job_uid="job-1", created=0.0, pods=pods))


def test_the_studys_script_is_proven_as_printed(root: Root) -> None:
    ranks = run(root, documents.printed('title="pytorch-demo.py"'))
    assert "Epoch [5/5], Average Loss: " in ranks[0].text
    assert [line for line in ranks[1].text.splitlines() if line.startswith("Epoch")] == []
    verdict = proof(ranks)
    assert verdict.word == "PROVEN", verdict.text()
    assert {claim.name for claim in verdict.claims if claim.passed is None} == {
        "all epochs", "samples are disjoint and complete", "global batch"}


def test_the_studys_script_comes_nearer_to_its_line_and_ends_with_the_same_parameters_on_all_ranks(root: Root) -> None:
    """Unseeded, torch draws the same numbers in each run, so that one without epochs prints where all start."""
    script = documents.printed('title="pytorch-demo.py"')
    each_rank = script.replace("if rank == 0:", "if True:")
    weights = []
    for text in (script, each_rank, each_rank.replace("epochs = 5", "epochs = 0")):
        printed = [re.findall(r"linear\.(\w+): tensor\(\[+(-?[\d.]+)\]+\)", rank.text) for rank in run(root, text)]
        assert printed[1:] == ([[], []] if text == script else printed[:1] * 2), printed
        weights.append(float(dict(printed[0])["weight"]))
    printed_alone, trained, start = weights
    assert printed_alone == trained
    assert abs(trained - 2) < 0.8 * abs(start - 2), "y = 2x"


def test_the_script_of_the_example_image_is_proven(root: Root) -> None:
    """lab/images/example: each rank trains on its share of the 1797 digits, without a word about evidence."""
    ranks = run(root, (ROOT / "lab/images/example/mine/train_mine.py").read_text())
    ends = [re.findall(r"^rank (\d) of 3: (\d+) digits, loss (\S+)$", rank.text, re.MULTILINE) for rank in ranks]
    assert [(int(rank), int(digits)) for ((rank, digits, _),) in ends] == [(0, 599), (1, 599), (2, 599)]
    assert max(float(loss) for ((_, _, loss),) in ends) < 0.5, "ten classes: 2.3 at the start"
    verdict = proof(ranks)
    assert verdict.word == "PROVEN", verdict.text()


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
    ranks = run(root, script)
    losses = [float(text) for text in re.findall(r"Average Loss: (\S+)", ranks[0].text)]
    assert len(losses) == 5
    assert losses[-1] < 0.8 * losses[0], "it learns"
    verdict = proof(ranks)
    assert verdict.word == word, verdict.text()


def test_the_linear_demo_deals_out_all_points_in_another_order_each_epoch(root: Root) -> None:
    script, loop = (ROOT / "trainer/linear.py").read_text(), "        for x, y in loader:\n"
    assert loop in script
    shown = f"{loop}            report(f'batch of {{epoch}}: {{x.flatten().tolist()}}')\n"
    epochs: list[dict[int, list[float]]] = []
    for rank in run(root, script.replace(loop, shown)):
        of_rank: dict[int, list[float]] = {}
        for epoch, batch in re.findall(r"^batch of (\d): (.*)$", rank.text, re.MULTILINE):
            of_rank.setdefault(int(epoch), []).extend(json.loads(batch))
        epochs.append(of_rank)
    for epoch in range(5):
        points = [point for of_rank in epochs for point in of_rank[epoch]]
        assert (len(points), len(set(points))) == (102, 100), "each point, and two twice so that all have as many"
    for of_rank in epochs:
        assert len({tuple(of_rank[epoch]) for epoch in range(5)}) == 5
