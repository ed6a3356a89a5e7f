"""What a distributed training has to show, one function per claim: whether it holds, and the numbers that say so.

`proof.py` calls them all. Each reads the selected run and what the job's description says, and changes neither.
"""

from __future__ import annotations

import binascii
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.proof.records import Record, Run, record_name, unpack_ids
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable

# Clocks of two nodes may differ by this much before two attempts count as having run at the same time.
CLOCK_TOLERANCE_S = 5.0


@dataclass(frozen=True)
class Expected:
    """What the job's description says; None where it says nothing."""

    world_size: int
    """Processes that train together: pods times processes per pod."""
    epochs: int | None = None
    global_batch: int | None = None
    """Samples per optimizer step over all ranks."""
    job_uid: str | None = None
    processes_per_pod: int = 1


def _records_are_whole(run: Run, _: Expected) -> tuple[bool, str]:
    count = sum(map(len, run.chains.values())) + len(run.earlier)
    problems = [f"{name} was altered" for name in run.altered] + list(run.gaps)
    return not problems and count > 0, listed(problems) or f"{count} records, every hash and every link holds"


def _one_job(run: Run, expected: Expected) -> tuple[bool, str]:
    begins = run.of("begin") + [r for r in run.abandoned if r["kind"] == "begin"]
    jobs = sorted({str(r.get("job_uid")) for r in begins})
    settings = {(r.get("settings"), r.get("dataset")) for r in run.of("begin")}
    if expected.job_uid is not None and jobs != [expected.job_uid]:
        return False, f"evidence is of job {listed(jobs) or 'nobody'}, expected {expected.job_uid}"
    if len(jobs) != 1:
        return False, f"evidence of {len(jobs)} jobs: {listed(jobs)}"
    return len(settings) == 1, (
        f"job {jobs[0]}, the same settings and data on every rank"
        if len(settings) == 1
        else f"{len(settings)} different settings or data sets among the ranks"
    )


GONE = "not a word of it: where its pod is gone, only `output` on a claim keeps it"


def _every_rank_took_part(run: Run, expected: Expected) -> tuple[bool, str]:
    size = expected.world_size
    problems = [
        f"rank {rank} finished {count} times (two masters, or several worlds)"
        for rank, count in sorted(run.finals.items())
        if count > 1
    ]
    begun = {record.get("rank") for record in run.abandoned}
    for rank in range(size):
        if not run.finals.get(rank):
            gone = "" if rank in begun else f" ({GONE})"
            problems.append(f"rank {rank} never finished{gone}")
    problems += [f"rank {rank} is not of a world of {size}" for rank in sorted(run.finals) if rank >= size]
    sizes = sorted({int(str(run.last_begin(rank)["world_size"])) for rank in run.chains})
    problems += [f"a rank says the world has {other}, expected {size}" for other in sizes if other != size]
    pods = Counter(str(run.last_begin(rank).get("pod_uid") or run.last_begin(rank)["pod"]) for rank in run.chains)
    problems += [
        f"{count} ranks ran in pod {pod}, expected {expected.processes_per_pod}"
        for pod, count in sorted(pods.items())
        if count != expected.processes_per_pod
    ]
    attempts = {run.last_begin(rank).get("attempt") for rank in run.chains}
    if len(attempts) > 1:
        problems.append(f"the ranks finished in {len(attempts)} separate attempts")
    nodes = sorted({str(run.last_begin(rank)["node"]) for rank in run.chains})
    return not problems, listed(problems) or f"0 to {size - 1}, each once, in {len(pods)} pods on {listed(nodes)}"


def _one_attempt_at_a_time(run: Run, _: Expected) -> tuple[bool, str]:
    if not run.chains:
        return False, "no rank finished"
    began = min(float(str(run.last_begin(rank)["time"])) for rank in run.chains)
    late = [r for r in run.abandoned if float(str(r["time"])) > began + CLOCK_TOLERANCE_S]
    if late:
        return False, f"while the ranks trained, another process wrote {listed([record_name(r) for r in late])}"
    resumes = sum(r.get("resumed") is not None for r in run.of("begin", min(run.chains)))
    return True, f"{resumes} resumes, {len(run.abandoned)} records of work that was given up before the last start"


