"""What a distributed training has to show, one decorated function per claim: whether it holds, and with which numbers.

`verdict.py` calls them all. Each reads the selected run and what the job's description asks for, and changes neither.
A docstring is the claim's row in docs/proof.md; `*` marks a mistake that tests make in a real run.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from gangplank.proof import observed, steps
from gangplank.proof.judgement import Judgement, judged
from gangplank.proof.plan import parts, shortfalls, starts_of
from gangplank.proof.records import Record, Run, ids_in, unpack_bits
from gangplank.text import counted, listed

# Clocks of two nodes, or of a node and the API server, may differ by this much.
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
    processes_per_pod: int | None = 1
    created: float | None = None
    """When the API server got the job, in seconds since 1970."""
    pods: Mapping[str, str] | None = None
    """The pods that a cluster has or had of the job: node by uid, '' where it was not asked for the node."""
    unsized: bool = False
    """Whether the size of the world is what the evidence says, at least `world_size`, as nobody else was asked."""
    replicas: int | None = None
    """Pods of a job that does not say how many processes each of them starts."""

    def sized(self, run: Run) -> Expected:
        """It with the world's size, where the evidence says that."""
        return replace(self, world_size=max(self.world_size, run.world_size)) if self.unsized else self


MOST_NAMED = 6  # ranks or ids in one message
Judge = Callable[[Run, Expected], Judgement]


@dataclass(frozen=True)
class Claim:
    """How one claim is judged, and the oldest format of evidence that holds the facts for it."""

    judge: Judge
    since: int
    unseen: str = ""
    """Why it is not claimed of a script that is observed from outside; "" if it is."""


CLAIMS: dict[str, Claim] = {}
"""By name, in the order in which they are printed."""


def claim(name: str, since: int = 1, unseen: str = "") -> Callable[[Judge], Judge]:
    """Add a claim to CLAIMS; it is not asked of evidence of a format before `since`."""

    def register(judge: Judge) -> Judge:
        if name in CLAIMS:
            raise ValueError(f"claim {name!r} is registered twice")
        CLAIMS[name] = Claim(judge, since, unseen)
        return judge

    return register


@claim("records are whole")
def records_are_whole(run: Run, _: Expected) -> Judgement:
    """Every record has the hash of its content, and no chain has a gap.

    Fails for: a changed number*, a record left out*, a wrong sequence number.
    """
    count = sum(map(len, run.chains.values())) + len(run.earlier)
    problems = [f"{name} was altered" for name in run.altered] + list(run.gaps)
    return judged(problems, f"{counted(count, 'record')}, every hash and every link holds", proven=count > 0)


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
    if mixed := mixed_formats(run):
        return False, mixed
    if run.observed:
        scripts = {begin.text("settings") for begin in run.of("begin")}
        problems = [f"{len(scripts)} different scripts or arguments among the ranks"] if len(scripts) > 1 else []
        return judged(problems, f"job {jobs[0]}, the same script and arguments on every rank", proven=bool(scripts))
    settings = {(begin.text("settings"), begin.text("dataset")) for begin in run.of("begin")}
    problems = [f"{len(settings)} different settings or data sets among the ranks"] if len(settings) > 1 else []
    return judged(problems, f"job {jobs[0]}, the same settings and data on every rank", proven=bool(settings))


def mixed_formats(run: Run) -> str:
    """Of which formats one start has evidence, "" if each has one: the oldest decides what is claimed of a run."""
    formats: dict[str, set[int]] = {}
    for begin in run.of("begin"):
        formats.setdefault(begin.text("attempt"), set()).add(begin.whole("format") if "format" in begin else 1)
    mixed = next((sorted(every) for every in formats.values() if len(every) > 1), [])
    return f"the ranks of one start wrote evidence of formats {listed(mixed)}" if mixed else ""


