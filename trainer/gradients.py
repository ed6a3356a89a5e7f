"""What goes into each all-reduce and what comes out, seen from outside it: DDP's own averaging stays as it is.

Of many steps: a sample, the gradient of one parameter. Of a few: all gradients. The start's token says which. A rank's
own gradients come from hooks of leaves, averages from `.grad`. At other steps there is no hook: they are counted.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from evidence import CPU_SECONDS, finite, raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from evidence import Evidence, Record
    from torch.nn.parallel import DistributedDataParallel

CHECKSUMS = 4
BLOCK = 1 << 11  # elements with weights of their own
AT_ONCE = 32  # blocks: small enough for a CPU's cache
SAMPLE = 1 << 10  # elements of one step
FOLD = 64  # steps whose samples are kept until they are added up
LONGEST = 256  # steps with one look at all gradients
SMALL = 1 << 18  # elements of a model whose steps are so short that a sample of each would show
SAMPLED_OF_SMALL = 8  # of so many steps of such a model one is sampled; of a larger model, all are


def chance(*words: object) -> int:
    """A number that follows from these words and from nothing else."""
    return int.from_bytes(hashlib.sha256(" ".join(map(str, words)).encode()).digest()[:8], "big")


def due_steps(token: str) -> Iterator[int]:
    """The steps of a start, from 1, at which all gradients are looked at.

    One of the first, of the next 4, 16, 64, 256, 256, …; which one, the start's token says: nobody knows it before that
    start. gangplank computes the same.
    """
    first, length = 1, 1
    for number in itertools.count():
        yield first + chance(token, number) % length
        first, length = first + length, min(LONGEST, 4 * length)


def sampled_steps(token: str, every: int) -> Iterator[int]:
    """The steps of a start, from 1, of which a sample is taken: one of each `every`."""
    return (number * every + 1 + chance(token, "sampled", number) % every for number in itertools.count())


def seeded(*words: object) -> torch.Generator:
    """Random numbers that are the same on every rank."""
    return torch.Generator().manual_seed(chance(*words) >> 1)


def weights(count: int, generator: torch.Generator) -> torch.Tensor:
    """For each checksum a number of 1/2 to 1, or the negative of one: float64 [count, CHECKSUMS]."""
    numbers = torch.rand(count, CHECKSUMS, generator=generator, dtype=torch.float64).sub_(0.5)
    return numbers.add_(numbers.sign(), alpha=0.5)


def operations(group: Any) -> int:
    """How many operations a process group has carried out."""
    return int(group._get_sequence_number_for_group())


def mean_exchange_s(ddp: DistributedDataParallel) -> float:
    """Seconds from a backward pass's first exchange to its last: the mean of those that DDP itself has timed."""
    return int(ddp._get_ddp_logging_data().get("avg_backward_comm_time", 0)) / 1e9


