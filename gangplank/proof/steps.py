"""What ranks record of their steps: samples of their gradients, and more of the gradients of the steps that are due.

trainer/gradients.py writes what this reads; a test with real runs keeps the two together.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.proof import observed
from gangplank.proof.log_lines import amount
from gangplank.proof.records import Record
from gangplank.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gangplank.proof.records import Run

LONGEST = 256  # steps with one look, as in trainer/gradients.py
SAMPLED = 8  # in format 4: of so many steps of a small model one is sampled
SPARSEST = 32  # from format 5 on: of so many steps one is sampled, of the first ones more; as there
FIRST = (2, 2, 4, 4, 8, 8, 16, 16)  # of so many steps each
MOST_NAMED = 6  # ranks or steps in one message
EXACT = 5  # the format from which the token says which steps are sampled
CHECKSUMS = 4  # of each gradient, as in trainer/gradients.py
NOTHING = 1e-3  # of another rank's gradient
ENOUGH = 4  # looks at a rank that show what it adds
FEW = 4  # elements of a gradient: as many numbers have a direction by chance
# The unit roundoff of each kind of gradient, and its smallest number that hardware computes with.
ROUNDING = {"float64": (2.0**-53, 2.0**-1022), "float32": (2.0**-24, 2.0**-126), "bfloat16": (2.0**-8, 2.0**-126),
            "float16": (2.0**-11, 2.0**-24)}  # fmt: skip
# No checksum of a gradient is as small, by chance, as this part of what a sum of its absolute values leads to expect.
UNLIKELY = 5e-3
MANY = 64  # elements of an observed gradient, whose checksums have no other factors than 1 and -1


def chance(*words: object) -> int:
    """A number that follows from these words and from nothing else."""
    return int.from_bytes(hashlib.sha256(" ".join(map(str, words)).encode()).digest()[:8], "big")


def due_steps(token: str) -> Iterator[int]:
    """The steps of a start, from 1, at which ranks look at all parameters' gradients.

    One of the first, of the next 4, 16, 64, 256, 256, …; which one, the start's token says.

    >>> list(itertools.islice(due_steps("a1"), 8))
    [1, 5, 20, 40, 111, 485, 727, 864]
    """
    first, length = 1, 1
    for number in itertools.count():
        yield first + chance(token, number) % length
        first, length = first + length, min(LONGEST, 4 * length)


def samples_until(token: str, step: int) -> int:
    """How many of the steps of a start, from 1 to this one, are sampled: one of each 2, 2, 4, 4, 8, 8, 16, 16, 32, …

    >>> [samples_until("a1", step) for step in (0, 2, 4, 28, 60 + 32 * 10**6)]
    [0, 1, 2, 6, 1000008]
    """
    first, number = 1, 0
    while number < len(FIRST) and first + FIRST[number] <= step:
        first, number = first + FIRST[number], number + 1
    length = FIRST[number] if number < len(FIRST) else SPARSEST
    if length == SPARSEST:
        skipped = max(0, step - first) // SPARSEST
        first, number = first + SPARSEST * skipped, number + skipped
    return number + (first + chance(token, "sampled", number) % length <= step)


@dataclass(frozen=True)
class Checked:
    """Steps at which the ranks looked at their gradients: how many ranks there were, and what each recorded."""

    where: str
    world_size: int
    rows: dict[int, Record]
    observed: bool
    twice: set[int]
    """Ranks that looked more than once in one start; the last look is in `rows`."""

    @property
    def parts(self) -> bool:
        """Whether each rank holds a part of the average, which no other has (fully_shard)."""
        return self.observed and bool(self.rows) and all(
            record.get("part") is True and record.get("by") == "fully_shard" for record in self.rows.values())

    @property
    def compared(self) -> set[int]:
        """The ranks whose gradient is not zero, if another's is not either, or there is one rank alone."""
        own = {rank for rank, record in self.rows.items() if not record.zero}
        return own if len(own) > 1 or len(self.rows) == 1 else set()

    @property
    def absent(self) -> str:
        """Who recorded none, '' if all have."""
        missing = self.world_size - sum(rank < self.world_size for rank in self.rows)
        ranks = itertools.islice((rank for rank in range(self.world_size) if rank not in self.rows), MOST_NAMED)
        return listed([*ranks, *["…"] * (missing > MOST_NAMED)]) if missing else ""


def looks(run: Run) -> list[Checked]:
    """Looks at all gradients of a step, by (epoch, step)."""
    return grouped(run, "gradients", lambda record: (record.whole("epoch"), record.whole("step")),
                   lambda record: f"step {record['step']}")