@claim("pods are the job's")
def pods_are_the_jobs(run: Run, expected: Expected) -> Judgement:
    """Every rank ran in a pod that the API server knows as this job's, and no record is older than the job.

    Clocks may differ by 5 s. It is not asked of pods that are gone if nobody watched them, as those of earlier starts
    often are, nor of files alone.

    Fails for: a replay*, evidence of another job*, a pod on another node, a checkpoint of an earlier job.
    """
    if expected.created is not None and (records := run.records):
        oldest = min(records, key=lambda record: record.number("time"))
        age = expected.created - oldest.number("time")
        if age > CLOCK_TOLERANCE_S:
            replayed = (
                "(a replay, or a checkpoint of an earlier job of this name)."
                " Fix: remove what an earlier job left in the output folder, or name another folder"
            )
            return False, f"{oldest.name} is {age:.0f} s older than the job {other_clock(run) or replayed}"
    if expected.pods is None:
        return None, "not asked: files do not say which pods were the job's. Fix: give --pods, or ask the cluster"
    nodes = expected.pods
    lasts = [run.last_begin(rank) for rank in sorted(run.chains)]
    strangers = [f"rank {begin['rank']} ran in pod {begin.get('pod_uid') or begin.get('pod')}"
                 for begin in lasts if uid_of(begin) not in nodes]
    problems = [f"rank {begin['rank']} says node {begin['node']}, but its pod ran on {node}"
                for begin in run.begins  # of every start: a pod of an earlier one may be gone
                if (node := nodes.get(uid_of(begin))) and node != begin["node"]]
    ranks = len(lasts)
    gone = len(nodes) < expected.replicas if expected.replicas else (
        len(nodes) * (expected.processes_per_pod or 1) < expected.world_size)
    if strangers and (not gone or (nodes and len(strangers) == ranks)):
        problems += [f"{stranger}, which is not a pod of this job" for stranger in strangers]
    elif strangers and not problems:
        return None, f"not asked: {listed(strangers)}, but pods of the job are gone and nobody watched them"
    before = {str(begin.get("pod_uid")) for begin in run.begins} - set(nodes)
    note = f"; not asked of {counted(len(before), 'pod')} of earlier starts, which are gone" if before else ""
    return judged(problems, f"{counted(ranks, 'rank')} in pods of this job{note}", proven=ranks > 0)


@claim("more than one rank")
def more_than_one_rank(run: Run, expected: Expected) -> Judgement:
    """Several ranks trained, and in several pods unless the job asks for one pod.

    Fails for: a world of one*, all ranks in one pod.
    """
    begins = [run.last_begin(rank) for rank in run.chains]
    pods = {pod_of(begin) for begin in begins}
    size = min([expected.world_size, *(begin.whole("world_size") for begin in begins)])
    problems = [f"got a world of {size}, expected several ranks"] if size <= 1 else []
    loners = [str(rank) for rank in sorted(run.chains) if run.last_begin(rank).get("joined") is False]
    if loners:  # an observed script
        problems.append(f"rank {listed(loners)} never joined a process group (the script does not call "
                        "init_process_group), so each trained alone")
    if begins and size > 1 and len(pods) == 1 and (expected.processes_per_pod or 1) < size and expected.replicas != 1:
        problems.append(f"all {len(begins)} ranks ran in one pod, which no job asked for")
    return judged(problems, f"{counted(len(begins), 'rank')} in {counted(len(pods), 'pod')}", proven=bool(begins))


def uid_of(begin: Record) -> str:
    """The uid that a process says its pod has, "" for anything else than a text."""
    uid = begin.get("pod_uid")
    return uid if isinstance(uid, str) else ""


def pod_of(begin: Record) -> str:
    """The pod of a process: its uid, else its name."""
    return begin.text("pod_uid") if begin.get("pod_uid") else begin.text("pod")


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
    missing = size - sum(rank < size for rank in run.finals)  # a size may be any number that a record holds
    absent = (rank for rank in range(size) if not run.finals.get(rank))
    problems += [
        f"rank {rank} never finished" + ("" if rank in begun else f" ({GONE})") for rank in islice(absent, MOST_NAMED)
    ]
    if missing > MOST_NAMED:
        problems.append(f"{counted(missing - MOST_NAMED, 'more rank')} never finished")
    problems += [f"rank {rank} is outside a world of {counted(size, 'rank')}"
                 for rank in sorted(run.finals) if rank >= size]
    begins = [run.last_begin(rank) for rank in run.chains]
    sizes = sorted({begin.whole("world_size") for begin in begins})
    problems += [f"a rank reports a world of {other}, expected {size}" for other in sizes if other != size]
    pods = Counter(map(pod_of, begins))
    problems += [
        f"{counted(count, 'rank')} ran in pod {pod}, expected {expected.processes_per_pod}"
        for pod, count in sorted(pods.items())
        if expected.processes_per_pod not in {None, count}
    ]
    if expected.replicas not in {None, len(pods)}:
        problems.append(f"the ranks ran in {counted(len(pods), 'pod')}, expected {expected.replicas}")
    attempts = {begin.text("attempt") for begin in begins}
    if len(attempts) > 1:
        problems.append(f"the ranks finished in {len(attempts)} separate attempts")
    nodes = sorted({begin.text("node") for begin in begins})
    source = "" if expected.processes_per_pod else "; how many ranks a pod should have, no job says"
    if expected.unsized:
        numbered = "start it by torchrun with --nproc-per-node as a number"
        fix = "give --world-size" if expected.replicas is None else numbered
        source += f"; that {size} are all, the evidence alone says. Fix: {fix}"
    return judged(problems, f"0 to {size - 1}, each once, in {counted(len(pods), 'pod')} on {listed(nodes)}{source}")


