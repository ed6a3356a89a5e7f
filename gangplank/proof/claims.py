"""What a distributed training has to show, one decorated function per claim: whether it holds, and with which numbers.

`verdict.py` calls them all. Each reads the selected run and what the job's description asks for, and changes neither.
A docstring is the claim's row in docs/proof.md; `*` marks a mistake that tests make in a real run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gangplank.proof.records import Record, Run, unpack_ids
from gangplank.text import listed

# Clocks of two nodes may differ by this much before two attempts count as having run at the same time.
CLOCK_TOLERANCE_S = 5.0
GONE = "no evidence from this rank; if its pod is gone, only an `output` on a volume keeps it"


@dataclass(frozen=True)
class Expected:
    """What the job's description asks for; None where it does not say."""

    world_size: int
    """Processes that train together: pods times processes per pod."""
    epochs: int | None = None
    global_batch: int | None = None
    """Samples per optimizer step over all ranks."""
    job_uid: str | None = None
    processes_per_pod: int = 1


Judgement = tuple[bool, str]
Judge = Callable[[Run, Expected], Judgement]


@dataclass(frozen=True)
class Claim:
    """How one claim is judged, and the oldest format of evidence that holds the facts for it."""

    judge: Judge
    since: int


CLAIMS: dict[str, Claim] = {}
"""By name, in the order in which they are printed."""


def claim(name: str, since: int = 1) -> Callable[[Judge], Judge]:
    """Add a claim to CLAIMS; it is not asked of evidence of a format before `since`."""

    def register(judge: Judge) -> Judge:
        if name in CLAIMS:
            raise ValueError(f"claim {name!r} is registered twice")
        CLAIMS[name] = Claim(judge, since)
        return judge

    return register


def judged(problems: Sequence[str], detail: str, *, proven: bool = True) -> Judgement:
    """A claim holds without problems, if any record shows it.

    >>> judged([], "2 steps"), judged(["rank 1 is idle"], "2 steps"), judged([], "0 steps", proven=False)
    ((True, '2 steps'), (False, 'rank 1 is idle'), (False, 'no record shows it'))
    """
    return proven and not problems, listed(problems) or (detail if proven else "no record shows it")


@claim("records are whole")
def records_are_whole(run: Run, _: Expected) -> Judgement:
    """Every record has the hash of its content, and no chain has a gap.

    Fails for: a changed number*, a record left out*, a wrong sequence number.
    """
    count = sum(map(len, run.chains.values())) + len(run.earlier)
    problems = [f"{name} was altered" for name in run.altered] + list(run.gaps)
    return judged(problems, f"{count} records, every hash and every link holds", proven=count > 0)


@claim("one job")
def one_job(run: Run, expected: Expected) -> Judgement:
    """All evidence is of this job, and all ranks had the same settings and data.

    Fails for: another job's evidence*, a rank with other settings.
    """
    jobs = sorted({str(begin.get("job_uid")) for begin in run.begins})
    if expected.job_uid is not None and jobs != [expected.job_uid]:
        return False, f"got evidence of job {listed(jobs) or 'none'}, expected {expected.job_uid}"
    if len(jobs) != 1:
        return False, f"got evidence of {len(jobs)} jobs, expected one: {listed(jobs)}"
    settings = {(begin.text("settings"), begin.text("dataset")) for begin in run.of("begin")}
    problems = [f"{len(settings)} different settings or data sets among the ranks"] if len(settings) > 1 else []
    return judged(problems, f"job {jobs[0]}, the same settings and data on every rank", proven=bool(settings))


@claim("every rank took part")
def every_rank_took_part(run: Run, expected: Expected) -> Judgement:
    """Each rank of the world finished once, in as many pods as the job has, in one attempt.

    Fails for: two masters*, several worlds of one*, two ranks in one pod, a world of another size.
    """
    size = expected.world_size
    problems = [
        f"rank {rank} finished {count} times (two masters, or several worlds)"
        for rank, count in sorted(run.finals.items())
        if count > 1
    ]
    begun = {record["rank"] for record in run.abandoned}
    problems += [
        f"rank {rank} never finished" + ("" if rank in begun else f" ({GONE})")
        for rank in range(size)
        if not run.finals.get(rank)
    ]
    problems += [f"rank {rank} is outside a world of {size} ranks" for rank in sorted(run.finals) if rank >= size]
    begins = [run.last_begin(rank) for rank in run.chains]
    sizes = sorted({begin.whole("world_size") for begin in begins})
    problems += [f"a rank reports a world of {other}, expected {size}" for other in sizes if other != size]
    pods = Counter(begin.text("pod_uid") if begin.get("pod_uid") else begin.text("pod") for begin in begins)
    problems += [
        f"{count} ranks ran in pod {pod}, expected {expected.processes_per_pod}"
        for pod, count in sorted(pods.items())
        if count != expected.processes_per_pod
    ]
    attempts = {begin.text("attempt") for begin in begins}
    if len(attempts) > 1:
        problems.append(f"the ranks finished in {len(attempts)} separate attempts")
    nodes = sorted({begin.text("node") for begin in begins})
    return judged(problems, f"0 to {size - 1}, each once, in {len(pods)} pods on {listed(nodes)}")