def zeros(tables: Sequence[Checked]) -> list[str]:
    """Looks at which a rank's gradient is zero.

    The loss of a user's own script may be zero for samples that its model has learned, as a hinge loss is. Of an
    observed script, only ranks are named that have no other gradient of a model (`epoch`) at any look.
    """
    seen, every = Counter[tuple[int, int]](), list[tuple[tuple[int, int], str]]()
    for checked in tables:
        for rank, record in checked.rows.items():
            key = record.whole("epoch"), rank
            seen[key] += 1
            if record.zero:
                every.append((key, f"{checked.where}: the gradient of rank {rank} is zero"))
    times = Counter(key for key, _ in every)
    strict = not all(checked.observed for checked in tables)
    return [line for key, line in every if strict or times[key] == seen[key]]


def number(tables: Sequence[Checked]) -> str:
    """At how many steps ranks looked, and at how many of them a gradient was zero."""
    some = sum(any(record.zero for record in checked.rows.values()) for checked in tables)
    return counted(len(tables), "checked step") + f", at {some} of which not all had a gradient" * bool(some)


def kept(checked: Checked, checksums_too: bool) -> list[str]:
    """Ranks that hold their own gradient after the exchange, where it is not the only one that is not zero."""
    if checked.world_size < 2:
        return []
    others = checked.world_size - sum(record.zero for record in checked.rows.values())
    return [f"{checked.where}: rank {rank} kept its own gradient" for rank, record in checked.rows.items()
            if others > (not record.zero) and (
                record["after"] == record["before"]
                or (checksums_too and record["sums_after"] == record["sums_before"]))]


def samples(run: Run) -> list[Checked]:
    """Samples of the gradients of all steps, by the steps that were added up."""
    return grouped(run, "steps", lambda record: (record.whole("first"), record.whole("count")), steps_of)


def steps_of(record: Record) -> str:
    """The steps of a record, in words."""
    first, last = record.whole("first"), record.whole("first") + record.whole("count") - 1
    return f"steps {first} to {last}"


def grouped(run: Run, kind: str, key: Callable[[Record], tuple[int, int]],
            where: Callable[[Record], str]) -> list[Checked]:
    """Records of one kind that belong together, from all ranks."""
    table: dict[tuple[int, int], Checked] = {}
    seen = set[tuple[tuple[int, int], int, str]]()
    for record, begin in run.with_begin(kind):
        blank = Checked(where(record), begin.whole("world_size"), {}, run.observed, set())
        checked, rank = table.setdefault(key(record), blank), record.whole("rank")
        look = key(record), rank, begin.text("attempt")
        if look in seen:
            checked.twice.add(rank)
        seen.add(look)
        checked.rows[rank] = record
    return list(table.values())


def exact(begin: Record) -> bool:
    """Whether the token of a start says which steps are sampled."""
    return "format" in begin and begin.whole("format") >= EXACT


def step_before(begin: Record) -> int:
    """The steps that were behind a start."""
    resumed = begin.get("resumed")
    if resumed is None:
        return 0
    return type(begin)({**begin, **resumed}).whole("step") if isinstance(resumed, dict) else begin.whole("resumed")


def own_starts(run: Run) -> Iterator[tuple[Record, list[Record]]]:
    """Each rank's starts: the `begin`, and the records of its steps and looks that count."""
    begin, own = None, list[Record]()
    for record in [*(r for chain in run.chains.values() for r in chain), *run.earlier]:
        if record["kind"] == "begin":
            if begin is not None:
                yield begin, own
            begin, own = record, []
        elif record["kind"] in ("steps", "gradients"):
            own.append(record)
    if begin is not None:
        yield begin, own


def gaps(run: Run) -> list[str]:
    """Steps that no record shows, or that two do; steps that were not exchanged; due looks that are missing."""
    problems, shown, taken = [], Counter[int](), Counter[int]()
    number = 0
    for begin, own in own_starts(run):
        rank, before = begin.whole("rank"), number
        number = step_before(begin)
        if rank == 0 and number != before:  # it was always there, and its chain is the first
            problems.append(f"rank 0 resumed after step {number}, but shows steps up to {before}")
        for record in own:
            if record["kind"] != "steps":
                continue
            first, count, exchanges = (record.whole(key) for key in ("first", "count", "exchanges"))
            if first != number + 1:
                problems.append(f"rank {rank} shows {steps_of(record)} after step {number}")
            if exchanges != count:
                problems.append(f"rank {rank} exchanged gradients {counted(exchanges, 'time')} in the "
                                f"{counted(count, 'step')} {first} to {first + count - 1}")
            number = first + count - 1
            shown[rank] += count
    for record in run.of("epoch"):
        taken[record.whole("rank")] += record.whole("steps")
    return problems + [f"rank {rank} shows {shown[rank]} of its {count} steps" for rank, count in sorted(taken.items())
                       if shown[rank] < count]


