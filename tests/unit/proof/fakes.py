"""Trainings that were not what they look like, and the claim that has to name the reason of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from gangplank.proof.expected import OF_EVIDENCE
from gangplank.proof.verdict import Expected
from tests.unit.proof.test_claims import (
    EXPECTED,
    World,
    as_it_is,
    finish,
    gradient,
    interrupted,
    packed,
    resumed,
    where,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.proof.test_claims import Record

    Change = Callable[[Record], None]

PODS = "pods are the job's"
ALONE = "more than one rank"
MEAN = "gradients are averaged"
WORKED = "every rank worked"
EVERY_STEP = "gradients are exchanged at every step"
WHOLE = "records are whole"
ATTEST = "ranks attest each other"


@dataclass(frozen=True)
class Fake:
    """What was done, the evidence of it, what the job asked for, the claim that fails, and words of its reason."""

    name: str
    records: list[Record]
    expected: Expected
    claim: str
    reason: str


def fake(name: str, change: Change, claim: str, reason: str, expected: Expected = EXPECTED) -> Fake:
    """A run of three ranks with a change of some records."""
    return Fake(name, World(change=change).train(), expected, claim, reason)


def both(*changes: Change) -> Change:
    """Several changes, one after the other."""

    def change(record: Record) -> None:
        for each in changes:
            each(record)

    return change


def at_gradients(change: Callable[[int, int, Record], None]) -> Change:
    """A change of step, rank and record of what ranks recorded of their gradients."""

    def work(record: Record) -> None:
        if record["kind"] == "gradients":
            change(int(str(record["step"])), int(str(record["rank"])), record)

    return work


def without_gradient(step: int, rank: int, record: Record) -> None:
    """Rank 2 adds nothing, and everybody holds the mean of that."""
    sums = [gradient(step, other) if other < 2 else [0.0] * 4 for other in range(3)]
    record |= {"sums_before": sums[rank], "sums_after": mean(sums)}
    if rank == 2:
        record["norm"] = 0.0


def mean(sums: list[list[float]]) -> list[float]:
    """The checksums of the mean."""
    return [sum(column) / len(sums) for column in zip(*sums, strict=True)]


def unchanging(_step: int, rank: int, record: Record) -> None:
    """Every epoch has the gradients of the first."""
    sums = [gradient(0, other) for other in range(3)]
    record |= {"sums_before": sums[rank], "sums_after": mean(sums)}


def broadcast(step: int, _rank: int, record: Record) -> None:
    """Everybody takes a third of rank 0's gradient."""
    record["sums_after"] = [value / 3 for value in gradient(step, 0)]


def summed(step: int, _rank: int, record: Record) -> None:
    """Nobody divides."""
    record["sums_after"] = [3 * value for value in mean([gradient(step, other) for other in range(3)])]


def weighted(step: int, _rank: int, record: Record) -> None:
    """Rank 0 counts for half of it."""
    record["sums_after"] = [sum(x) for x in zip(
        [value / 2 for value in gradient(step, 0)], *([v / 4 for v in gradient(step, r)] for r in (1, 2)),
        strict=True)]  # fmt: skip


def without_rank_1(step: int, _rank: int, record: Record) -> None:
    """Rank 1's gradient is left out of the mean."""
    record["sums_after"] = mean([gradient(step, 0), gradient(step, 2)])


def own_kept(_step: int, rank: int, record: Record) -> None:
    """Rank 1 holds its own gradient still."""
    if rank == 1:
        record["sums_after"] = record["sums_before"]


def late(record: Record) -> None:
    """Rank 2 says that it joined when all was over, and so recorded no gradients."""
    if record["rank"] == 2 and record["kind"] == "begin":
        record["resumed"] = {"step": 8, "epoch": 3, "position": 0, "world_size": 2, "heads": {}}
    if record["rank"] == 2 and record["kind"] == "gradients":
        record["kind"] = "other"


def earlier_job(after: int = 3) -> list[Record]:
    """A job that resumed from what another of its name had left, a thousand seconds before."""
    world, _ = interrupted(after)
    return world.records()