@claim("one attempt at a time")
def one_attempt_at_a_time(run: Run, _: Expected) -> Judgement:
    """No other process wrote evidence while these ranks trained; clocks of nodes may differ by 5 s.

    Fails for: a second master that never finished*.
    """
    if not run.chains:
        return False, "no rank finished"
    began = min(run.last_begin(rank).number("time") for rank in run.chains)
    late = [record.name for record in run.abandoned if record.number("time") > began + CLOCK_TOLERANCE_S]
    problems = [f"another process wrote {listed(late)} while the ranks were training"] if late else []
    resumes = sum(begin.get("resumed") is not None for begin in run.of("begin", min(run.chains)))
    return judged(problems, f"{resumes} resumes, {len(run.abandoned)} records of work abandoned before the last start")


@claim("ranks attest each other")
def ranks_attest_each_other(run: Run, _: Expected) -> Judgement:
    """Every exchange of heads agrees with the chains: each rank saw exactly this evidence of the others.

    Fails for: one rank's rewritten chain, all hashes corrected*; a chain that grew out of another rank's.
    """
    problems, exchanges = [], 0
    hashes = {rank: {record["hash"] for record in chain} for rank, chain in run.chains.items()}
    for rank in run.chains:
        for record in run.of("heads", rank):
            exchanges += 1
            heads = record["heads"]
            if not isinstance(heads, list):
                raise record.refused("heads", "a list of hashes")
            problems += [
                f"rank {rank} received the head of another chain of rank {other} (epoch {record.get('epoch')})"
                for other, head in enumerate(map(str, heads))
                if other in hashes and head not in hashes[other]
            ]
            if rank < len(heads) and heads[rank] != record["prev"]:
                problems.append(f"{record.name} does not follow its own head")
    return judged(problems, f"{exchanges} exchanges: each rank saw these records of the others", proven=exchanges > 0)


def epochs_of(run: Run) -> list[int]:
    """The epochs that any rank finished."""
    return sorted({record.whole("epoch") for record in run.of("epoch")})


def joined_late(run: Run) -> set[int]:
    """Ranks that joined after the start, when the world grew."""
    return {rank for rank in run.chains if run.starts(rank)[0].get("resumed") is not None}


@claim("all epochs")
def all_epochs(run: Run, expected: Expected) -> Judgement:
    """Every rank has every epoch that the job asked for.

    Fails for: a missing or repeated epoch.
    """
    last = expected.epochs or max(epochs_of(run), default=0)
    epochs = {rank: [record.whole("epoch") for record in run.of("epoch", rank)] for rank in sorted(run.chains)}
    problems = [
        f"rank {rank} has epochs {listed(numbers) or 'none'}"
        for rank, numbers in epochs.items()
        if numbers != list(range(1, last + 1)) and rank not in joined_late(run)
    ]
    return judged(problems, f"1 to {last} on every rank", proven=bool(epochs_of(run)))


@claim("every rank worked")
def every_rank_worked(run: Run, _: Expected) -> Judgement:
    """In every epoch each rank had samples, and all ranks took the same number of steps.

    Fails for: an idle rank*, a rank with fewer steps.
    """
    problems, steps = [], Counter[int]()
    for epoch in epochs_of(run):
        rows = {rank: [r for r in run.of("epoch", rank) if r["epoch"] == epoch] for rank in run.chains}
        counts = {rank: (r[-1].whole("steps"), r[-1].whole("samples")) for rank, r in rows.items() if r}
        problems += [f"rank {rank} had nothing to do in epoch {epoch}" for rank, (_steps, n) in counts.items() if not n]
        if len(set(counts.values())) > 1 and not joined_late(run):
            problems.append(f"steps and samples differ in epoch {epoch}: {counts}")
        steps.update({rank: count for rank, (count, _samples) in counts.items()})
    return judged(problems, f"steps of each rank: {listed(sorted(steps.items()))}", proven=bool(steps))


@claim("samples are disjoint and complete")
def samples_are_disjoint_and_complete(run: Run, _: Expected) -> Judgement:
    """Every epoch covers the whole data set, and ranks share no sample.

    At most world size - 1 samples are repeated, which are the sampler's padding.

    Fails for: a missing `DistributedSampler`*, a sample left out, all samples on one rank.
    """
    problems, notes = [], []
    # Where the world shrank, an epoch may have the padding of the larger one.
    padding = max((begin.whole("world_size") for begin in run.of("begin")), default=1) - 1
    size = max((begin.whole("dataset_samples") for begin in run.of("begin")), default=0)
    for epoch in epochs_of(run):
        ids = Counter(i for record in run.of("samples") if record["epoch"] == epoch for i in unpack_ids(record))
        repeats = sorted(i for i, count in ids.items() for _ in range(count - (i < size)))
        missing = size - sum(i < size for i in ids)
        if missing:
            problems.append(f"epoch {epoch} leaves out {missing} of {size} samples")
        if any(i >= size for i in ids):
            problems.append(f"epoch {epoch} has ids beyond {size - 1}")
        if len(repeats) > padding:
            problems.append(f"epoch {epoch} repeats {len(repeats)} samples, but the sampler pads at most {padding}")
        elif repeats:
            notes.append(f"epoch {epoch} repeats {listed(repeats)}")
    detail = "; ".join([f"{size} samples in each epoch, no two ranks share one", *notes[:3]])
    return judged(problems, detail, proven=bool(epochs_of(run)))


