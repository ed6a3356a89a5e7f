"""`prove` on evidence of real runs: the sound one passes, each mistake fails on the claim that names it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.gaps import Numbers
from gangplank.proof.log_lines import EVENTS, read
from gangplank.proof.records import FORMAT, record_hash
from gangplank.proof.verdict import Expected, Verdict, compare, prove, read_records
from tests.support.fakes import AFTER, WRITTEN, Written

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangplank.proof.records import Records
    from tests.trainer.harness import Root

Record = dict[str, Any]

SCRIPT = "/tests/inside/broken.py"


def run(root: Root, mistake: str, world_size: int = 3, **env: str) -> Records:
    """The evidence of one run of the script, from its ranks' logs."""
    ranks = root.train(world_size, mistake, script=SCRIPT, env=env)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    return read_records("\n".join(rank.text for rank in ranks))


def failed(verdict: Verdict) -> set[str]:
    return {claim.name for claim in verdict.failed}


@pytest.fixture(scope="module")
def sound(root: Root) -> Records:
    return run(root, "none")


def test_a_sound_run_is_proven_and_its_padding_is_listed(sound: list[Record]) -> None:
    verdict = prove(sound, Expected(3, epochs=2, global_batch=30, job_uid="job-1"))
    assert verdict.passed, verdict.text()
    assert "epoch 1 repeats" in verdict.text()


@pytest.mark.parametrize("world_size", [1, 3])
def test_the_example_in_the_modules_docstring_is_proven(root: Root, world_size: int) -> None:
    ranks = root.train(world_size, script="/tests/inside/example.py")
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    records = read_records("\n".join(rank.text for rank in ranks))
    verdict = prove(records, Expected(world_size, epochs=2, global_batch=10 * world_size, job_uid="job-1"))
    assert verdict.passed or (world_size == 1 and verdict.alone), verdict.text()
    assert verdict.word == ("PROVEN" if world_size > 1 else "NOT DISTRIBUTED")
    assert {record["format"] for record in records if record["kind"] == "begin"} == {FORMAT}


@pytest.mark.parametrize("fake", WRITTEN, ids=lambda fake: fake.mistake)
def test_rejects_training_that_only_looks_distributed(root: Root, fake: Written) -> None:
    verdict = prove(run(root, fake.mistake), Expected(3, epochs=2, job_uid="job-1"))
    assert failed(verdict) >= fake.claims - {AFTER}, verdict.text()
    assert failed(verdict) <= fake.claims, verdict.text()
    assert fake.reason in verdict.text()


def test_rejects_a_world_of_one_twice(root: Root) -> None:
    records = [record for pod in range(2) for record in run(
        root, "none", 1, GANGPLANK_POD=f"pod-{pod}", GANGPLANK_POD_UID=f"uid-{pod}")]
    verdict = prove(records, Expected(2, epochs=2, job_uid="job-1"))
    assert {"every rank took part", "samples are disjoint and complete"} & failed(verdict) == {"every rank took part"}
    assert "rank 0 finished 2 times (two masters, or several worlds), rank 1 never finished" in verdict.text()
    assert "a rank reports a world of 1, expected 2" in verdict.text()


def test_rejects_two_masters(root: Root) -> None:
    """Two groups, each with a rank 0, at the same time, in one job."""
    stores = [root.store(), root.store()]
    groups = [root.start([0, 1], 2, "none", port=store["port"], script=SCRIPT, env={
        "GANGPLANK_POD_UID": "", "GANGPLANK_NODE": f"node-{number}"}) for number, store in enumerate(stores)]
    texts = [rank.text for group in groups for rank in group.wait()]
    for store in stores:
        root.close_store(store)
    verdict = prove(read_records("\n".join(texts)), Expected(2, epochs=2, job_uid="job-1"))
    assert "every rank took part" in failed(verdict)
    assert "rank 0 finished 2 times (two masters" in verdict.text()


def test_rejects_a_second_master_that_never_finished(sound: list[Record]) -> None:
    began = float(str(next(r for r in sound if r["kind"] == "begin" and r["rank"] == 0)["time"]))
    other = {"kind": "begin", "rank": 0, "seq": 0, "prev": "", "time": began + 60, "job_uid": "job-1", "world_size": 3}
    verdict = prove([*sound, {**other, "hash": record_hash(other)}], Expected(3))
    assert failed(verdict) == {"one attempt at a time"}


def rewrite(records: list[Record], rank: int, change: Callable[[Record], None]) -> list[Record]:
    """One rank's chain with `change` made and every hash after it set right, own heads included."""
    heads: dict[str, str] = {}
    rewritten = []
    for record in records:
        if record["rank"] != rank:
            rewritten.append(record)
            continue
        new = {key: value for key, value in record.items() if key != "hash"}
        change(new)
        new["prev"] = heads.get(str(record["prev"]), record["prev"])
        if new["kind"] == "heads":
            new["heads"] = [heads.get(head, head) for head in new["heads"]]
        new["hash"] = heads[str(record["hash"])] = record_hash(new)
        rewritten.append(new)
    return rewritten


def test_rejects_a_changed_number(sound: list[Record]) -> None:
    records = [dict(record) for record in sound]
    next(r for r in records if r["kind"] == "epoch" and r["rank"] == 1)["samples"] = 35
    verdict = prove(records, Expected(3))
    assert "records are whole" in failed(verdict)
    assert re.search(r"rank 1 record \d+ \(epoch\) was altered", verdict.text())