def started_elsewhere(record: Record) -> None:
    """The pod of rank 1's first start was on another node than it says."""
    if record["kind"] == "begin" and record["rank"] == 1 and not record["resumed"]:
        record["node"] = "m"


def second_master() -> list[Record]:
    """Two groups at once."""
    other = World(3, attempt="b", clock=1010.0, change=where("begin", None, pid=2))
    return [*World().train(), *other.train()]


def joined(position: int = 60, workers: int = 3, change: Change = as_it_is) -> list[Record]:
    """Two ranks until 60 samples of epoch 1, then three, of which so many work; and at which sample they say so."""
    first = World(2, change=change)
    first.begin()
    first.part(1, list(range(60)))
    second = resumed(first, 3, position)
    second.part(1, list(range(60, 100)), workers)
    second.close(1)
    return finish(second, 100).records()


def left_idle() -> list[Record]:
    """Three ranks until 60 samples of epoch 1, of which the last saw none, and then the others alone."""
    first = World(3)
    first.begin()
    first.part(1, list(range(60)), workers=2)
    return finish(resumed(first, 2, 60), 60).records()


def idle_at_first(record: Record) -> None:
    """Rank 2 saw nothing before the restart, and counts as if it had."""
    if record["rank"] == 2 and record["kind"] == "samples" and record["time"] == World.clock:
        record["kind"] = "other"


def went_back() -> list[Record]:
    """A start in epoch 2, and then one in epoch 1."""
    first = World(2)
    first.begin()
    first.part(1, list(range(60)))
    return finish(resumed(resumed(first, 3, 0, epoch=2), 3, 60), 60).records()


def without_rank_2() -> list[Record]:
    """Three ranks until 60 samples of epoch 1; the last one left, and no start names its chain."""
    def change(record: Record) -> None:
        if record["kind"] == "begin" and record["resumed"]:
            at = cast("dict[str, dict[str, object]]", record["resumed"])
            record["resumed"] = {**at, "heads": {rank: head for rank, head in at["heads"].items() if rank != "2"}}

    return [record for record in interrupted(2, change=change)[0].records() if record["rank"] != 2]


def joined_last(record: Record) -> None:
    """Rank 2 says that nothing was left when it began."""
    if record["rank"] == 2 and record["kind"] == "begin":
        record["resumed"] = {**cast("Record", record["resumed"]), "position": 100}


def at_samples(change: Callable[[int, int, Record], None]) -> Change:
    """A change of first step, rank and record of what ranks recorded of a sample of their steps."""

    def work(record: Record) -> None:
        if record["kind"] == "steps":
            change(999 + int(str(record["first"])), int(str(record["rank"])), record)

    return work


def not_averaged(_step: int, _rank: int, record: Record) -> None:
    """Everybody goes on with its own gradient."""
    record["sums_after"] = record["sums_before"]


def with_rank_2(scale: float, of: int = 2) -> Callable[[int, int, Record], None]:
    """Rank 2 brings its gradient, or another's, times a number; and everybody holds the mean of that."""

    def change(step: int, rank: int, record: Record) -> None:
        sums = [gradient(step, 0), gradient(step, 1), [scale * value for value in gradient(step, of)]]
        record |= {"sums_before": sums[rank], "sums_after": mean(sums)}
        if rank == 2:
            record["norm"] = abs(scale) * 12.0

    return change


def replayed(record: Record) -> None:
    """Rank 1 writes of epoch 2 what it wrote of epoch 1."""
    if record["rank"] == 1 and record["kind"] == "steps":
        record["sums_before"] = gradient(1000, 1)


def behind(step: int, rank: int, record: Record) -> None:
    """Rank 1 brings what rank 0 brought at the first step, and everybody holds the mean of that."""
    sums = [gradient(step, 0), gradient(1, 0) if step > 1 else gradient(1, 1), gradient(step, 2)]
    record |= {"sums_before": sums[rank], "sums_after": mean(sums)}


def looked_twice() -> list[Record]:
    """Rank 1 looks at the first step until it sees an average."""
    world = World()
    world.begin()
    world.add(1, "gradients", epoch=1, step=1, before="b", after="a", **world.looked(5, 1))
    world.part(1, list(range(100)))
    world.close(1)
    world.part(2, list(range(100)))
    world.close(2)
    world.end()
    return world.records()