def other_clock(run: Run) -> str:
    """Which rank's clock was furthest from the others' after an exchange that all ranks have, and the fix.

    All ranks end an epoch together: they exchange a mean in it. Of an observed script, they have an exchange of
    gradients. It is "" if the clocks agreed. Of two ranks, it is the one that was behind.
    """
    kind = "gradients" if run.observed else "epoch"
    ends = {rank: {str((end.get("epoch"), end.get("step"))): end.number("time") for end in run.of(kind, rank)}
            for rank in run.chains}  # fmt: skip
    common = set.intersection(*map(set, ends.values())) if ends else set()
    each = [sorted((own[moment], rank) for rank, own in ends.items()) for moment in common]
    times = max(each, key=lambda one: one[-1][0] - one[0][0], default=[(0.0, 0)])
    (least, slow), (most, fast) = times[0], times[-1]
    if most - least <= CLOCK_TOLERANCE_S:
        return ""
    middle = statistics.median(time for time, _ in times)
    rank, side = (fast, "ahead of") if most - middle > middle - least + CLOCK_TOLERANCE_S else (slow, "behind")
    return (f"(the clock of rank {rank} was {most - least:.0f} s {side} another's)."
            " Fix: let the nodes keep the same time (NTP), and train again")  # fmt: skip


@claim("one attempt at a time")
def one_attempt_at_a_time(run: Run, _: Expected) -> Judgement:
    """No other process wrote evidence while these ranks trained; clocks of nodes may differ by 5 s.

    Fails for: a second master that never finished*.
    """
    if not run.chains:
        return False, "no rank finished"
    began = min(run.last_begin(rank).number("time") for rank in run.chains)
    late = [record.name for record in run.abandoned if record.number("time") > began + CLOCK_TOLERANCE_S]
    problems = []
    if late:
        text = f"another process wrote {listed(late)} while the ranks were training"
        problems.append(f"{text} {other_clock(run)}".rstrip())
    resumes = sum(begin.get("resumed") is not None for begin in run.of("begin", min(run.chains)))
    abandoned = counted(len(run.abandoned), "record")
    return judged(problems, f"{counted(resumes, 'resume')}, {abandoned} of work abandoned before the last start")


def other_heads(run: Run) -> list[str]:
    """Exchanges in which a rank did not record a head of each rank, or other heads than the other ranks."""
    problems, lists = [], dict[tuple[str, object], set[str]]()
    for record, begin in run.with_begin("heads"):
        heads, size = record["heads"], begin.whole("world_size")
        if isinstance(heads, list) and len(heads) != size:
            problems.append(f"rank {record['rank']} received {len(heads)} heads, expected {size} "
                            f"(epoch {record.get('epoch')})")
        lists.setdefault((begin.text("attempt"), str(record.get("epoch"))), set()).add(str(heads))
    return problems + [f"the ranks recorded {len(each)} different lists of heads (epoch {epoch})"
                       for (_, epoch), each in lists.items() if len(each) > 1]


