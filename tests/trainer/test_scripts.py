"""Scripts that nobody here wrote, unedited: they run by the launcher, and what can be seen of them is claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.proof.verdict import Expected, prove, read_records
from tests.support import documents

if TYPE_CHECKING:
    from tests.trainer.harness import Root


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