def unlooked(step: int, _rank: int, record: Record) -> None:
    """Nobody looked at a step that was due."""
    if step > 1:
        record["kind"] = "other"


def chosen(step: int, _rank: int, record: Record) -> None:
    """The ranks look at the next step, at which they do average."""
    record["step"] = step + (step > 1)


def unshown(record: Record) -> None:
    """No record shows the steps of epoch 2."""
    if record["kind"] == "steps" and record["first"] != 1:
        record["kind"] = "other"


def shown_twice(record: Record) -> None:
    """Those of epoch 1 are shown for those of epoch 2."""
    if record["kind"] == "steps":
        record["first"] = 1


def drift(record: Record) -> None:
    """Weights go apart between the ends of epochs."""
    if record["kind"] == "steps":
        record["weights"] = f"own-{record['rank']}"


def without_second(record: Record) -> None:
    """Epoch 3 in place of epoch 2."""
    if record.get("epoch") == 2:
        record["epoch"] = 3


def cut_short() -> list[Record]:
    """Twelve epochs were to be, and two are."""
    return World(change=where("begin", epochs=12)).train()


def stale_heads() -> list[Record]:
    """Ranks always list each other's first heads."""
    world = World()

    def change(record: Record) -> None:
        if record["kind"] == "heads":
            heads = [world.chains[rank][0]["hash"] for rank in range(3)]
            record["heads"] = [*heads[: record["rank"]], record["prev"], *heads[record["rank"] + 1 :]]

    world.change = change
    return world.train()


def noted_before() -> list[Record]:
    """Chains that have a record before they begin."""
    world = World()
    for rank in range(3):
        world.add(rank, "note")
    return world.train()


def other_checkpoint(record: Record) -> None:
    """Rank 1 continues a chain that the checkpoint did not carry."""
    if record["rank"] == 1 and record["kind"] == "begin" and record["resumed"]:
        at = cast("dict[str, dict[str, object]]", record["resumed"])
        record["resumed"] = {**at, "heads": {**at["heads"], "1": "0" * 64}}


def leap(record: Record) -> None:
    """98 steps are missing between two starts."""
    if record["kind"] == "begin" and record["resumed"]:
        record["resumed"] = {**cast("Record", record["resumed"]), "step": 100}
    key = {"steps": "first", "gradients": "step"}.get(str(record["kind"]))
    if key and record["time"] > World.clock:
        record[key] = int(str(record[key])) + 98


def kept_a_third(_step: int, rank: int, record: Record) -> None:
    """Each rank continues with a third of its own gradient, as if that were its part of an average."""
    record |= {"sums_after": [value / 3 for value in record["sums_before"]], "after": f"part-{rank}"}