def not_due(run: Run) -> list[str]:
    """Looks that the start's token asks for and that are missing, and those that it does not ask for."""
    problems = []
    for begin, own in own_starts(run):
        rank, before = begin.whole("rank"), step_before(begin)
        steps = [record for record in own if record["kind"] == "steps"]
        last = max((record.whole("first") + record.whole("count") - 1 for record in steps), default=before)
        seen = {record.whole("step") - before for record in own if record["kind"] == "gradients"}
        most = len(seen) + MOST_NAMED  # a record may say any number of steps
        due = set(itertools.islice(itertools.takewhile(lambda step: step <= last - before,  # noqa: B023  # used here
                                                       due_steps(begin.text("attempt"))), most))
        problems += [f"rank {rank} did not look at step {before + step}, which was due" for step in sorted(due - seen)]
        problems += [f"rank {rank} looked at step {before + step}, which was not due" for step in sorted(seen - due)]
    return problems


def too_few_samples(run: Run) -> list[str]:
    """Records of steps of which fewer were sampled than the trainer samples."""
    problems = []
    for record, begin in run.with_begin("steps"):
        first, count = record.whole("first") - step_before(begin), record.whole("count")
        token, least = begin.text("attempt"), count // SAMPLED - 1
        if exact(begin):
            least = samples_until(token, first + count - 1) - samples_until(token, first - 1)
        if record.whole("sampled") < least:
            problems.append(f"rank {record['rank']} shows a sample of {record['sampled']} of the {steps_of(record)}, "
                            f"expected {least}")
    return problems


def drifted(run: Run) -> list[str]:
    """Steps before which the ranks did not have the same weights."""
    return [f"{checked.where}: the ranks had {len(hashes)} different weights" for checked in samples(run)
            if len(hashes := {record.text("weights") for record in checked.rows.values()}) > 1]


def other_ends(run: Run) -> list[str]:
    """Starts at whose end ranks had different weights, or did not show them, as they do from format 5 on."""
    ends: dict[str, set[str]] = {}
    shown = set[tuple[int, str]]()
    for record, begin in run.with_begin("end"):
        if exact(begin):
            ends.setdefault(begin.text("attempt"), set()).add(record.text("parameters"))
            shown.add((begin.whole("rank"), begin.text("attempt")))
    problems = [f"{len(weights)} different sets of weights at the end" for weights in ends.values() if len(weights) > 1]
    lasts = {rank: run.last_begin(rank) for rank in run.chains}
    return problems + [f"rank {rank} does not show its weights at the end" for rank, begin in lasts.items()
                       if exact(begin) and (rank, begin.text("attempt")) not in shown]


def norm(record: Record) -> float:
    """The sum of a gradient's absolute values."""
    value = record.number("norm")
    if value < 0:
        raise record.refused("norm", "a number >= 0")
    return value


def checksums(record: Record, key: str) -> list[float]:
    """The checksums of a gradient."""
    values = record.get(key)
    if not isinstance(values, list) or len(values) != CHECKSUMS or not all(map(amount, values)):
        raise record.refused(key, f"a list of {CHECKSUMS} finite numbers")
    return values


def dtypes(checked: Checked) -> set[tuple[str, str]]:
    """In which types the ranks have their gradients, and exchange them."""
    types = set[tuple[str, str]]()
    for record in checked.rows.values():
        own = record.text("dtype")
        if own not in ROUNDING:
            raise record.refused("dtype", f"one of {listed(list(ROUNDING))}")
        types.add((own, observed.hook_dtype(record) if checked.observed else own))
    return types


def rounding_bound(checked: Checked, factor: float) -> float:
    """How far the checksum of a rounded mean, times a factor, can be from the mean of the checksums, times that.

    Each rank divides, or multiplies by a rounded part of one, and the sum has an addition for each other rank. So many
    roundings has each element, each of at most the unit roundoff of what is summed. Checksums are float64 sums. What is
    too small for its type has errors of either sign, with random weights: they add up to a few times their root.
    """
    rows = list(checked.rows.values())
    unit, smallest = max(ROUNDING[name] for pair in dtypes(checked) for name in pair)
    elements, roundings = max(record.whole("elements") for record in rows), len(rows) + 1
    error = roundings * unit / (1 - min(0.5, roundings * unit)) + 2 * min(elements, 2**26) * 2.0**-53
    lost = min(elements, 8 * math.sqrt(elements)) * roundings * smallest
    return factor * error * sum(map(norm, rows)) / len(rows) + max(1.0, factor) * lost


