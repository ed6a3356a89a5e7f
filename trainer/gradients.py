"""What goes into each all-reduce and what comes out, seen from outside it: DDP's own averaging stays as it is.

Of some steps: a sample, the gradient of one parameter. Of a few: elements of every parameter's. The start's token says
which. A rank's own gradients come from hooks of leaves, averages from `.grad`. At all other steps there is no hook, and
nothing but a count.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from evidence import CPU_SECONDS, finite, raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from evidence import Evidence, Record
    from torch.nn.parallel import DistributedDataParallel

CHECKSUMS = 4
BLOCK = 1 << 9  # elements with weights of their own
LOOKED = 1 << 14  # elements of a model that a look takes, more or less
LEAST = 32  # of each parameter
SAMPLE = 1 << 10  # elements of one step
FOLD = 64  # steps whose samples are kept until they are added up
LONGEST = 256  # steps with one look at all gradients
SPARSEST = 32  # of so many steps one is sampled, of the first ones more


def chance(*words: object) -> int:
    """A number that follows from these words and from nothing else."""
    return int.from_bytes(hashlib.sha256(" ".join(map(str, words)).encode()).digest()[:8], "big")


def due_steps(token: str) -> Iterator[int]:
    """The steps of a start, from 1, at which all parameters' gradients are looked at.

    One of the first, of the next 4, 16, 64, 256, 256, …; which one, the start's token says: nobody knows it before that
    start. gangplank computes the same.
    """
    first, length = 1, 1
    for number in itertools.count():
        yield first + chance(token, number) % length
        first, length = first + length, min(LONGEST, 4 * length)


def sampled_steps(token: str) -> Iterator[int]:
    """The steps of a start, from 1, of which a sample is taken: one of each 2, 2, 4, 4, 8, 8, 16, 16, 32, 32, 32, …"""
    first = 1
    for number in itertools.count():
        length = min(SPARSEST, 2 << number // 2)
        yield first + chance(token, "sampled", number) % length
        first += length


def seeded(*words: object) -> torch.Generator:
    """Random numbers that are the same on every rank."""
    return torch.Generator().manual_seed(chance(*words) >> 1)


def weights(count: int, generator: torch.Generator) -> torch.Tensor:
    """For each checksum a number of 1/2 to 1, or the negative of one: float64 [count, CHECKSUMS]."""
    numbers = torch.rand(count, CHECKSUMS, generator=generator, dtype=torch.float64).sub_(0.5)
    return numbers.add_(numbers.sign(), alpha=0.5)


def unhook(leaf: torch.Tensor, handle: Any) -> None:
    """Remove a hook of a leaf, and with the last one what autograd would enter Python for in each backward pass."""
    handle.remove()
    if not leaf._backward_hooks:
        leaf._backward_hooks = None


def mean_exchange_s(ddp: DistributedDataParallel) -> float:
    """Seconds from a backward pass's first exchange to its last: the mean of those that DDP itself has timed."""
    return int(ddp._get_ddp_logging_data().get("avg_backward_comm_time", 0)) / 1e9