def fakes() -> list[Fake]:
    """All of them."""
    nodes = {f"new-{rank}": "n" for rank in range(3)}
    one, joins = World(1).train(), Expected(3, epochs=2, job_uid="job-1")
    one_pod = World(change=where("begin", pod_uid="uid-0")).train()
    short = cut_short()
    return [
        Fake("E1: a PyTorchJob's evidence of yesterday", World().train(), replace(EXPECTED, created=90_000.0), PODS,
             "89000 s older than the job (a replay"),
        Fake("E1: evidence that other pods wrote", World().train(), replace(EXPECTED, pods=nodes), PODS,
             "rank 0 ran in pod uid-0, which is not a pod of this job"),
        Fake("E1: a TrainJob shows a Volcano job's", World(job="digits-u").train(),
             replace(EXPECTED, job_uid=None, pods=nodes), PODS, "which is not a pod of this job"),
        Fake("E1: one pod is left of the job, and it wrote nothing", World().train(),
             replace(EXPECTED, pods={"new-0": "n"}), PODS, "which is not a pod of this job"),
        Fake("E1: a checkpoint of an earlier job of this name", earlier_job(), replace(EXPECTED, created=1900.0), PODS,
             "a checkpoint of an earlier job of this name"),
        fake("A13: one rank is a stranger's pod", where("begin", 1, pod_uid="uid-8"), PODS, "rank 1 ran in pod uid-8"),
        fake("a pod on a node where it was not", where("begin", 1, node="m"), PODS, "rank 1 says node m"),
        Fake("E1: an earlier start on a node where its pod was not",
             interrupted(3, change=started_elsewhere)[0].records(), EXPECTED, PODS, "rank 1 says node m"),
        fake("pods without a name", where("begin", pod_uid=None), PODS, "which is not a pod of this job"),
        Fake("E2: a world of one, for a file", one, OF_EVIDENCE, ALONE, "got a world of 1"),
        Fake("E2: a job of 0 workers", one, Expected(1), ALONE, "got a world of 1"),
        Fake("E2: three ranks in one pod, for a file", one_pod, OF_EVIDENCE, ALONE,
             "all 3 ranks ran in one pod"),
        Fake("E2: three ranks in one pod of three", one_pod, EXPECTED, "every rank took part",
             "3 ranks ran in pod uid-0, expected 1"),
        fake("E3: a rank that adds nothing", at_gradients(without_gradient), MEAN, "the gradient of rank 2 is zero"),
        fake("E3: gradients that never change", at_gradients(unchanging), MEAN, "rank 0 has the gradient of step"),
        fake("E3: hashes that never change", both(*(where("gradients", r, before=f"b{r}") for r in range(3))), MEAN,
             "rank 1 has the gradient of step"),
        fake("E3: a broadcast for an average", at_gradients(broadcast), MEAN, "is not the mean of 3 gradients"),
        fake("E3: a sum for an average", at_gradients(summed), MEAN, "is not the mean of 3 gradients"),
        fake("E3: a mean with weights", at_gradients(weighted), MEAN, "is not the mean of 3 gradients"),
        fake("E3: a mean without one rank", at_gradients(without_rank_1), MEAN, "is not the mean of 3 gradients"),
        fake("E3: a rank that keeps its own gradient, and another hash of it", at_gradients(own_kept),
             "gradients agree after the all-reduce", "rank 1 kept its own gradient"),
        fake("E3: one exchange an epoch", where("epoch", exchanges=1), EVERY_STEP, "1 time in the 4 steps of epoch 1"),
        fake("E3: a gradient that is not a number", where("gradients", 1, norm=None), MEAN, "expected a finite number"),
        fake("E4: a rank that says it joined at the end", late, "gradients differ before the all-reduce",
             "no gradients of rank 2"),
        fake("E4: a late rank hides unequal work", both(late, where("epoch", 1, steps=3, samples=20)),
             "every rank worked", "rank 1 counts 3 steps and 20 samples in epoch 1, but its share was 4 and 34"),
        fake("an idle rank", both(where("epoch", 1, steps=0, samples=0), where("samples", 1, kind="other")), WORKED,
             "rank 1 had nothing to do in epoch 1, but its share was 34"),
        Fake("a rank that joined, and was idle", joined(workers=2), joins, WORKED,
             "rank 2 had nothing to do in epoch 1 (3 ranks, samples 60 to 100), but its share was 14"),
        Fake("a rank that joined, was idle, and says that nothing was left", joined(100, workers=2), joins, WORKED,
             "rank 0 saw 20 samples in epoch 1 (3 ranks, samples 100 to 100), but its share was 0"),
        Fake("a rank that left, and was idle", left_idle(), replace(joins, world_size=2, global_batch=20), WORKED,
             "rank 2 had nothing to do in epoch 1 (3 ranks, samples 0 to 60), but its share was 20"),
        Fake("a rank that was idle before a restart", interrupted(3, change=idle_at_first)[0].records(), EXPECTED,
             WORKED, "rank 2 had nothing to do in epoch 1 (3 ranks, samples 0 to 60), but its share was 20"),
        Fake("a rank that joined, was idle, and says that it came last", joined(workers=2, change=joined_last), joins,
             WORKED, "rank 2 began at sample 100 of epoch 1, with 3 ranks, but rank 0 at sample 0 of epoch 1"),
        Fake("a rank that left without evidence", without_rank_2(), replace(joins, world_size=2), WORKED,
             "1 of 3 ranks left no evidence in epoch 1 (3 ranks, samples 0 to 60)"),
        Fake("a restart that went back", went_back(), joins, WORKED,
             "rank 0 began at sample 60 of epoch 1, with 3 ranks after it had begun at sample 0 of epoch 2"),
        Fake("two groups, each with a rank 0", second_master(), EXPECTED, "every rank took part",
             "rank 0 finished 2 times"),
        fake("the same samples everywhere", where("samples", **packed(list(range(100)))),
             "samples are disjoint and complete", "repeats 200 samples"),
        fake("E6: a data set of a trillion", where("begin", dataset_samples=10**12),
             "samples are disjoint and complete", "leaves out 999999999900 of 1000000000000 samples"),
        fake("E5: a resume from nothing", where("begin", 1, resumed={}), "records are whole",
             "does not say which chains it resumed"),
        fake("averages at the checked steps alone", at_samples(not_averaged), MEAN,
             "steps 1 to 4: what rank 0 holds is not the mean of 3 gradients"),
        fake("averages at some steps alone, and weights brought back together", drift, "weights agree",
             "steps 1 to 4: the ranks had 3 different weights"),
        fake("a rank that brings a copy of another's gradient, times a number", both(
            at_gradients(with_rank_2(-0.5, 1)), at_samples(with_rank_2(-0.5, 1))),
             "gradients differ before the all-reduce", "the gradient of rank 2 is that of rank 1, times -0.5"),
        fake("a rank that scales its gradient down to nothing", both(
            at_gradients(with_rank_2(1e-9)), at_samples(with_rank_2(1e-9))), MEAN,
             "rank 2 adds next to nothing: at most 1e-09 of what another adds"),
        fake("a rank that replays an earlier epoch", replayed, MEAN, "rank 1 has the gradient of steps 1 to 4"),
        fake("looks at steps of their own choice", at_gradients(chosen), "gradients differ before the all-reduce",
             "rank 0 looked at step 6, which was not due"),
        fake("a look that is left out", at_gradients(unlooked), "gradients differ before the all-reduce",
             "rank 0 did not look at step 5, which was due"),
        fake("steps that no record shows", unshown, EVERY_STEP, "rank 0 shows 4 of its 8 steps"),
        fake("steps that are shown twice", shown_twice, EVERY_STEP, "rank 0 shows steps 1 to 4 after step 4"),
        fake("a count of exchanges that the steps do not have", where("steps", 1, exchanges=1), EVERY_STEP,
             "rank 1 exchanged gradients 1 time in the 4 steps 1 to 4"),
        Fake("hardly a step sampled", World(samples=600, change=where("steps", 2, sampled=0)).train(), EXPECTED,
             EVERY_STEP, "rank 2 shows a sample of 0 of the steps 1 to 20, expected 5"),
        Fake("one sample too few", World(samples=600, change=where("steps", 2, sampled=4)).train(), EXPECTED,
             EVERY_STEP, "rank 2 shows a sample of 4 of the steps 1 to 20, expected 5"),
        fake("a world of yesterday's size", where("begin", 1, world_size=4), "every rank took part",
             "a rank reports a world of 4, expected 3"),
        Fake("pods of another job, of the same names", World().train(), replace(
            EXPECTED, pods={f"other-{rank}": "n" for rank in range(3)}), PODS, "is not a pod of this job"),
        Fake("exchanges, and never a step that is applied", World(epochs=1, change=where(
            "epoch", parameters="w0-0")).train(), replace(EXPECTED, epochs=1), "weights agree", "nothing was learned"),
        fake("ranks that begin with weights of their own", where("begin", 1, parameters="own"), "weights agree",
             "2 different sets of weights at the beginning"),
        fake("a rank that kept its weights", where("epoch", 2, parameters="own"), "weights agree",
             "2 different sets of weights"),
        fake("a rank that ends with weights of its own, of which no sample shows it", where("end", 1, parameters="own"),
             "weights agree", "2 different sets of weights at the end"),
        fake("a rank that does not show its last weights", where("end", 1, kind="other"), "weights agree",
             "rank 1 does not show its weights at the end"),
        fake("an epoch that was passed over", without_second, "all epochs", "got epochs 1, 3, expected 1 to 2"),
        Fake("a training that was cut short, for a file", short, OF_EVIDENCE, "all epochs",
             "got epochs 1, 2, expected 1 to 12"),
        fake("heads of nobody", where("heads", heads=[]), ATTEST, "rank 0 received 0 heads, expected 3 (epoch 1)"),
        Fake("heads of long ago", stale_heads(), EXPECTED, ATTEST, "the ranks recorded 3 different lists of heads"),
        fake("a chain without its first records", lambda record: record.update(seq=record["seq"] + 5), WHOLE,
             "rank 0 record 5 (begin) is the first of its chain, but not number 0"),
        Fake("a chain that does not begin with a start", noted_before(), EXPECTED, WHOLE,
             "rank 0 record 0 (note) is the first of its chain, but no begin"),
        Fake("ranks that resumed two checkpoints", interrupted(3, change=other_checkpoint)[0].records(), EXPECTED,
             WHOLE, "(begin) does not follow what its checkpoint carried"),
        Fake("steps that are missing between two starts", interrupted(3, change=leap)[0].records(), EXPECTED,
             EVERY_STEP, "rank 0 resumed after step 100, but shows steps up to 2"),
        fake("a rank that asks for the claims of an older format", where("begin", 1, format=1), "one job",
             "the ranks of one start wrote evidence of formats 1, 5"),
        fake("a rounding bound as wide as a sum that no gradient has", both(
            at_gradients(broadcast), where("gradients", norm=1e15)), MEAN,
             "rank 0 says that absolute values add up to 1e+15, which its checksums exclude"),
        fake("a rounding bound as wide as a sum of no elements", both(
            at_gradients(broadcast), where("gradients", norm=1e15, elements=0)), MEAN,
             "rank 0 says that absolute values add up to 1e+15, which its checksums exclude"),
        fake("a rounding bound as wide as one rank says", both(
            at_gradients(broadcast), where("gradients", 1, norm=1e7)), MEAN,
             "rank 1 says that absolute values add up to 1e+07, which its checksums exclude"),
        fake("a rounding bound of one rank's coarse numbers", both(
            at_gradients(without_rank_1), where("gradients", 1, dtype="bfloat16")), MEAN,
             "the ranks looked at different numbers or types of elements"),
        fake("a rounding bound of more elements than there are", both(
            at_gradients(broadcast), where("gradients", elements=2**53)), MEAN, "is not the mean of 3 gradients"),
        fake("a sum of absolute values below zero", where("gradients", 1, norm=-1.0), MEAN,
             "norm: got -1.0, expected a number >= 0"),
        fake("a sum that is called a script's own exchange", both(
            at_gradients(summed), where("gradients", by="hand")), MEAN, "is not the mean of 3 gradients"),
        fake("own gradients that are called parts of an average", both(
            at_gradients(kept_a_third), where("gradients", by="fully_shard", part=True)), MEAN,
             "is not the mean of 3 gradients"),
        fake("rounding that is called a hook's", both(at_gradients(
            lambda _, __, record: record.update(sums_after=[value + 0.001 for value in record["sums_after"]])),
            where("gradients", hooks=["bf16_compress_hook"])), MEAN, "is not the mean of 3 gradients"),
        fake("a rank that replays another's step", at_gradients(behind), MEAN,
             "step 5: rank 1 has the gradient of rank 0 at step 1"),
        Fake("a rank that looks again", looked_twice(), EXPECTED, MEAN, "step 1: rank 1 looked twice"),
        fake("a gradient of no elements", where("gradients", elements=0), MEAN,
             "rank 0 says that absolute values add up to 10, which its checksums exclude"),
        fake("a rank that adds nothing but at looks", at_samples(with_rank_2(0.0)), MEAN,
             "rank 2 adds next to nothing: at most 0 of what another adds"),
        fake("a rank that brings a copy but at looks", at_samples(with_rank_2(-0.5, 1)),
             "gradients differ before the all-reduce", "steps 1 to 4: the gradient of rank 2 is that of rank 1, times"),
    ]  # fmt: skip