class Checksums:
    """Linear checksums of all gradients: that of the mean is the mean of the ranks'.

    A checksum is the weighted sum of all elements. An element's weight is the product of its block's and of its place's
    in the block: no two blocks have the same, so what repeats from block to block does not cancel.
    """

    def __init__(self, token: str, parameters: list[torch.Tensor]) -> None:
        generator, self.device = seeded(token, "elements"), parameters[0].device
        self.of_elements = weights(BLOCK, generator).t().contiguous().t().to(self.device)  # columns in one piece
        # Small parameters are one vector: an operation on each would take longer than the sums.
        self.small = [i for i, parameter in enumerate(parameters) if parameter.numel() <= BLOCK]
        sizes = {i: parameter.numel() for i, parameter in enumerate(parameters) if parameter.numel() > BLOCK}
        sizes[-1] = sum(parameters[i].numel() for i in self.small)
        ends = list(itertools.accumulate(-(-size // BLOCK) for size in sizes.values()))
        self.of_blocks = weights(ends[-1], generator).to(self.device)
        self.places = dict(zip(sizes, itertools.starmap(slice, itertools.pairwise([0, *ends])), strict=True))
        self.room = torch.empty(0)

    def __call__(self, index: int, flat: torch.Tensor) -> torch.Tensor:
        """The checksums of one parameter's gradient [n], and the sum of its absolute values: float64 [CHECKSUMS + 1].

        Of all small ones' if the index is -1.
        """
        if not len(self.room):  # kept: new memory takes time
            self.room = torch.empty(AT_ONCE, BLOCK, dtype=torch.float64, device=self.device)
        rows, norms = list[torch.Tensor](), list[torch.Tensor]()
        for part in flat.split(self.room.numel()):
            values = self.room[: -(-len(part) // BLOCK)]
            values.view(-1)[: len(part)].copy_(part)
            values.view(-1)[len(part) :].zero_()
            rows.append(values @ self.of_elements)
            norms.append(values.abs_().sum())
        sums = (torch.cat(rows) * self.of_blocks[self.places[index]]).sum(0)
        return torch.cat([sums, torch.stack(norms).sum().view(1)])


class Look:
    """All gradients at one step: the rank's own as they come, and the averages."""

    def __init__(self, checksums: Checksums, parameters: list[torch.Tensor]) -> None:
        self.checksums, self.parameters = checksums, parameters
        self.rows: dict[int, torch.Tensor] = {}
        self.small: dict[int, torch.Tensor] = {}
        self.handles: list[Any] = [parameter.register_hook(functools.partial(self.own, index, parameter))
                                   for index, parameter in enumerate(parameters)]

    def own(self, index: int, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """One parameter's gradient in a backward pass, and what micro-batches before have left in `.grad`."""
        began = time.thread_time()
        total = gradient if parameter.grad is None else gradient + parameter.grad
        if parameter.numel() <= BLOCK:
            self.small[index] = total.clone() if total is gradient else total
        else:
            self.rows[index] = self.checksums(index, total.reshape(-1))
        CPU_SECONDS[0] += time.thread_time() - began

    def all_small(self, values: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """Those of small parameters as one vector; of a parameter without a gradient, zeros."""
        return torch.cat([values[i].reshape(-1) if i in values else torch.zeros_like(self.parameters[i]).view(-1)
                          for i in self.checksums.small])

    def record(self) -> Record:
        """Both sides (a CPU-GPU sync point).

        Averages are hashed, as they have to be equal to the last bit. A rank's own gradients are identified by their
        checksums: equal gradients have equal ones.
        """
        for handle in self.handles:
            handle.remove()
        averages = {index: parameter.grad for index, parameter in enumerate(self.parameters)
                    if parameter.grad is not None}
        content, before, after = hashlib.sha256(repr(list(averages)).encode()), [], []
        if self.checksums.small:
            before.append(self.checksums(-1, self.all_small(self.small)))
            vector = self.all_small(averages)
            content.update(raw(vector))
            after.append(self.checksums(-1, vector))
        blank = torch.zeros(CHECKSUMS + 1, dtype=torch.float64, device=self.checksums.device)
        for index, average in averages.items():
            if average.numel() > BLOCK:
                content.update(raw(average))
                before.append(self.rows.get(index, blank))
                after.append(self.checksums(index, average.reshape(-1)))
        rows, averaged = torch.stack([torch.stack(before or [blank]), torch.stack(after or [blank])]).cpu()
        dtypes = sorted({average.dtype for average in averages.values()}, key=lambda dtype: -torch.finfo(dtype).eps)
        *sums_before, norm = map(finite, rows.sum(0).tolist())
        return {"before": hashlib.sha256(raw(rows)).hexdigest(), "after": content.hexdigest(),
                "elements": sum(average.numel() for average in averages.values()),
                "dtype": str(dtypes[0]).removeprefix("torch.") if dtypes else "none",  # the coarsest is the bound's
                "norm": norm, "sums_before": sums_before,
                "sums_after": [finite(value) for value in averaged.sum(0).tolist()[:CHECKSUMS]]}


class Tile:
    """The steps since the last record of them: samples of their gradients on both sides, added up with weights."""

    def __init__(self, token: str, first: int, parameters: list[torch.Tensor]) -> None:
        small = [i for i, parameter in enumerate(parameters) if parameter.numel() <= SAMPLE] or range(len(parameters))
        number = chance(token, "parameter", first)
        self.token, self.first, self.count, self.exchanges, self.sampled, self.elements = token, first, 0, 0, 0, 0
        self.index = small[number % len(small)]
        self.parameter = parameters[self.index]
        self.stride = max(1, self.parameter.numel() // SAMPLE)
        self.offset = (number >> 32) % self.stride
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.held: list[torch.Tensor] = []  # weights, with which the ranks' gradients belong together
        self.weights = hashlib.sha256()
        self.generator: torch.Generator | None = None
        self.of_elements = self.sums = torch.zeros(2 * CHECKSUMS + 1, dtype=torch.float64)

    def pick(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of the sampled elements."""
        return tensor.clone() if self.stride == 1 else tensor.reshape(-1)[self.offset :: self.stride].clone()

    def add(self, own: torch.Tensor, average: torch.Tensor) -> None:
        """One step's."""
        self.pairs.append((own, average))
        if len(self.pairs) == FOLD:
            self.fold()

    def fold(self) -> None:
        """Add up what is kept (a CPU-GPU sync point)."""
        if not self.pairs:
            return
        both = torch.stack([value.reshape(-1) for pair in self.pairs for value in pair]).double().cpu()
        both = both.view(len(self.pairs), 2, -1)
        if self.generator is None:
            self.generator = seeded(self.token, "sample", self.first)
            self.of_elements = weights(both.shape[-1], self.generator)
        sums = ((both @ self.of_elements) * weights(len(self.pairs), self.generator).unsqueeze(1)).sum(0)
        own = both[:, 0]
        self.sums = self.sums + torch.cat([sums.view(-1), own.abs().sum().view(1)])
        self.sampled, self.elements = self.sampled + len(self.pairs), self.elements + own.numel()
        for held in self.held:
            self.weights.update(raw(held))
        self.pairs, self.held = [], []

    def record(self) -> Record:
        """What is recorded of it."""
        self.fold()
        *sums, norm = map(finite, self.sums.tolist())
        return {"first": self.first, "count": self.count, "exchanges": self.exchanges, "sampled": self.sampled,
                "parameter": self.index, "elements": self.elements,
                "dtype": str(self.parameter.dtype).removeprefix("torch."), "norm": norm,
                "sums_before": sums[:CHECKSUMS], "sums_after": sums[CHECKSUMS:], "weights": self.weights.hexdigest()}


class GradientWatch:
    """Looks at the gradients of each step, and records what it sees; `stepped` is called once for each."""

    def __init__(self, ddp: DistributedDataParallel, evidence: Evidence,
                 ignore: Iterable[torch.Tensor] = ()) -> None:
        ignored = {id(parameter) for parameter in ignore}
        self.parameters: list[torch.Tensor] = [
            parameter for parameter in ddp.parameters() if parameter.requires_grad and id(parameter) not in ignored]
        self.group, self.evidence, evidence.watch = ddp.process_group, evidence, self
        backends = {part.split(":")[-1] for part in dist.get_backend_config(self.group).split(",")}
        self.countable = len(backends) == 1  # where several count for themselves, nobody has the sum
        self.number = self.start = evidence.steps_before
        self.exchanges = 0
        self.seen = operations(self.group) if self.countable else 0
        small = sum(parameter.numel() for parameter in self.parameters) < SMALL
        self.due, self.samples = due_steps(evidence.token), sampled_steps(
            evidence.token, SAMPLED_OF_SMALL if small else 1)
        self.next_look, self.next_sample = next(self.due), next(self.samples)
        self.look: Look | None = None
        self.sampling: Any = None  # the hook
        self.own: torch.Tensor | None = None
        self.held: torch.Tensor | None = None
        self.checksums: Checksums | None = None
        self.tile = Tile(evidence.token, self.number + 1, self.parameters)
        self._prepare()

    def take_exchanges(self) -> int:
        """How many steps have averaged their gradients since the last call."""
        count, self.exchanges = self.exchanges, 0
        return count

    def take_steps(self, least: int) -> Record | None:
        """What is recorded of the steps since the last record, if they are so many."""
        tile = self.tile
        if tile.count < least:
            return None
        self.tile = Tile(self.evidence.token, self.number + 1, self.parameters)
        if self.sampling is not None:
            self.sampling.remove()
            self.sampling = self.tile.parameter.register_hook(self._sampled)
        return tile.record()

    def stepped(self, epoch: int) -> None:
        """Call it after each optimizer step: the averages are in `.grad`, and nothing but an average is."""
        began, spent = time.thread_time(), CPU_SECONDS[0]
        self.number += 1
        self.tile.count += 1
        operated = operations(self.group) if self.countable else self.seen + 1
        if operated != self.seen:
            self.exchanges += 1
            self.tile.exchanges += 1
        self.seen = operated
        if self.sampling is not None:
            self._sample()
        if self.look is not None:
            self.evidence.add("gradients", epoch=epoch, step=self.number, **self.look.record())
            self.look = None
        self._prepare()
        CPU_SECONDS[0] = spent + time.thread_time() - began  # records within count themselves

    def _prepare(self) -> None:
        """Be ready for the next step, if a sample or a look is due."""
        step = self.number - self.start + 1
        if step == self.next_sample:
            self.next_sample = next(self.samples)
            self.sampling = self.tile.parameter.register_hook(self._sampled)
        if step == self.next_look:
            self.next_look = next(self.due)
            self.checksums = self.checksums or Checksums(self.evidence.token, self.parameters)
            self.look = Look(self.checksums, self.parameters)

    def _sampled(self, gradient: torch.Tensor) -> None:
        """The sampled parameter's gradient in a backward pass; its bucket is not exchanged before this returns."""
        began, grad = time.thread_time(), self.tile.parameter.grad
        own = self.tile.pick(gradient)
        self.own = own if grad is None else own.add_(self.tile.pick(grad))
        self.held = self.tile.pick(self.tile.parameter.detach())
        if self.countable:
            self.seen = operations(self.group)
        CPU_SECONDS[0] += time.thread_time() - began

    def _sample(self) -> None:
        self.sampling.remove()
        average, own = self.tile.parameter.grad, self.own
        self.sampling = self.own = None
        if self.held is not None:
            self.tile.held.append(self.held)
        self.held = None
        if average is not None:
            picked = self.tile.pick(average)
            self.tile.add(torch.zeros_like(picked) if own is None else own, picked)