def test_rejects_a_record_that_was_left_out(sound: list[Record]) -> None:
    dropped = next(r for r in sound if r["kind"] == "samples" and r["rank"] == 2)
    verdict = prove([r for r in sound if r is not dropped], Expected(3))
    assert re.search(r"nothing before rank 2 record \d+ \(epoch\)", verdict.text())


@pytest.mark.parametrize("kind", ["begin", "samples", "gradients", "steps", "epoch", "end"])
def test_rejects_one_ranks_rewritten_chain(sound: list[Record], kind: str) -> None:
    def change(record: Record) -> None:
        if record["kind"] == kind:
            record["note"] = "changed, and every hash set right"

    verdict = prove(rewrite(sound, 1, change), Expected(3))
    assert failed(verdict) == {"ranks attest each other"}, verdict.text()
    assert "rank 0 received the head of another chain of rank 1" in verdict.text()


def test_rejects_another_jobs_evidence(root: Root, sound: list[Record]) -> None:
    other = run(root, "none", GANGPLANK_JOB_UID="job-2")
    assert failed(prove(other, Expected(3, job_uid="job-1"))) == {"one job"}
    mixed = [r for r in sound if r["rank"] != 1] + [r for r in other if r["rank"] == 1]
    assert {"one job", "ranks attest each other", "every rank took part"} <= failed(prove(mixed, Expected(3)))


def test_the_single_pod_and_the_three_ranks_of_the_vsphere_document(root: Root) -> None:
    """Alone 48 steps in each of 6 epochs, master and two workers 16 each, the same accuracy."""
    flags = ["--epochs", "6", "--batch-size", "32", "--learning-rate", "0.02"]
    results: list[Record] = []
    for world_size, steps in ((1, 48), (3, 16)):
        out = root.new()
        ranks = root.train(world_size, *flags, "--output", out)
        assert [rank.event("epoch")["steps"] for rank in ranks] == [steps] * world_size
        assert len({rank.event("epoch")["accuracy"] for rank in ranks}) == 1
        assert len({rank.event("epoch")["loss"] for rank in ranks}) == world_size
        results.append(json.loads((root.host(out) / "result.json").read_text()))
    verdict = compare(results[0], results[1], tolerance=0.03)
    assert verdict.passed, verdict.text()


def test_every_progress_line_has_the_shape_that_is_read(root: Root) -> None:
    ranks = root.train(2, "--epochs", "1", "--log-interval", "1")
    printed = [line for rank in ranks for line in rank.text.splitlines() if line.startswith('{"event":"')]
    assert printed
    assert [line for line in printed if not read(line)] == []
    assert {json.loads(line)["event"] for line in printed} == {*EVENTS, "end", "evidence"}


def test_d13_the_events_of_a_rank_are_numbered_without_a_gap(root: Root) -> None:
    ranks = root.train(2, "--epochs", "2", "--log-interval", "1", "--checkpoint-interval", "2", "--output", "/out")
    for rank in ranks:
        lines = [fields for fields in map(read, rank.text.splitlines()) if fields]
        numbers, missing = [fields["number"] for fields in lines if "number" in fields], Numbers()
        assert numbers == [*range(1, len(numbers) + 1)]
        assert sum(map(missing.missing, lines)) == 0
    assert '{"event":"checkpoint",' in ranks[0].text


CALLS = 3  # of Python or C functions at a step: `stepped`, and the number of the group's operations


def test_the_evidence_does_nothing_at_steps_that_are_not_looked_at(root: Root) -> None:
    """Counted in calls, which are the same on a busy machine; `make bench PARTS=evidence` measures CPU time."""
    ranks = root.train(2, "evidence", script="/tests/inside/work.py", env={"TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    counts = json.loads(next(line for line in ranks[0].text.splitlines() if line.startswith('{"calls"')))
    calls, busy = counts["calls"], set(counts["busy"])
    assert len(calls) == 40
    idle = {step: count for step, count in enumerate(calls, 1) if not {step, step + 1} & busy}  # or prepares one
    assert len(idle) > 15
    assert set(idle.values()) <= set(range(1, CALLS + 1)), idle
    assert all(calls[step - 1] > CALLS for step in busy), calls


def test_the_weights_are_the_same_to_the_last_bit_with_evidence_and_observation_and_without(root: Root) -> None:
    shutil.copy(Path(__file__).parents[2] / "bench/inside/evidence_cpu.py", root.out)
    flags = ["--epochs", "2", "--batch-size", "32", "--dropout", "0.1", "--accumulate", "2"]
    models = []
    for kind in ("with", "evidence", "without"):
        out = root.new()
        ranks = root.train(3, kind, *flags, "--output", out, script="/out/evidence_cpu.py")
        assert {rank.code for rank in ranks} == {0}, ranks[0].text
        models.append((root.host(out) / "model.safetensors").read_bytes())
        assert bool(read_records("\n".join(rank.text for rank in ranks))) == (kind != "without")
        spent = [rank.event("epoch")["seconds"].keys() for rank in ranks]
        kinds = {"data", "compute", "allreduce", "update", "evaluate"} if kind == "with" else set()
        assert [one - {"checkpoint"} for one in spent] == 3 * [kinds]
    assert models[0] == models[1] == models[2]