@claim("ranks attest each other")
def ranks_attest_each_other(run: Run, _: Expected) -> Judgement:
    """Every exchange of heads agrees with the chains: each rank saw exactly this evidence of the others.

    Fails for: one rank's rewritten chain, all hashes corrected*; a chain that grew out of another rank's.
    """
    problems, exchanges, seen = [] if run.observed else other_heads(run), 0, set[tuple[int, int]]()
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
                if other in hashes and head not in hashes[other] and not (run.observed and heads[other] is None)
            ]
            seen.update((rank, other) for other, head in enumerate(heads) if head is not None)
            if rank < len(heads) and heads[rank] != record["prev"]:
                problems.append(f"{record.name} does not follow its own head")
    if run.observed:  # ranks do not wait for each other's hashes while they train, and may leave before the last ones
        problems += [f"rank {rank} never saw evidence of rank {other}" for rank in run.chains for other in run.chains
                     if (rank, other) not in seen]
    detail = f"{counted(exchanges, 'exchange')}: each rank saw these records of the others"
    return judged(problems, detail, proven=exchanges > 0)


def epochs_of(run: Run) -> list[int]:
    """The epochs that any rank finished."""
    return sorted({record.whole("epoch") for record in run.of("epoch")})


@claim("all epochs", unseen="a script does not say what its epochs are")
def all_epochs(run: Run, expected: Expected) -> Judgement:
    """Every rank has every epoch that the job asked for; a file alone says how many its ranks were to train.

    Fails for: a missing or repeated epoch.
    """
    finished, starts = epochs_of(run), starts_of(run)
    asked = [begin.whole("epochs") for begin in map(run.last_begin, run.chains) if "epochs" in begin]
    last = expected.epochs or max(asked or finished, default=0)
    if finished and (len(finished), finished[0], finished[-1]) != (last, 1, last):
        return False, f"got epochs {listed(finished)}, expected 1 to {last}"
    sizes = {epoch: [part.start.world_size for part in parts(starts, epoch)][-1:] for epoch in finished}
    problems = []
    for rank in sorted(run.chains):
        numbers = [record.whole("epoch") for record in run.of("epoch", rank)]
        if numbers != [epoch for epoch, size in sizes.items() if size and rank < size[0]]:
            problems.append(f"rank {rank} has epochs {listed(numbers) or 'none'}")
    return judged(problems, f"1 to {last} on every rank", proven=bool(finished))


@claim("every rank worked")
def every_rank_worked(run: Run, _: Expected) -> Judgement:
    """Each rank saw exactly its share of every epoch, and took as many steps as that needs.

    Where the world changed within an epoch, that is its share of each part. It is 0 only if nothing was left.

    Fails for: an idle rank*, also beside a change of the world*, a rank with fewer steps.
    """
    if run.observed:
        return observed.ranks_worked(run)
    taken = Counter[int]()
    for record in run.of("epoch"):
        if record.whole("rank") in run.chains:
            taken[record.whole("rank")] += record.whole("steps")
    problems = shortfalls(run, epochs_of(run))
    return judged(problems, f"steps of each rank: {listed(sorted(taken.items()))}", proven=bool(taken))


@claim("samples are disjoint and complete", unseen="which samples a rank saw cannot be seen from outside")
def samples_are_disjoint_and_complete(run: Run, _: Expected) -> Judgement:
    """Every epoch covers the whole data set, and ranks share no sample.

    At most world size - 1 samples are repeated, which are the sampler's padding.

    Fails for: a missing `DistributedSampler`*, a sample left out, all samples on one rank.
    """
    problems, notes = [], []
    # Where the world shrank, an epoch may have the padding of the larger one.
    padding = max((begin.whole("world_size") for begin in run.of("begin")), default=1) - 1
    size = max((begin.whole("dataset_samples") for begin in run.of("begin")), default=0)
    records: dict[int, list[Record]] = {}
    for record in run.of("samples"):
        records.setdefault(record.whole("epoch"), []).append(record)
    for epoch in epochs_of(run):
        seen, count, repeated = 0, 0, list[int]()
        for record in records.get(epoch, ()):
            bits, repeats = unpack_bits(record)
            again = seen & bits
            seen, count = seen | bits, count + again.bit_count() + len(repeats)
            repeated += [*repeats, *ids_in(again, MOST_NAMED)]
        missing = size - (seen.bit_count() if seen.bit_length() <= size else (seen & ((1 << size) - 1)).bit_count())
        if missing:
            problems.append(f"epoch {epoch} leaves out {missing} of {size} samples")
        if seen.bit_length() > size or any(i >= size for i in repeated):
            problems.append(f"epoch {epoch} has ids beyond {size - 1}")
        if count > padding:
            problems.append(f"epoch {epoch} repeats {count} samples, but the sampler pads at most {padding}")
        elif count:
            notes.append(f"epoch {epoch} repeats {listed(sorted(repeated))}")
    detail = "; ".join([f"{size} samples in each epoch, no two ranks share one", *notes[:3]])
    return judged(problems, detail, proven=bool(epochs_of(run)))