def _heads_agree(run: Run, _: Expected) -> tuple[bool, str]:
    problems, exchanges = [], 0
    per_rank = {rank: run.of("heads", rank) for rank in run.chains}
    own = {rank: {str(r["hash"]): str(r["prev"]) for r in chain} for rank, chain in run.chains.items()}
    for rank, records in per_rank.items():
        for record in records:
            exchanges += 1
            heads = record["heads"]
            if not isinstance(heads, list):
                problems.append(f"{record_name(record)} lists no heads")
                continue
            for other, head in enumerate(heads):
                if other in own and head not in own[other]:
                    problems.append(
                        f"rank {rank} was shown a chain of rank {other} that is not this one "
                        f"(epoch {record.get('epoch')})"
                    )
            if rank < len(heads) and heads[rank] != record["prev"]:
                problems.append(f"{record_name(record)} does not follow its own head")
    return not problems and exchanges > 0, (
        listed(problems) or f"{exchanges} exchanges: what each rank saw of the others is here"
    )


def _epochs(run: Run) -> list[int]:
    return sorted({int(str(r["epoch"])) for r in run.of("epoch")})


def _all_epochs(run: Run, expected: Expected) -> tuple[bool, str]:
    wanted = expected.epochs or max(_epochs(run), default=0)
    problems = [
        f"rank {rank} has epochs {listed(seen) or 'none'}"
        for rank in sorted(run.chains)
        if (seen := [int(str(r["epoch"])) for r in run.of("epoch", rank)]) != list(range(1, wanted + 1))
        and rank not in _joined_late(run)
    ]
    return not problems and wanted > 0, listed(problems) or f"1 to {wanted} on every rank"


def _joined_late(run: Run) -> set[int]:
    """Ranks that were not there at the start because the world grew."""
    return {rank for rank in run.chains if run.of("begin", rank)[0].get("resumed") is not None}


def _every_rank_worked(run: Run, _: Expected) -> tuple[bool, str]:
    problems, steps = [], Counter[int]()
    for epoch in _epochs(run):
        rows = {rank: [r for r in run.of("epoch", rank) if r["epoch"] == epoch] for rank in run.chains}
        counts = {rank: (r[-1]["steps"], r[-1]["samples"]) for rank, r in rows.items() if r}
        problems += [
            f"rank {rank} had nothing to do in epoch {epoch}" for rank, (_, seen) in counts.items() if not seen
        ]
        if len(set(counts.values())) > 1 and not _joined_late(run):
            problems.append(f"steps and samples differ in epoch {epoch}: {counts}")
        for rank, (done, _seen) in counts.items():
            steps[rank] += int(str(done))
    return not problems and bool(steps), listed(problems) or f"steps of each rank: {listed(sorted(steps.items()))}"


def _samples_cover_the_epoch(run: Run, _: Expected) -> tuple[bool, str]:
    problems, notes = [], []
    # The sampler repeats at most world size - 1 samples; where the world shrank, an epoch may be of the larger one.
    padding = max((int(str(r["world_size"])) for r in run.of("begin")), default=1) - 1
    sizes = {int(str(r["dataset_samples"])) for r in run.of("begin")}
    size = max(sizes, default=0)
    for epoch in _epochs(run):
        try:
            ids = Counter(i for r in run.of("samples") if r["epoch"] == epoch for i in unpack_ids(r))
        except (ValueError, TypeError, KeyError, zlib.error, binascii.Error) as error:
            problems.append(f"samples of epoch {epoch} cannot be read ({error})")
            continue
        repeats = sorted((ids - Counter(range(size))).elements())
        missing = size - sum(i in ids for i in range(size))
        if missing:
            problems.append(f"epoch {epoch} leaves out {missing} of {size} samples")
        if any(i >= size for i in ids):
            problems.append(f"epoch {epoch} has ids beyond {size - 1}")
        if len(repeats) > padding:
            problems.append(f"epoch {epoch} repeats {len(repeats)} samples, at most {padding} can be the sampler's "
                            "padding")
        elif repeats:
            notes.append(f"epoch {epoch} repeats {listed(repeats)}")
    detail = listed(problems) or "; ".join([f"{size} samples in each epoch, no two ranks share one", *notes[:3]])
    return not problems and bool(_epochs(run)), detail