@claim("global batch")
def global_batch(run: Run, expected: Expected) -> Judgement:
    """Samples per step, over all ranks, are what the job asked for.

    Fails for: another batch size, a rank with more or fewer steps than its samples need.
    """
    problems, sizes = [], set()
    for rank in run.chains:
        begin = run.last_begin(rank)
        per_step = begin.whole("batch_size") * begin.whole("accumulate")
        sizes.add(per_step * begin.whole("world_size"))
        if any(r.get("resumed") for r in run.of("begin", rank)):
            continue  # an epoch that two batch sizes share has no single number of steps
        for record in run.of("epoch", rank):
            steps, samples = record.whole("steps"), record.whole("samples")
            if steps != -(-samples // max(per_step, 1)):
                problems.append(
                    f"rank {rank} took {steps} steps for {samples} samples in epoch {record['epoch']}, "
                    f"expected {-(-samples // max(per_step, 1))}"
                )
    if len(sizes) != 1 or expected.global_batch not in {None, *sizes}:
        problems.append(
            f"global batch {listed(sorted(sizes)) or 'unknown'}, expected {expected.global_batch or 'one'}"
        )
    return judged(problems, f"{listed(sorted(sizes))} samples per step")


def gradients_of(run: Run) -> dict[tuple[int, int], dict[int, Record]]:
    """Gradient records by (epoch, step), then by rank."""
    table: dict[tuple[int, int], dict[int, Record]] = {}
    for record in run.of("gradients"):
        table.setdefault((record.whole("epoch"), record.whole("step")), {})[record.whole("rank")] = record
    return table


@claim("gradients differ before the all-reduce")
def gradients_differ_before(run: Run, expected: Expected) -> Judgement:
    """At checked steps each rank computed a gradient of its own.

    Fails for: the same samples on several ranks*, a model not wrapped in DDP*.
    """
    table = gradients_of(run)
    problems = [
        f"no gradients of epoch {epoch} were exchanged (is the model wrapped in DDP?)"
        for epoch in epochs_of(run)
        if not any(e == epoch for e, _ in table)
    ]
    for (epoch, step), rows in table.items():
        problems += [
            f"rank {rank} exchanged none in epoch {epoch}"
            for rank in run.chains
            if rank not in rows and rank not in joined_late(run)
        ]
        gradients = {record.text("before") for record in rows.values()}
        if len(gradients) < len(rows):
            problems.append(
                f"step {step}: {len(rows)} ranks, {len(gradients)} different gradients before the "
                "all-reduce (the same samples on several ranks?)"
            )
    if expected.world_size == 1:
        return judged(problems, "one rank: nothing to compare")
    return judged(problems, f"different on every rank at {len(table)} checked steps", proven=bool(table))


@claim("gradients agree after the all-reduce")
def gradients_agree_after(run: Run, expected: Expected) -> Judgement:
    """At the same steps all ranks hold the same average, and it is not their own gradient.

    Fails for: a rank that kept its own gradient, a model not wrapped in DDP*.
    """
    table, problems = gradients_of(run), []
    for (_, step), rows in table.items():
        averages = {record.text("after") for record in rows.values()}
        if len(averages) > 1:
            problems.append(f"step {step}: ranks hold {len(averages)} different averages")
        problems += [
            f"step {step}: rank {rank} kept its own gradient"
            for rank, record in rows.items()
            if expected.world_size > 1 and record["after"] == record["before"]
        ]
    detail = f"equal on all ranks after the all-reduce at {len(table)} checked steps"
    return judged(problems, detail, proven=bool(table))


@claim("weights agree")
def weights_agree(run: Run, _: Expected) -> Judgement:
    """After each epoch all ranks have the same weights, and these change from epoch to epoch.

    Fails for: a rank with other weights*, training that learned nothing.
    """
    problems, hashes = [], []
    for epoch in epochs_of(run):
        weights = {record.text("parameters") for record in run.of("epoch") if record["epoch"] == epoch}
        hashes += sorted(weights)[:1]
        if len(weights) > 1:
            problems.append(f"{len(weights)} different sets of weights after epoch {epoch}")
    if len(set(hashes)) < len(hashes):
        problems.append("the weights of two epochs are equal: nothing was learned between them")
    return judged(problems, f"the same on every rank after each of {len(hashes)} epochs", proven=bool(hashes))
