"""`prove` on made-up evidence: every claim fails when its subject is broken, and only then. No torch, no cluster."""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank import proof
from gangplank.proof.claims import claim
from gangplank.proof.records import FORMAT, record_hash, unpack_ids
from gangplank.proof.steps import Checked, due_steps, next_to_nothing
from gangplank.proof.verdict import CLAIMS, Expected, Verdict, compare, prove, read_records

if TYPE_CHECKING:
    from collections.abc import Callable

Record = dict[str, Any]


def as_it_is(record: Record) -> None:
    """No change."""
    record.update()


def packed(ids: list[int]) -> Record:
    """Ids as the trainer packs them."""
    bits = bytearray(max(ids, default=-1) // 8 + 1)
    repeats = []
    for i in ids:
        if bits[i // 8] >> i % 8 & 1:
            repeats.append(i)
        bits[i // 8] |= 1 << i % 8
    return {"count": len(ids), "repeats": repeats, "bitmap": base64.b64encode(zlib.compress(bytes(bits))).decode()}


def gradient(step: int, rank: int) -> list[float]:
    """Four checksums of a gradient that no other step or rank has."""
    return [math.sin(step + 7 * rank + number) for number in range(4)]


@dataclass
class World:
    """Ranks that write evidence as the trainer's do; a test changes records before they are hashed."""

    size: int = 3
    samples: int = 100
    epochs: int = 2
    batch: int = 10
    job: str | None = "job-1"
    clock: float = 1000.0
    attempt: str = "a1"
    format: int | None = FORMAT  # None: as written before records had a format
    change: Callable[[Record], None] = as_it_is
    chains: dict[int, list[Record]] = field(default_factory=dict)
    done: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Steps and samples of the epoch so far, by rank."""
    start: int = 0
    """Steps before this start."""
    step: int = 0

    def add(self, rank: int, kind: str, **fields: object) -> None:
        chain = self.chains.setdefault(rank, [])
        record: Record = {"kind": kind, "rank": rank, "seq": len(chain), "prev": chain[-1]["hash"] if chain else "",
                          "time": self.clock, **fields}
        self.change(record)
        chain.append({**record, "hash": record_hash(record)})

    def heads(self) -> dict[int, object]:
        return {rank: chain[-1]["hash"] for rank, chain in self.chains.items()}

    def begin(self, resumed: Record | None = None) -> None:
        version = {} if self.format is None else {"format": self.format}
        for rank in range(self.size):
            self.add(rank, "begin", **version, world_size=self.size, pod=f"pod-{rank}", pod_uid=f"uid-{rank}", node="n",
                     job_uid=self.job, attempt=self.attempt, epochs=self.epochs, batch_size=self.batch, accumulate=1,
                     dataset="d", dataset_samples=self.samples, settings="s", parameters=f"w0-{self.start}",
                     resumed=resumed)

    def part(self, epoch: int, order: list[int], workers: int | None = None) -> None:
        """The ranks deal `order` out and see it; so many of them do, the others only join the exchange."""
        workers = workers or self.size
        order = order + order[: -len(order) % workers]
        count = -(-len(order) // workers // self.batch)
        due = set(itertools.islice(due_steps(self.attempt), 20))
        numbers = [step for step in range(self.step + 1, self.step + count + 1) if step - self.start in due]
        for rank in range(self.size) if order else ():
            for step in numbers:
                self.add(rank, "gradients", epoch=epoch, step=step, before=f"{step}-{rank}", after=f"{step}",
                         **self.looked(step, rank))
            if rank < workers:
                own, (steps, samples) = order[rank::workers], self.done.get(rank, (0, 0))
                self.done[rank] = steps - (-len(own) // self.batch), samples + len(own)
                self.add(rank, "samples", epoch=epoch, **packed(own))
            self.add(rank, "steps", first=self.step + 1, count=count, exchanges=count, parameter=1,
                     sampled=count, weights=f"w{self.step}",
                     **self.looked(1000 + self.step, rank))
        self.step += count

    def looked(self, seed: int, rank: int) -> Record:
        """What a rank saw of its gradients on both sides."""
        sums = [gradient(seed, other) for other in range(self.size)]
        return {"elements": 1000, "dtype": "float32", "norm": 10.0 + rank, "sums_before": sums[rank],
                "sums_after": [sum(column) / self.size for column in zip(*sums, strict=True)]}

    def close(self, epoch: int) -> None:
        for rank in range(self.size):
            steps, samples = self.done.pop(rank, (0, 0))
            self.add(rank, "epoch", epoch=epoch, steps=steps, samples=samples, loss=1.0, accuracy=0.9,
                     exchanges=steps, parameters=f"w{epoch}", losses=[[epoch, 1.0 / epoch + rank]], spent={
                         "data": 0.25, "compute": 2.0, "allreduce": 0.5, "update": 0.25, "evaluate": 0.5})
        self.exchange(epoch)

    def exchange(self, epoch: int | None) -> None:
        heads = [self.heads()[rank] for rank in range(self.size)]
        for rank in range(self.size):
            self.add(rank, "heads", epoch=epoch, heads=heads)

    def end(self) -> None:
        for rank in range(self.size):
            self.add(rank, "end", steps=1, samples=1, accuracy=0.9, seconds=7.0, spent={"checkpoint": 0.5},
                     parameters=f"all-{self.step}")
        self.exchange(None)

    def records(self) -> list[Record]:
        return [record for chain in self.chains.values() for record in chain]

    def train(self) -> list[Record]:
        self.begin()
        for epoch in range(1, self.epochs + 1):
            self.part(epoch, list(range(self.samples)))
            self.close(epoch)
        self.end()
        return self.records()


PODS = {f"uid-{rank}": "n" for rank in range(3)}
EXPECTED = Expected(3, epochs=2, global_batch=30, job_uid="job-1", created=800.0, pods=PODS)


def failed(verdict: Verdict) -> set[str]:
    return {claim.name for claim in verdict.failed}


def test_sound_evidence_is_proven_with_every_claim_named_once() -> None:
    verdict = prove(World().train(), EXPECTED)
    assert verdict.passed, verdict.text()
    assert [outcome.name for outcome in verdict.claims] == list(CLAIMS)
    assert verdict.text().endswith(f"PROVEN: {len(CLAIMS)} of {len(CLAIMS)} claims hold")


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="claim 'one job' is registered twice"):
        claim("one job")(CLAIMS["one job"].judge)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_every_size_of_world_is_proven(size: int) -> None:
    verdict = prove(World(size).train(), Expected(size, epochs=2, global_batch=10 * size))
    assert verdict.passed, verdict.text()


def test_one_thing_is_counted_as_one() -> None:
    text = prove(World(1, epochs=1).train(), Expected(1, epochs=1, pods={"uid-0": "n"})).text()
    assert "1 rank in pods of this job" in text
    assert not re.findall(r"\b1 \w+s\b", text)


def test_no_evidence_proves_nothing() -> None:
    verdict = prove([], Expected(3))
    assert not verdict.passed
    assert failed(verdict) == set(CLAIMS) - {"pods are the job's"}, "nobody said which pods"
    assert {claim.name for claim in prove([], EXPECTED).failed} == set(CLAIMS), "also if the job asks for epochs"


def test_the_order_of_lines_and_repeated_lines_do_not_matter() -> None:
    records = World().train()
    assert prove([*reversed(records), *records], EXPECTED).passed


def where(kind: str, rank: int | None = None, /, **new: object) -> Callable[[Record], None]:
    """A change of some records, made before they are hashed: a lie of the rank itself, or a mistake."""
    def change(record: Record) -> None:
        if record["kind"] == kind and rank in {None, record["rank"]}:
            record.update(new)
    return change


def keep_own_gradient(record: Record) -> None:
    """Rank 1 continues with its own gradient; by chance it is what the others hold too."""
    if record["kind"] == "gradients" and record["rank"] == 1:
        record["before"] = record["after"]


Mutations = list[tuple["Callable[[Record], None]", set[str]]]
MUTATIONS: Mutations = [
    (keep_own_gradient, {"gradients agree after the all-reduce"}),
    (where("begin", 1, job_uid="job-2"), {"one job"}),
    (where("begin", 1, settings="other"), {"one job"}),
    (where("begin", 1, world_size=2), {"every rank took part", "global batch"}),
    (where("begin", 1, pod_uid="uid-0"), {"every rank took part"}),
    (where("begin", 1, attempt="a2"), {"every rank took part"}),
    (where("begin", batch_size=20), {"global batch"}),
    (where("epoch", 2, steps=9), {"every rank worked", "global batch"}),
    (where("epoch", 2, steps=0, samples=0), {"every rank worked"}),
    (where("epoch", epoch=1), {"all epochs", "weights agree"}),
    (where("gradients", before="same"), {"gradients differ before the all-reduce"}),
    (where("gradients", 1, after="other"), {"gradients agree after the all-reduce"}),
    (where("gradients", 1, before="1", after="1"), {"gradients agree after the all-reduce"}),
    (where("gradients", 1, kind="other"), {"gradients differ before the all-reduce"}),
    (where("epoch", 1, parameters="other"), {"weights agree"}),
    (where("epoch", parameters="same"), {"weights agree"}),
    (where("samples", 1, **packed(list(range(0, 102, 3)))), {"samples are disjoint and complete"}),
    (where("samples", 1, **packed(list(range(100)))), {"samples are disjoint and complete"}),
    (where("epoch", 1, seq=7), {"records are whole"}),
    (where("samples", 1, **packed([])), {"samples are disjoint and complete"}),
    (where("samples", 1, bitmap="not base64"), {"samples are disjoint and complete"}),
    (where("samples", 1, **packed([*range(1, 100, 3), 100])), {"samples are disjoint and complete"}),
    (where("heads", 1, heads=["0" * 64] * 3), {"ranks attest each other"}),
    (where("heads", 1, heads=None), {"ranks attest each other"}),
    (where("begin", 1, time="noon"), {"one attempt at a time"}),
    (where("begin", 1, pod_uid="uid-9"), {"pods are the job's"}),
    (where("begin", world_size=1), {"more than one rank"}),
    (where("epoch", 1, exchanges=1), {"gradients are exchanged at every step"}),
    (where("gradients", 2, norm=0.0), {"gradients are averaged"}),
]


def without_mutation(mutations: Mutations) -> list[str]:
    """The claims that none of these mutations breaks."""
    return [name for name in CLAIMS if not any(name in claims for _, claims in mutations)]


def test_every_claim_has_a_mutation_that_breaks_it() -> None:
    assert without_mutation(MUTATIONS) == [], "Fix: add a way to break it to MUTATIONS"


@pytest.mark.parametrize(("change", "claims"), MUTATIONS)
def test_each_claim_fails_when_its_subject_is_wrong(change: Callable[[Record], None], claims: set[str]) -> None:
    verdict = prove(World(change=change).train(), EXPECTED)
    assert claims <= failed(verdict), verdict.text()
    assert not verdict.passed


def test_the_page_on_troubleshooting_shows_the_verdict_on_a_training_without_a_sampler() -> None:
    change = where("samples", **packed(list(range(100))))
    pods = {"uid-0": "n", "uid-1": "n"}
    expected = Expected(2, epochs=1, global_batch=20, job_uid="job-1", created=800.0, pods=pods)
    lines = prove(World(2, epochs=1, change=change).train(), expected).text().splitlines()
    shown = "\n".join(line for line in lines if line.startswith(("FAILED", "NOT PROVEN")))
    page = (Path(__file__).parents[3] / "docs/troubleshooting.md").read_text()
    assert f"<!-- proof: no sampler -->\n```\n{shown}\n```\n" in page, shown


@pytest.mark.parametrize(("expected", "claims"), [
    (Expected(2), {"every rank took part"}),
    (Expected(4), {"every rank took part"}),
    (Expected(3, epochs=3), {"all epochs"}),
    (Expected(3, global_batch=60), {"global batch"}),
    (Expected(3, job_uid="job-9"), {"one job"}),
    (Expected(3, processes_per_pod=3), {"every rank took part"}),
])
def test_fails_when_the_job_asked_for_something_else(expected: Expected, claims: set[str]) -> None:
    assert failed(prove(World().train(), expected)) == claims


def test_every_single_altered_record_is_noticed() -> None:
    records = World().train()
    for index, record in enumerate(records):
        altered = [*records[:index], {**record, "seq": 99}, *records[index + 1:]]
        assert "records are whole" in failed(prove(altered, EXPECTED)), record


def test_every_single_missing_record_is_noticed() -> None:
    records = World().train()
    for index, record in enumerate(records):
        assert not prove(records[:index] + records[index + 1:], EXPECTED).passed, record


def test_a_rank_beyond_the_world_is_rejected() -> None:
    verdict = prove(World(4, change=where("begin", world_size=3)).train(), Expected(3))
    assert "rank 3 is outside a world of 3 ranks" in verdict.text()


def test_a_rank_that_lists_an_older_head_of_its_own_is_rejected() -> None:
    world = World()

    def change(record: Record) -> None:
        if record["kind"] == "heads" and record["rank"] == 1 and record["epoch"] == 2:
            heads = list(record["heads"])
            heads[1] = world.chains[1][0]["hash"]
            record["heads"] = heads

    world.change = change
    assert failed(prove(world.train(), EXPECTED)) == {"ranks attest each other"}


def test_a_chain_rewritten_with_right_hashes_contradicts_the_others() -> None:
    records = World().train()
    rewritten = World(change=where("end", 1, steps=99)).train()
    swapped = [r for r in records if r["rank"] != 1] + [r for r in rewritten if r["rank"] == 1]
    assert failed(prove(swapped, EXPECTED)) == {"ranks attest each other"}


def test_a_chain_that_grows_out_of_another_ranks_is_rejected() -> None:
    world = World()
    graft: list[Record] = []

    def change(record: Record) -> None:
        if record["rank"] == 1 and not record["prev"]:
            graft.append(world.chains[0][0])
            record["prev"] = graft[0]["hash"]

    world.change = change
    verdict = prove(world.train(), EXPECTED)
    assert "nothing before rank 1 record 0 (begin)" in verdict.text()


def resumed(before: World, size: int, position: int, epoch: int = 1) -> World:
    """The start of `size` ranks from a checkpoint that the ranks before them wrote at a position."""
    after = World(size, before.samples, job=before.job, clock=before.clock + 1000, attempt=f"{before.attempt}+",
                  change=before.change, chains=before.chains, done=before.done)
    after.done = {rank: count for rank, count in before.done.items() if rank < before.size}
    after.start = after.step = before.step
    after.begin({"step": before.step, "epoch": epoch, "position": position, "world_size": before.size,
                 "heads": {str(rank): head for rank, head in before.heads().items()}})
    return after


def finish(world: World, position: int) -> World:
    """The rest of epoch 1 if that is not closed, all of epoch 2, and the end."""
    if not any(record["kind"] == "epoch" for record in world.chains[0]):
        world.part(1, list(range(position, world.samples)))
        world.close(1)
    world.part(2, list(range(world.samples)))
    world.close(2)
    world.end()
    return world


def interrupted(
    after: int, samples: int = 100, job: str = "job-1", change: Callable[[Record], None] = as_it_is
) -> tuple[World, list[Record]]:
    """Three ranks until 60 samples of epoch 1, then, from that checkpoint, `after` ranks; and the abandoned work."""
    first = World(3, samples, job=job, change=change)
    first.begin()
    first.part(1, list(range(60)))
    abandoned = World(3, samples, job=job, step=first.step,
                      chains={rank: list(chain) for rank, chain in first.chains.items()})
    abandoned.part(1, list(range(60, 90)))
    second = finish(resumed(first, after, 60), 60)
    lost = [record for rank, chain in abandoned.chains.items() for record in chain[-2:]]
    return second, lost


OF_EACH = {"kind", "rank", "seq", "prev", "time", "hash"}  # record's


def finished_twice(size: int) -> tuple[World, World]:
    """All ranks had finished, and one was killed before it could exit; so many resume, and finish again."""
    first = World()
    first.train()
    second = World(size, clock=2000.0, attempt="a2",
                   start=first.step, step=first.step,
                   chains={rank: chain[:-2] for rank, chain in first.chains.items()})
    second.begin({"step": first.step, "epoch": 3, "position": 0, "world_size": 3,
                  "heads": {str(rank): chain[-1]["hash"] for rank, chain in second.chains.items()}})
    second.end()
    return first, second


@pytest.mark.parametrize("size", [2, 3])
def test_a_run_that_was_finished_and_resumed_is_proven_from_its_logs(size: int) -> None:
    first, second = finished_twice(size)
    for records in ([*first.records(), *second.records()], [*second.records(), *first.records()]):
        verdict = prove(records, replace(EXPECTED, world_size=size, global_batch=10 * size))
        assert verdict.passed, verdict.text()
        assert "1 resume, 6 records of work abandoned" in verdict.text()


def test_a_rank_that_finished_beside_a_smaller_world_is_not_of_an_earlier_one() -> None:
    """Its chain is not the one that the smaller world resumed, or it wrote on beside it."""
    first, second = finished_twice(2)
    stranger = World(attempt="b", clock=first.clock)
    stranger.train()
    expected = replace(EXPECTED, world_size=2, global_batch=20)
    other = [record for record in stranger.records() if record["rank"] == 2]
    ours = [record for record in [*first.records(), *second.records()] if record["rank"] != 2]
    assert "every rank took part" in failed(prove([*ours, *other], expected))
    again = {key: value for key, value in second.chains[2][0].items() if key not in OF_EACH}
    second.add(2, "begin", **again)
    second.add(2, "heads", epoch=None, heads=[*second.heads().values()])
    assert "every rank took part" in failed(prove([*first.records(), *second.records()], expected))


@pytest.mark.parametrize("after", [2, 3, 4])
def test_a_resumed_run_is_proven_also_from_logs_with_abandoned_work(after: int) -> None:
    world, lost = interrupted(after)
    verdict = prove(world.records() + lost, Expected(after, epochs=2, global_batch=10 * after, job_uid="job-1"))
    assert verdict.passed, verdict.text()
    assert "1 resume, 6 records of work abandoned before the last start" in verdict.text()


@pytest.mark.parametrize(("sizes", "positions"), [
    ((2, 3), (100,)), ((3, 2), (102,)), ((1, 4), (100,)), ((2, 3, 2), (60, 102)), ((3, 2, 3), (60, 80)),
    ((2, 4, 2), (40, 80)), ((3, 2), (99,)),
])
def test_a_world_that_changes_within_an_epoch_is_proven(sizes: tuple[int, ...], positions: tuple[int, ...]) -> None:
    """Also when all samples were dealt out, so that nothing is left of the epoch for a rank that joins."""
    world, begin = World(sizes[0]), 0
    world.begin()
    for size, position in zip(sizes[1:], positions, strict=True):
        world.part(1, list(range(begin, min(position, 100))))
        world, begin = resumed(world, size, position), position
    verdict = prove(finish(world, begin).records(), Expected(sizes[-1], epochs=2, global_batch=10 * sizes[-1]))
    assert verdict.passed, verdict.text()


def test_the_chain_of_a_rank_that_left_may_not_be_missing() -> None:
    world, _ = interrupted(2)
    verdict = prove([r for r in world.records() if r["rank"] != 2], Expected(2))
    assert {"records are whole", "samples are disjoint and complete"} <= failed(verdict)


def test_another_process_at_the_same_time_is_rejected() -> None:
    other = World(1, attempt="b", clock=1010.0)
    other.begin()
    assert failed(prove([*World().train(), *other.records()], EXPECTED)) == {"one attempt at a time"}


def test_a_rank_whose_clock_is_behind_is_named_and_not_called_a_replay() -> None:
    def behind(record: Record) -> None:
        if record["rank"] == 1 and record["kind"] != "begin":
            record["time"] = float(str(record["time"])) - 300

    verdict = prove(World(change=behind).train(), replace(EXPECTED, created=990.0))
    assert failed(verdict) == {"pods are the job's"}
    assert "s older than the job (the clock of rank 1 was 300 s behind another's). Fix: let the nodes" in verdict.text()


@pytest.mark.parametrize("rank", [0, 2])
def test_a_clock_that_was_ahead_before_a_restart_is_named_and_no_other_process(rank: int) -> None:
    def ahead(record: Record) -> None:
        if record["rank"] == rank and float(str(record["time"])) < 2000:
            record["time"] = float(str(record["time"])) + 1500

    first = World(change=ahead)
    first.begin()
    first.part(1, list(range(100)))
    first.close(1)
    lost = World(step=first.step, change=ahead, chains={one: list(chain) for one, chain in first.chains.items()})
    lost.part(2, list(range(50)))
    world = resumed(first, 3, 0, epoch=2)
    verdict = prove([*finish(world, 0).records(), *lost.records()], EXPECTED)
    assert failed(verdict) == {"one attempt at a time"}
    assert f"(the clock of rank {rank} was 1500 s ahead of another's). Fix: let the nodes" in verdict.text()


def test_of_two_clocks_the_one_that_is_behind_is_named() -> None:
    def behind(record: Record) -> None:
        if record["rank"] == 1:
            record["time"] = 700.1  # by a rounding, further from the mean of both than 1000

    verdict = prove(World(2, change=behind).train(), Expected(2, epochs=2, global_batch=20, created=990.0))
    assert "(the clock of rank 1 was 300 s behind another's). Fix: " in verdict.text()


def test_an_attempt_that_ended_before_is_accepted() -> None:
    other = World(3, attempt="b", clock=900.0)
    other.begin()
    assert prove([*World().train(), *other.records()], EXPECTED).passed


def test_records_are_found_among_other_lines() -> None:
    one, other = World().train()[:2]
    lines = ["noise", json.dumps({"event": "evidence", **one}), '{"event":"step"}', '{"kind":"end"', '{"kind":"end"}',
             json.dumps(other)]
    assert read_records("\n".join(lines)) == [one, other]


def test_lines_that_are_json_but_not_objects_are_ignored() -> None:
    assert read_records('[1]\n"text"\n{"a": 1}\n{}') == []


def test_records_without_a_rank_or_of_a_strange_shape_are_reported_not_raised() -> None:
    strange_ones: list[Record] = [{"kind": "epoch"}, {"kind": "heads", "rank": "x", "epoch": None},
                                  {"kind": 3, "rank": 0, "hash": 1}]
    for strange in strange_ones:
        assert "records are whole" in failed(prove([*World().train(), strange], EXPECTED))


@pytest.mark.parametrize("ids", [[], [0], [9, 1, 1, 300], list(range(64))])
def test_ids_come_back_as_they_were_packed(ids: list[int]) -> None:
    assert unpack_ids(packed(ids)) == sorted(ids)


def results(steps: int = 16, accuracy: float = 0.95, alone: int = 48) -> Verdict:
    single = {"world_size": 1, "steps": alone, "accuracy": 0.96}
    rows = [{"rank": rank, "steps": steps} for rank in range(3)]
    return compare(single, {"world_size": 3, "accuracy": accuracy, "ranks": rows}, tolerance=0.02)


def test_the_vsphere_guides_numbers_agree() -> None:
    assert results().passed


@pytest.mark.parametrize(("verdict", "claim"), [
    (results(steps=48), "steps are shared"), (results(accuracy=0.9), "same accuracy"),
    (results(alone=47), "steps are shared"),
])
def test_the_vsphere_check_notices_what_differs(verdict: Verdict, claim: str) -> None:
    assert failed(verdict) == {claim}


@pytest.mark.parametrize(("shares", "steps", "named"), [
    ([9e-4], 25, False), ([9e-4] * 4, 25, True), ([9e-4], 1, True), ([9e-4, 2e-3, 9e-4, 9e-4], 25, False),
    ([9e-4] * 4 + [math.inf], 25, True),
], ids=["one look at a rank that left", "four looks", "the only look", "more at one of four", "alone at one"])
def test_a_rank_is_looked_at_often_enough_to_say_what_it_adds(shares: list[float], steps: int, named: bool) -> None:
    """A third node that came and went was called a rank that adds nothing: its samples were learned already."""
    tables = []
    for step in range(steps):
        norms = [1.0, *shares[step:step + 1]] if shares[step:step + 1] != [math.inf] else [0.0, 1.0]
        rows = {rank: proof.records.Record(kind="gradients", rank=rank, norm=value) for rank, value in enumerate(norms)}
        tables.append(Checked(f"step {step}", len(norms), rows, observed=False, twice=set()))
    assert next_to_nothing(tables) == ["rank 1 adds next to nothing: at most 0.0009 of what another adds"] * named