def _global_batch(run: Run, expected: Expected) -> tuple[bool, str]:
    problems, sizes = [], set()
    for rank in run.chains:
        begin = run.last_begin(rank)
        per_step = int(str(begin["batch_size"])) * int(str(begin["accumulate"]))
        sizes.add(per_step * int(str(begin["world_size"])))
        if any(r.get("resumed") for r in run.of("begin", rank)):
            continue  # an epoch that two batch sizes share has no single number of steps
        for record in run.of("epoch", rank):
            steps, samples = int(str(record["steps"])), int(str(record["samples"]))
            if steps != -(-samples // per_step):
                problems.append(
                    f"rank {rank} took {steps} steps for {samples} samples in epoch {record['epoch']}, "
                    f"expected {-(-samples // per_step)}"
                )
    if len(sizes) != 1 or expected.global_batch not in {None, *sizes}:
        problems.append(
            f"global batch {listed(sorted(sizes)) or 'unknown'}, expected {expected.global_batch or 'one'}"
        )
    return not problems, listed(problems) or f"{next(iter(sizes))} samples per step"


def _gradients(run: Run) -> dict[tuple[int, int], dict[int, Record]]:
    """Gradient records by (epoch, step), then by rank."""
    table: dict[tuple[int, int], dict[int, Record]] = {}
    for record in run.of("gradients"):
        key = (int(str(record["epoch"])), int(str(record["step"])))
        table.setdefault(key, {})[int(str(record["rank"]))] = record
    return table


def _gradients_were_own(run: Run, expected: Expected) -> tuple[bool, str]:
    table = _gradients(run)
    problems = [
        f"no gradients of epoch {epoch} were exchanged (is the model wrapped in DDP?)"
        for epoch in _epochs(run)
        if not any(e == epoch for e, _ in table)
    ]
    for (epoch, step), rows in table.items():
        problems += [
            f"rank {rank} exchanged none in epoch {epoch}"
            for rank in run.chains
            if rank not in rows and rank not in _joined_late(run)
        ]
        before = [r["before"] for r in rows.values()]
        if len(set(before)) < len(before):
            problems.append(
                f"step {step}: {len(before)} ranks, {len(set(before))} different gradients before the "
                "all-reduce (the same samples on several ranks?)"
            )
    if expected.world_size == 1:
        return not problems, listed(problems) or "one rank: nothing to compare"
    return not problems and bool(table), listed(problems) or f"different on every rank at {len(table)} checked steps"


def _gradients_were_averaged(run: Run, expected: Expected) -> tuple[bool, str]:
    table = _gradients(run)
    problems = [
        f"step {step}: ranks hold {len({r['after'] for r in rows.values()})} different averages"
        for (_, step), rows in table.items()
        if len({r["after"] for r in rows.values()}) > 1
    ]
    problems += [
        f"step {step}: rank {rank} kept its own gradient"
        for (_, step), rows in table.items()
        for rank, r in rows.items()
        if expected.world_size > 1 and r["after"] == r["before"]
    ]
    return not problems and bool(table), (
        listed(problems)
        or (
            "no gradients were exchanged"
            if not table
            else f"equal on all ranks after the all-reduce at {len(table)} checked steps"
        )
    )


def _weights_agree(run: Run, _: Expected) -> tuple[bool, str]:
    problems, hashes = [], []
    for epoch in _epochs(run):
        weights = {str(r["parameters"]) for r in run.of("epoch") if r["epoch"] == epoch}
        hashes += sorted(weights)[:1]
        if len(weights) > 1:
            problems.append(f"{len(weights)} different sets of weights after epoch {epoch}")
    if len(set(hashes)) < len(hashes):
        problems.append("the weights of two epochs are equal: nothing was learned between them")
    return not problems and bool(hashes), listed(
        problems
    ) or f"the same on every rank after each of {len(hashes)} epochs"


CLAIMS: tuple[tuple[str, Callable[[Run, Expected], tuple[bool, str]]], ...] = (
    ("records are whole", _records_are_whole),
    ("one job", _one_job),
    ("every rank took part", _every_rank_took_part),
    ("one attempt at a time", _one_attempt_at_a_time),
    ("ranks attest each other", _heads_agree),
    ("all epochs", _all_epochs),
    ("every rank worked", _every_rank_worked),
    ("samples are disjoint and complete", _samples_cover_the_epoch),
    ("global batch", _global_batch),
    ("gradients differ before the all-reduce", _gradients_were_own),
    ("gradients agree after the all-reduce", _gradients_were_averaged),
    ("weights agree", _weights_agree),
)