class Checksums:
    """Linear checksums of gradients: that of the mean is the mean of the ranks'.

    A checksum is the weighted sum of all elements. An element's weight is the product of its block's and of its place's
    in the block: no two blocks have the same, so what repeats from block to block does not cancel.
    """

    def __init__(self, token: str, count: int, device: torch.device) -> None:
        generator = seeded(token, "elements")
        self.of_elements = weights(BLOCK, generator).to(device)
        self.of_blocks = weights(-(-count // BLOCK), generator).to(device)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Those of each row [rows, blocks * BLOCK], float64, then the row's sum of absolute values: [rows, 5]."""
        of_each = (rows.view(-1, BLOCK) @ self.of_elements).view(len(rows), -1, CHECKSUMS)
        sums = (of_each * self.of_blocks[: of_each.shape[1]]).sum(1)
        return torch.cat([sums, rows.abs().sum(1, keepdim=True)], 1)


def blank_rows(count: int, device: torch.device) -> torch.Tensor:
    """Two rows of zeros, for at least so many elements."""
    return torch.zeros(2, -(-count // BLOCK) * BLOCK, dtype=torch.float64, device=device)


class Part(NamedTuple):
    """Every `stride`-th element of a parameter, so many of them, and where its own gradient's go."""

    parameter: torch.Tensor
    stride: int
    size: int
    row: torch.Tensor


class Look:
    """Elements of every parameter's gradient at one step: the rank's own as they come, and the averages.

    Which elements, another number for each look decides, which nobody knows before the start.
    """

    def __init__(self, token: str, parameters: list[torch.Tensor]) -> None:
        total, device = sum(parameter.numel() for parameter in parameters), parameters[0].device
        strides = [max(1, min(-(-total // LOOKED), parameter.numel() // LEAST)) for parameter in parameters]
        counts = [parameter.numel() // stride for parameter, stride in zip(parameters, strides, strict=True)]
        self.checksums = Checksums(token, max(FOLD * 2 * SAMPLE, sum(counts)), device)
        self.rows = blank_rows(sum(counts), device)
        self.parts = [*map(Part, parameters, strides, counts, self.rows[0, : sum(counts)].split(counts))]
        self.chance = 0
        self.handles = list[Any]()

    def pick(self, part: Part, tensor: torch.Tensor) -> torch.Tensor:
        """The elements of one parameter's."""
        flat, first = tensor.reshape(-1), self.chance % part.stride
        return flat[first : first + part.size * part.stride : part.stride] if part.stride > 1 else flat

    def begin(self, number: int) -> None:
        """The next step is looked at."""
        self.chance = number
        self.rows.zero_()
        self.handles = [part.parameter.register_hook(functools.partial(self.own, part)) for part in self.parts]

    def own(self, part: Part, gradient: torch.Tensor) -> None:
        """One parameter's gradient in a backward pass, and what micro-batches before have left in `.grad`."""
        began = time.thread_time()
        own, grad = self.pick(part, gradient), part.parameter.grad
        part.row.copy_(own if grad is None else own + self.pick(part, grad))
        CPU_SECONDS[0] += time.thread_time() - began

    def record(self) -> Record:
        """Both sides (a CPU-GPU sync point).

        Averages are hashed, as they have to be equal to the last bit. A rank's own gradients are identified by their
        checksums: equal gradients have equal ones.
        """
        for part, handle in zip(self.parts, self.handles, strict=True):
            unhook(part.parameter, handle)
        averages = [part.parameter.grad for part in self.parts]
        joined = torch.cat([part.parameter.new_zeros(part.size) if average is None else self.pick(part, average)
                            for part, average in zip(self.parts, averages, strict=True)])
        self.rows[1, : len(joined)].copy_(joined)
        (*before, norm), (*after, _) = self.checksums(self.rows).tolist()
        coarsest = max({part.parameter.dtype for part in self.parts}, key=lambda dtype: torch.finfo(dtype).eps)
        return {"before": hashlib.sha256(repr(before).encode()).hexdigest(),
                "after": hashlib.sha256(raw(joined)).hexdigest(), "elements": len(joined),
                "dtype": str(coarsest).removeprefix("torch."),  # whose rounding is the bound's
                "norm": finite(norm), "sums_before": [*map(finite, before)], "sums_after": [*map(finite, after)]}


class Tile:
    """The steps since the last record of them: samples of their gradients on both sides, added up with weights."""

    def __init__(self, token: str, first: int, exchanged: int, parameters: list[torch.Tensor],
                 small: Sequence[int]) -> None:
        number = chance(token, "parameter", first)
        self.first, self.exchanged, self.sampled, self.elements = first, exchanged, 0, 0
        self.index = small[number % len(small)]
        self.parameter = parameters[self.index]
        self.stride = max(1, self.parameter.numel() // SAMPLE)
        self.offset = (number >> 32) % self.stride
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.held: list[torch.Tensor] = []  # weights, with which the ranks' gradients belong together
        self.weights = hashlib.sha256()
        self.sums = torch.zeros(2, CHECKSUMS + 1, dtype=torch.float64, device=self.parameter.device)

    def pick(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of the sampled elements."""
        return tensor.clone() if self.stride == 1 else tensor.reshape(-1)[self.offset :: self.stride].clone()

    def add(self, own: torch.Tensor, average: torch.Tensor, held: torch.Tensor, checksums: Checksums) -> None:
        """One step's."""
        self.pairs.append((own, average))
        self.held.append(held)
        if len(self.pairs) == FOLD:
            self.fold(checksums)

    def fold(self, checksums: Checksums) -> None:
        """Add up what is kept (a CPU-GPU sync point)."""
        if not self.pairs:
            return
        sides = [torch.cat([value.reshape(-1) for value in side]) for side in zip(*self.pairs, strict=True)]
        rows = blank_rows(len(sides[0]), self.parameter.device)
        for row, side in zip(rows, sides, strict=True):
            row[: len(side)].copy_(side)
        self.sums += checksums(rows)
        self.sampled, self.elements = self.sampled + len(self.pairs), self.elements + len(sides[0])
        self.weights.update(raw(torch.stack(self.held)))
        self.pairs, self.held = [], []

    def record(self, last: int, exchanged: int, checksums: Checksums) -> Record:
        """What is recorded of it: of the steps up to the last, and so many exchanges since the start."""
        self.fold(checksums)
        (*before, norm), (*after, _) = self.sums.tolist()
        return {"first": self.first, "count": last + 1 - self.first, "exchanges": exchanged - self.exchanged,
                "sampled": self.sampled, "parameter": self.index, "elements": self.elements,
                "dtype": str(self.parameter.dtype).removeprefix("torch."), "norm": finite(norm),
                "sums_before": [*map(finite, before)], "sums_after": [*map(finite, after)],
                "weights": self.weights.hexdigest()}


class GradientWatch:
    """Looks at the gradients of each step, and records what it sees; `stepped` is called once for each."""

    def __init__(self, ddp: DistributedDataParallel, evidence: Evidence,
                 ignore: Iterable[torch.Tensor] = ()) -> None:
        ignored = {id(parameter) for parameter in ignore}
        self.parameters: list[torch.Tensor] = [
            parameter for parameter in ddp.parameters() if parameter.requires_grad and id(parameter) not in ignored]
        self.evidence, evidence.watch = evidence, self
        backends = {part.split(":")[-1] for part in dist.get_backend_config(ddp.process_group).split(",")}
        # How many operations the group has carried out. Where several back-ends count for themselves, nobody has the
        # sum: then each step counts.
        self.operations: Callable[[], int] = (
            ddp.process_group._get_sequence_number_for_group if len(backends) == 1
            else functools.partial(next, itertools.count(1)))
        self.number = self.start = evidence.steps_before
        self.exchanged = self.taken = 0
        self.seen = self.operations()
        self.due, self.samples = enumerate(due_steps(evidence.token)), sampled_steps(evidence.token)
        self.next_look, self.next_sample = next(self.due), next(self.samples)
        self.looks = Look(evidence.token, self.parameters)
        self.checksums = self.looks.checksums
        self.look: Look | None = None  # if the next step is looked at
        self.sampling: Any = None  # the hook, if it is sampled
        self.own: torch.Tensor | None = None  # of the sampled parameter: this rank's gradient, if it has one
        self.held = torch.empty(0)  # and the weights
        self.small = [index for index, parameter in enumerate(self.parameters)
                      if parameter.numel() <= SAMPLE] or range(len(self.parameters))
        self.tile = Tile(evidence.token, self.number + 1, 0, self.parameters, self.small)
        self.next = 0  # the step after which there is something to do
        self._prepare()

    def take_exchanges(self) -> int:
        """How many steps have averaged their gradients since the last call."""
        count, self.taken = self.exchanged - self.taken, self.exchanged
        return count

    def take_steps(self, least: int) -> Record | None:
        """What is recorded of the steps since the last record, if they are so many."""
        tile = self.tile
        if self.number + 1 - tile.first < least:
            return None
        self.tile = Tile(self.evidence.token, self.number + 1, self.exchanged, self.parameters, self.small)
        if self.sampling is not None:
            unhook(tile.parameter, self.sampling)
            self._begin_sample()
        return tile.record(self.number, self.exchanged, self.checksums)

    def stepped(self, epoch: int) -> None:
        """Call it after each optimizer step: the averages are in `.grad`, and nothing but an average is."""
        self.number += 1
        operated = self.operations()
        if operated != self.seen:
            self.seen = operated
            self.exchanged += 1
        if self.number == self.next:
            began, spent = time.thread_time(), CPU_SECONDS[0]
            self._finish(epoch)
            self._prepare()
            CPU_SECONDS[0] = spent + time.thread_time() - began  # records within count themselves

    def _finish(self, epoch: int) -> None:
        """Take the sample of this step and look at it, if that is due."""
        if self.sampling is not None:
            self._sample()
        if self.look is not None:
            self.evidence.add("gradients", epoch=epoch, step=self.number, **self.look.record())
            self.look = None

    def _prepare(self) -> None:
        """Be ready for the next step, if a sample or a look is due."""
        step = self.number - self.start + 1
        if step == self.next_sample:
            self.next_sample = next(self.samples)
            self._begin_sample()
        number, due = self.next_look
        if step == due:
            self.next_look = next(self.due)
            self.look = self.looks
            self.look.begin(chance(self.evidence.token, "look", number))
        pending = self.sampling is not None or self.look is not None
        self.next = self.number + 1 if pending else self.start + min(self.next_sample, self.next_look[1]) - 1

    def _begin_sample(self) -> None:
        """Hold the weights before the next step, and wait for its gradient."""
        self.held = self.tile.pick(self.tile.parameter.detach())
        self.own = None
        self.sampling = self.tile.parameter.register_hook(self._sampled)

    def _sampled(self, gradient: torch.Tensor) -> None:
        """The sampled parameter's gradient in a backward pass; its bucket is not exchanged before this returns."""
        began, grad = time.thread_time(), self.tile.parameter.grad
        own = self.tile.pick(gradient)
        self.own = own if grad is None else own.add_(self.tile.pick(grad))
        self.seen = self.operations()
        CPU_SECONDS[0] += time.thread_time() - began

    def _sample(self) -> None:
        unhook(self.tile.parameter, self.sampling)
        self.sampling, own, average = None, self.own, self.tile.parameter.grad
        blank = torch.zeros_like(self.held) if own is None or average is None else self.held
        self.tile.add(blank if own is None else own, blank if average is None else self.tile.pick(average), self.held,
                      self.checksums)