@claim("global batch", unseen="how many samples are in a batch cannot be seen from outside")
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
            taken, samples = record.whole("steps"), record.whole("samples")
            if taken != -(-samples // max(per_step, 1)):
                problems.append(
                    f"rank {rank} took {taken} steps for {samples} samples in epoch {record['epoch']}, "
                    f"expected {-(-samples // max(per_step, 1))}"
                )
    if len(sizes) != 1 or expected.global_batch not in {None, *sizes}:
        problems.append(
            f"global batch {listed(sorted(sizes)) or 'unknown'}, expected {expected.global_batch or 'one'}"
        )
    return judged(problems, f"{listed(sorted(sizes))} samples per step")


FULL = 4  # the format from which every step is shown

@claim("gradients are exchanged at every step", since=2)
def gradients_exchanged_at_every_step(run: Run, _: Expected) -> Judgement:
    """Each rank averaged its gradients with the others as often as it took a step.

    From format 4 on, records show every step, and each with its exchange.

    Fails for: `no_sync` at all steps but the first*, a model not wrapped in DDP*, a step that no record shows.
    """
    if run.observed:
        return observed.exchanged_at_every_step(run)
    problems, total = [], 0
    for record in run.of("epoch"):
        count, exchanges = record.whole("steps"), record.whole("exchanges")
        total += exchanges
        if exchanges != count:
            problems.append(f"rank {record['rank']} exchanged gradients {counted(exchanges, 'time')} in the "
                            f"{counted(count, 'step')} of epoch {record['epoch']}")
    if run.format >= FULL:
        problems += [*steps.gaps(run), *steps.too_few_samples(run)]
    return judged(problems, f"{counted(total, 'exchange')}, one for each step of each rank", proven=total > 0)


@claim("gradients differ before the all-reduce")
def gradients_differ_before(run: Run, expected: Expected) -> Judgement:
    """At checked steps each rank computed a gradient of its own, not another's times a number.

    From format 4 on, the checked steps are those that the start's token names.

    Fails for: the same samples on several ranks*, a model not wrapped in DDP*, looks at other steps than those due.
    """
    table = steps.looks(run)
    unseen, blind = (observed.no_look(run, table), observed.blind(run)) if run.observed else ("", "")
    if unseen and not table:
        return None, unseen
    if run.format >= FULL and not run.observed:
        problems = steps.not_due(run)
        if not table:
            problems.append("no gradients were exchanged (is the model wrapped in DDP?)")
    else:
        epochs = {record.whole("epoch") for record, _ in run.with_begin("gradients")}
        older = {record.whole("epoch") for record, begin in run.with_begin("epoch")
                 if "format" not in begin or begin.whole("format") < FULL}
        problems = [f"no gradients of epoch {epoch} were exchanged (is the model wrapped in DDP?)"
                    for epoch in sorted(older - epochs)]
    for checked in table:
        rows = checked.rows
        if checked.absent and not blind:
            problems.append(f"{checked.where}: no gradients of rank {checked.absent}")
        own = [record.text("before") for record in rows.values() if not record.zero]
        gradients = set(own)
        if len(gradients) < len(own):
            problems.append(
                f"{checked.where}: {len(own)} ranks, {len(gradients)} different gradients before the "
                "all-reduce (the same samples on several ranks?)"
            )
        elif run.format > 1:
            problems += steps.copies(checked)
    for checked in steps.samples(run) if run.format >= FULL and not run.observed else ():
        if all(record.whole("sampled") >= steps.FEW for record in checked.rows.values()):
            problems += steps.copies(checked)
    if unseen and not problems:
        return None, unseen
    if expected.world_size == 1:
        return judged(problems, "one rank: nothing to compare")
    return judged(problems, f"different on every rank at {steps.number(table)}", proven=bool(table))


@claim("gradients agree after the all-reduce")
def gradients_agree_after(run: Run, _: Expected) -> Judgement:
    """At the same steps all ranks hold the same average, and it is not their own gradient.

    Fails for: a rank that kept its own gradient, a model not wrapped in DDP*.
    """
    table, problems = steps.looks(run), []
    unseen = observed.no_look(run, table) if run.observed else ""
    if unseen and not table:
        return None, unseen
    if table and all(checked.parts for checked in table):
        return None, f"{observed.NOT_CLAIMED}each rank holds a part of the average"
    for checked in table:
        rows = checked.rows
        if checked.parts:
            continue
        averages = {record.text("after") for record in rows.values()}
        if len(averages) > 1:
            problems.append(f"{checked.where}: ranks hold {len(averages)} different averages")
        problems += steps.kept(checked, checksums_too=run.format > 1 and not run.observed)
    if unseen and not problems:
        return None, unseen
    detail = f"equal on all ranks after the all-reduce at {counted(len(table), 'checked step')}"
    return judged(problems, detail, proven=bool(table))


@claim("gradients are averaged", since=2)
def gradients_are_averaged(run: Run, _: Expected) -> Judgement:
    """At checked steps four checksums of what all ranks hold are the mean of the ranks' own, but for rounding.

    From format 4 on, also for a sample of other steps. A rank's own gradient is not zero, and not the same as at
    another step. It is not next to nothing at each of four checked steps, or of all if there are fewer. In an observed
    script it may be zero at some checked steps, which then show nothing of that rank.

    Fails for: a rank that adds nothing*, a broadcast of rank 0's gradient*, a sum, gradients that never change,
    averages at some steps alone*.
    """
    table = steps.looks(run)
    unseen, blind = (observed.no_look(run, table), observed.blind(run)) if run.observed else ("", "")
    if unseen and not table:
        return None, unseen
    every = steps.samples(run) if run.format >= FULL and not run.observed else []
    problems = steps.zeros(table)
    problems += steps.repeats({"steps": table, "samples": every})
    for checked in [*table, *every]:
        if not checked.absent:
            problems += steps.off_the_mean(checked)
        elif not blind:
            problems.append(f"{checked.where}: no gradient of rank {checked.absent}")
    for checks in (table, every) if run.format >= FULL else ():
        problems += [line for line in steps.next_to_nothing(checks) if line not in problems]
    if unseen and not problems:
        return None, unseen
    sampled = sum(max(row.whole("sampled") for row in checked.rows.values()) for checked in every)
    note = f", and a sample of {sampled} others" if every else ""
    detail = f"the mean of all ranks' at {steps.number(table)}{note}"
    return judged(problems, detail, proven=bool(table))


@claim("weights agree")
def weights_agree(run: Run, _: Expected) -> Judgement:
    """After each epoch all ranks have the same weights, and these change from epoch to epoch.

    From format 4 on, also at the beginning, and a sample of them at sampled steps. From format 5 on, epochs and the
    beginning have a sample of the weights, and the end has all.

    Fails for: a rank with other weights*, training that learned nothing*, averages at checked steps alone*, a rank that
    does not show its last weights.
    """
    if run.observed:
        return observed.weights_agree(run)
    problems, hashes = [], list[str]()
    if run.format >= FULL:
        for attempt in dict.fromkeys(begin.text("attempt") for begin in run.of("begin")):
            weights = {begin.text("parameters") for begin in run.of("begin") if begin["attempt"] == attempt}
            hashes += sorted(weights)[: not hashes]
            if len(weights) > 1:
                problems.append(f"{len(weights)} different sets of weights at the beginning")
        began = bool(hashes)
        problems += [*steps.drifted(run), *steps.other_ends(run)]
    else:
        began = False
    of_epochs: dict[int, set[str]] = {}
    for record in run.of("epoch"):
        of_epochs.setdefault(record.whole("epoch"), set()).add(record.text("parameters"))
    for epoch in epochs_of(run):
        weights = of_epochs[epoch]
        hashes += sorted(weights)[:1]
        if len(weights) > 1:
            problems.append(f"{len(weights)} different sets of weights after epoch {epoch}")
    if len(set(hashes)) < len(hashes):
        problems.append("the weights of two epochs are equal, or those of one and of the beginning: nothing was "
                        "learned between them")
    count = len(hashes) - began
    return judged(problems, f"the same on every rank after each of {counted(count, 'epoch')}", proven=count > 0)