def impossible(checked: Checked) -> list[str]:
    """Ranks that say of their gradients what would make the bound wider, and cannot be."""
    sizes = {record.whole("elements") for record in checked.rows.values()}
    unlike = len(sizes) > 1 or len(dtypes(checked)) > 1
    problems = [f"{checked.where}: the ranks looked at different numbers or types of elements"] if unlike else []
    problems += [f"{checked.where}: rank {rank} looked twice" for rank in sorted(checked.twice)]
    for rank, record in checked.rows.items():
        elements, size = record.whole("elements"), math.hypot(*checksums(record, "sums_before"))
        expected = norm(record) / math.sqrt(max(1, elements))  # at least
        cancels = checked.observed and 0 < elements < MANY
        too_small = size < UNLIKELY * expected and not cancels
        if too_small or (norm(record) and not elements) or (size and not norm(record)):
            problems.append(f"{checked.where}: rank {rank} says that absolute values add up to {norm(record):.4g}, "
                            "which its checksums exclude")
    return problems


def off_the_mean(checked: Checked) -> list[str]:
    """What ranks hold that is not the mean of their own gradients, with its distance."""
    rows = checked.rows
    own = [checksums(record, "sums_before") for record in rows.values()]
    means = [sum(column) / len(rows) for column in zip(*own, strict=True)]
    held = {f"rank {rank} holds": checksums(record, "sums_after") for rank, record in rows.items()}
    if checked.parts:
        held = {"the ranks hold together": [sum(column) for column in zip(*held.values(), strict=True)]}
    multiplied = checked.observed and all(record.get("by") in ("hand", "fully_shard") for record in rows.values())
    factor = observed.factor(list(held.values()), means) if multiplied else 1.0
    means, bound = [factor * mean for mean in means], rounding_bound(checked, factor)
    problems = impossible(checked)
    for name, values in held.items():
        error = max(abs(x - mean) for x, mean in zip(values, means, strict=True))
        if error > bound:
            problems.append(f"{checked.where}: what {name} is not the mean of {len(rows)} gradients "
                            f"(off by {error:.2g}, rounding explains {bound:.2g})")
    return problems


def next_to_nothing(tables: Sequence[Checked]) -> list[str]:
    """Ranks whose gradients are, wherever anybody looked, next to nothing beside the largest.

    A model that has learned its samples has such gradients now and then, so one look at a rank that came late or left
    early shows nothing.
    """
    shares: dict[int, list[float]] = {}
    for checked in tables:
        norms = {rank: norm(record) for rank, record in checked.rows.items()}
        largest = max(norms.values()) if checked.compared else 0.0
        for rank, own in norms.items() if largest > 0 else ():
            shares.setdefault(rank, []).append(own / largest)
    enough = min(ENOUGH, max(map(len, shares.values()), default=0))
    most = {rank: max(own) for rank, own in sorted(shares.items()) if len(own) >= enough}
    return [f"rank {rank} adds next to nothing: at most {share:.1g} of what another adds"
            for rank, share in most.items() if share < NOTHING]


def copies(checked: Checked) -> list[str]:
    """Ranks whose gradient is another's, multiplied by a number."""
    seen, problems = dict[tuple[float, ...], tuple[int, float]](), []
    for rank, record in checked.rows.items():
        sums = checksums(record, "sums_before")
        length = math.hypot(*sums)
        if not 0 < length < math.inf or record.whole("elements") < FEW:
            continue
        length = math.copysign(length, sums[0])
        direction = tuple(round(x / length, 6) + 0.0 for x in sums)
        other, size = seen.setdefault(direction, (rank, length))
        if other != rank:
            problems.append(f"{checked.where}: the gradient of rank {rank} is that of rank {other}, times "
                            f"{length / size:.4g}")
    return problems


def repeats(tables: Mapping[str, Sequence[Checked]]) -> list[str]:
    """Ranks that have a gradient that they, or others, had at another step."""
    problems, before = [], dict[tuple[str, str], tuple[str, int]]()
    for kind, every in tables.items():
        for checked in every:
            now = dict[tuple[str, str], tuple[str, int]]()
            for rank, record in checked.rows.items():
                if record.zero:
                    continue
                names = {(kind, str(checksums(record, "sums_before")))}
                names |= {(kind, record.text("before"))} if "before" in record else set()
                now |= dict.fromkeys(names, (checked.where, rank))
                for where, other in [before[name] for name in names if name in before][:1]:
                    whose = where if other == rank else f"rank {other} at {where}"
                    problems.append(f"{checked.where}: rank {rank} has the gradient of {whose}")
            before |= now
    return problems
