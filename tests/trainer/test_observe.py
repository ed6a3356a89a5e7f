"""Scripts that know nothing of evidence are judged by what can be seen from outside; what cannot be is not claimed."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from gangplank.proof.verdict import Expected, prove, read_records

if TYPE_CHECKING:
    from gangplank.proof.records import Records
    from gangplank.proof.verdict import Verdict
    from tests.trainer.harness import Rank, Root

OWN = "/tests/inside/own.py"
ON = {"TORCH_CPP_LOG_LEVEL": "ERROR", "TORCHELASTIC_USE_AGENT_STORE": "True"}  # as torchrun says it
NEVER_CLAIMED = {"all epochs", "samples are disjoint and complete", "global batch"}


def run(root: Root, kind: str, world_size: int = 3, env: dict[str, str] | None = None) -> list[Rank]:
    """All ranks of one run."""
    return root.train(world_size, kind, script=OWN, env={**ON, **(env or {})})


def records_of(ranks: list[Rank]) -> Records:
    """The evidence in their logs."""
    return read_records("\n".join(rank.text for rank in ranks))


def judge(ranks: list[Rank], world_size: int = 3) -> Verdict:
    """The verdict on their logs."""
    pods = {f"uid-{rank}": f"node-{rank % 2}" for rank in range(world_size)}
    return prove(records_of(ranks), Expected(world_size, job_uid="job-1", created=0.0, pods=pods))


def own_words(rank: Rank) -> list[str]:
    """What the script itself printed."""
    return [line for line in rank.text.splitlines() if '"event":"evidence"' not in line and "gloo" not in line]


@pytest.mark.parametrize("kind", ["ddp", "accumulate", "hand", "hand-clip", "sum", "loader"])
def test_an_honest_script_is_proven_without_an_edit(root: Root, kind: str) -> None:
    ranks = run(root, kind)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == "PROVEN", verdict.text() + ranks[0].text
    assert {claim.name for claim in verdict.claims if claim.passed is None} == NEVER_CLAIMED
    assert all(claim.detail.startswith("not claimed: ") for claim in verdict.claims if claim.passed is None)
    ends = [record for record in records_of(ranks) if record["kind"] == "end"]
    assert [end["steps"] for end in ends] == [12, 12, 12]
    assert [(m["exchanges"], m["idle"]) for end in ends for m in end["models"]] == [(12, 0)] * 3


@pytest.mark.parametrize(("kind", "word", "claim", "reason"), [
    ("alone", "NOT DISTRIBUTED", "more than one rank", "a world of 1"),
    ("several-worlds", "NOT DISTRIBUTED", "every rank took part", "rank 0 finished 3 times"),
    ("no-exchange", "NOT PROVEN", "gradients are exchanged at every step", "12 of 12 steps without an exchange"),
    ("loss-only", "NOT PROVEN", "gradients agree after the all-reduce", "ranks hold 3 different averages"),
    ("no-sync", "NOT PROVEN", "gradients are exchanged at every step", "12 of 12 steps without an exchange"),
    ("stops", "NOT PROVEN", "gradients are exchanged at every step", "7 of 12 steps without an exchange"),
    ("broadcast", "NOT PROVEN", "gradients are averaged", "is not the mean of 3 gradients"),
    ("broadcast-hook", "NOT PROVEN", "gradients are averaged", "is not the mean of 3 gradients"),
    ("same-samples", "NOT PROVEN", "gradients differ before the all-reduce", "the same samples on several ranks?"),
])
def test_a_fake_is_rejected_by_the_claim_that_names_it(root: Root, kind: str, word: str, claim: str,
                                                       reason: str) -> None:
    ranks = run(root, kind)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == word, verdict.text()
    details = {outcome.name: outcome.detail for outcome in verdict.failed}
    assert reason in details.get(claim, ""), verdict.text()


@pytest.mark.parametrize(("kind", "reason"), [
    ("send-receive", "no step of an optimizer of torch was seen"),
    ("own-optimizer", "no step of an optimizer of torch was seen"),
    ("sharded", "each rank holds a part of the parameters"),
])
def test_what_cannot_be_seen_is_not_claimed(root: Root, kind: str, reason: str) -> None:
    ranks = run(root, kind)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == "NOT CLAIMED", verdict.text()
    assert not verdict.passed
    assert any(reason in claim.detail for claim in verdict.unclaimed), verdict.text()


@pytest.mark.parametrize("kind", ["ddp", "accumulate", "hand-clip", "sharded"])
def test_the_script_computes_the_same_to_the_last_bit_and_one_field_switches_it_off(root: Root, kind: str) -> None:
    watched, alone = run(root, kind), run(root, kind, env={"GANGPLANK_OBSERVE": "0"})
    assert [own_words(rank) for rank in watched] == [own_words(rank) for rank in alone]
    assert records_of(watched)
    assert records_of(alone) == []


def test_the_observer_takes_less_than_a_hundredth_of_the_time(root: Root) -> None:
    for rank in launched(root, "ddp"):
        end = next(record for record in rank if record["kind"] == "end")
        assert end["evidence_seconds"] < 0.01 * end["cpu_seconds"], end


def launched(root: Root, kind: str) -> list[Records]:
    """Records by rank of two ranks that torchrun itself starts."""
    line = ["python3", "-m", "torch.distributed.run", "--nnodes=1", "--node-rank=0", "--master-addr=127.0.0.1",
            f"--master-port={root.free_port()}", "--nproc-per-node=2", OWN, kind]
    env = {**ON, "GANGPLANK_POD": "pod", "GANGPLANK_POD_UID": "uid-0", "GANGPLANK_JOB_UID": "job-1"}
    done = subprocess.run(root.command(line, env), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    records = read_records(done.stdout)
    return [[record for record in records if record["rank"] == rank] for rank in (0, 1)]
