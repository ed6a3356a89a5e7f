"""Evidence of a script that knows nothing of it: what can be seen of its training from outside, and nothing else.

image/gangplank_observe.py loads this into each rank, alone: a script never meets it, nor what it loads beside it.
It watches what torch offers to watchers: hooks of leaves and of optimizers, the count of a process group's operations.
It sends no collective of its own, draws no random number of the script's, and changes no value. What the ranks tell
each other goes through the rendezvous store.

Counted: optimizer steps, and the exchanges between them. Looked at, at the 1st, 2nd, 8th, 32nd, 128th … exchange: a
sample of the gradients before and after, and of the weights. A failure in here ends the observation, never the script.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import importlib.util
import json
import math
import os
import re
import secrets
import socket
import sys
import threading
import time
import weakref
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import dataloader
from torch.utils.hooks import unserializable_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType

FORMAT = 5  # as in evidence.py; docs/proof.md says what each means
SAMPLE = 1 << 13  # elements of a model that one look takes
LAST_SAMPLE = 1 << 24  # and of its weights at the end
CHECKSUMS = 4  # as in evidence.py
WAIT_S = 10.0  # at its end, a rank waits as long for the others' last hash: they may still be saving
GATHER_S = 10.0  # and rank 0 for the others' records, as the store may end with its process
GATHERED = 64  # ranks: beyond, their records are in their own logs alone
MOST_MODELS = 64
PACE_S = 30.0  # where the time of the steps since then went, in a line
TIMED = 40  # steps of each such time of which the exchange is timed: of long steps each, of short ones a few
OUTPUT = os.dup(1)  # a script may send its own lines elsewhere, or close that file
RANK_FLAG = re.compile(r"--?((local|global|node|machine)[-_])?rank(=.*)?")
MAIN = "GANGPLANK_OBSERVED"  # torchrun's run and the rank's own process in it; what that starts is not a rank
MONITORS = (4, 3)  # numbers of sys.monitoring's tools that Python reserves for no kind of tool
HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
COLLECTIVES = ("all_reduce", "reduce", "broadcast", "gather", "scatter", "all_gather", "all_gather_into_tensor",
               "all_gather_single", "all_gather_coalesced", "all_reduce_coalesced", "reduce_scatter",
               "reduce_scatter_tensor", "reduce_scatter_single", "all_to_all", "all_to_all_single", "send", "recv",
               "isend", "irecv", "barrier")
ONE_TO_ONE = ("send", "recv", "isend", "irecv")


def safe(action: Callable[..., Any]) -> Callable[..., None]:
    """The observer's own work: its failure is not the script's."""
    @functools.wraps(action)
    def act(*args: Any) -> None:
        if OBSERVER.active and not OBSERVER.blind:
            try:
                action(*args)
            except Exception as error:  # noqa: BLE001  # whatever it is, the script runs on
                OBSERVER.blind = f"{type(error).__name__}: {error}"[:300]

    return act


def careful(action: Callable[..., Any]) -> Callable[..., None]:
    """Work that takes longer: its time on this thread's CPU is counted too."""
    @safe
    @functools.wraps(action)
    def act(*args: Any) -> None:
        began, seconds = time.thread_time(), OBSERVER.seconds
        try:
            with torch.no_grad():
                action(*args)
        finally:
            OBSERVER.seconds = seconds + time.thread_time() - began  # with what such work within it has taken

    return act


def emit(line: str) -> None:
    """One line where this process's standard output leads at first, whatever the script does to it.

    A short line needs the lock too: a full pipe takes it in the middle of another rank's long one.
    """
    raw = line.encode()
    with Path(__file__).open("rb") as turn:  # each process opens it itself, so the lock is between processes
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            while raw:
                raw = raw[os.write(OUTPUT, raw):]
        finally:
            fcntl.flock(turn, fcntl.LOCK_UN)  # a fork of this moment would hold it


class Chain:
    """A rank's records, each with the hash of the one before, as evidence.py writes them."""

    def __init__(self, rank: int) -> None:
        self.rank, self.seq, self.head = rank, 0, ""
        self.lines: list[str] = []

    def add(self, kind: str, **fields: object) -> None:
        """Append one record and print it."""
        record: dict[str, object] = {"kind": kind, "rank": self.rank, "seq": self.seq, "prev": self.head,
                                     "time": round(time.time(), 3), **fields}
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
        self.head = hashlib.sha256(text.encode()).hexdigest()
        self.seq += 1
        line = f'{{"event":"evidence",{text[1:-1]},"hash":"{self.head}"}}\n'
        self.lines.append(line)
        emit(line)


def joined(pieces: list[torch.Tensor]) -> torch.Tensor:
    """Pieces of any type and device as one vector [n] on the CPU (a CPU-GPU sync point)."""
    if len({piece.device for piece in pieces}) > 1:
        pieces = [piece.cpu() for piece in pieces]
    return torch.cat(pieces).cpu()


def reals(values: torch.Tensor) -> torch.Tensor:
    """A vector [n] as it is, a complex one as its real and imaginary parts [2 n]."""
    return torch.view_as_real(values.resolve_conj()).reshape(-1) if values.is_complex() else values


def digest(values: torch.Tensor) -> str:
    """sha256 of a vector."""
    return hashlib.sha256(values.contiguous().view(torch.uint8).numpy().data).hexdigest()


def due_after(number: int) -> int:
    """The exchange to look at next: the 1st, 2nd, 8th, 32nd, 128th …"""
    return number + 1 if number < 2 else 2 << (number.bit_length() // 2 * 2)


def of_all_ranks(words: list[str]) -> list[str]:
    """A script's arguments without those that name a rank, as --rank 1 and --local-rank=1 do."""
    flags = [RANK_FLAG.fullmatch(word) for word in words]
    values = [flag is not None and not flag[3] for flag in [None, *flags]]  # of the flag before, if it has none
    return [word for word, flag, value in zip(words, flags, values, strict=False) if not (flag or value)]


def hook(leaf: torch.Tensor, action: Callable[[torch.Tensor], None]) -> Callable[[], None]:
    """Hear of a leaf's gradient, before it is added up; returns what ends that."""
    ref, handle = weakref.ref(leaf), leaf.register_hook(unserializable_hook(action))

    def unhook() -> None:
        handle.remove()
        if (left := ref()) is not None and not left._backward_hooks:
            left._backward_hooks = None  # else autograd enters Python in each backward pass, for nothing

    return unhook


def hook_name(action: Any) -> str:
    """The name of a communication hook; one that is not torch's has its module's too, whatever it is called."""
    name = getattr(action, "__qualname__", type(action).__name__)
    own = getattr(sys.modules.get(HOOKS), name, None) is not action
    return f"{getattr(action, '__module__', '')}.{name}" if own else name


def one_count(group: object = None) -> bool:
    """Whether one number has all operations of a group: where several back-ends count for themselves, nobody adds."""
    return len({part.split(":")[-1] for part in dist.get_backend_config(group).split(",")}) == 1


def sharded(parameter: torch.Tensor) -> bool:
    """Whether each rank holds a part of it, as with fully_shard."""
    return hasattr(parameter, "to_local")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    part: torch.Tensor = tensor.to_local() if sharded(tensor) else tensor
    return part


def random_signs(count: int, seed: int) -> torch.Tensor:
    """CHECKSUMS rows of +1 and -1, float64 [CHECKSUMS, count]: the same on every rank."""
    coins = torch.randint(0, 2, (CHECKSUMS, count), generator=torch.Generator("cpu").manual_seed(seed),
                          dtype=torch.float64, device="cpu")
    return 2 * coins - 1


class Scatters:
    """The reduce-scatters of one step of fully_shard: what a rank gave, and the part of the average that it got.

    Checksums are linear: those of all ranks' parts add up to that of the whole average.
    """

    def __init__(self, world_size: int, stride: int) -> None:
        self.world_size, self.stride = world_size, stride
        self.calls = self.elements = 0
        self.norm, self.dtype, self.unseen = 0.0, torch.float64, False
        self.before = torch.zeros(CHECKSUMS, dtype=torch.float64, device="cpu")
        self.after = self.before.clone()
        self.signs = self.before  # of the call that is under way
        self.given, self.gained = hashlib.sha256(), hashlib.sha256()

    def gives(self, tensor: torch.Tensor) -> None:
        """The input of the next one: a flat gradient, [world size * part]."""
        values = joined([tensor.detach().reshape(self.world_size, -1)[:, :: self.stride].reshape(-1)]).double()
        self.signs = random_signs(len(values), self.calls)
        self.before += self.signs @ values
        self.norm += float(values.abs().sum())
        self.elements += len(values)
        self.given.update(digest(values).encode())
        self.dtype = max(self.dtype, tensor.dtype, key=lambda dtype: torch.finfo(dtype).eps)

    def gains(self, tensor: torch.Tensor) -> None:
        """Its output: [part]."""
        values = joined([tensor.detach().reshape(-1)[:: self.stride]]).double()
        rank, size = dist.get_rank(), len(values)
        self.after += self.signs[:, rank * size:(rank + 1) * size] @ values
        self.gained.update(digest(values).encode())
        self.calls += 1


class Model:
    """Parameters that some optimizer changes and whose gradients the ranks should average.

    `owner` is their DistributedDataParallel, else the optimizer itself: then the script has to exchange by hand. All
    references are weak: a script that drops its model gets its memory back.
    """

    def __init__(self, number: int, parameters: list[torch.Tensor], owner: Any) -> None:
        self.number, self.parallel = number, isinstance(owner, DistributedDataParallel)
        self.refs: list[Callable[[], Any]] = [weakref.ref(parameter) for parameter in parameters]
        self.elements = sum(parameter.numel() for parameter in parameters)
        self.stride = max(1, -(-self.elements // SAMPLE))
        self.sharded = any(map(sharded, parameters))
        self.owner: Callable[[], Any] = weakref.ref(
            owner, lambda _: self.give_up() if self.parallel else self.last_weights())
        self.steps = self.idle = self.exchanges = self.looks = self.weights_at = self.sent = 0
        self.worked = self.uncounted = 0  # without DDP: the groups' operations, and steps that had no others
        self.passed = 0  # without DDP: operations from one rank to another
        self.state = (-1, -1)  # which versions of its first and last parameter the last step has left
        self.task = -1  # of autograd's: the last backward pass that was heard of
        self.synced = False  # whether DDP was to exchange in it, and nobody has counted that yet
        self.countable = self.hears = False
        self.begun = 0  # operations of the group when the pass began that was heard of last
        self.settled = 0  # and when an exchange was last counted, or could have been; the script's own apart
        self.own: dict[int, torch.Tensor] = {}
        self.due = 1  # the exchange that is looked at next, or the first after it at which that is possible
        self.queued = self.missed = -1  # the pass at whose end there will be a look; one that nobody can look at
        self.signs: torch.Tensor | None = None
        self.looking = False
        self.hooks: list[Callable[[], None]] = []  # what ends them
        group = owner.process_group if self.parallel else None
        size = dist.get_world_size(group)
        self.whole, self.alone = size == dist.get_world_size(), size == 1 < dist.get_world_size()
        if self.sharded:
            meshes = [getattr(parameter, "device_mesh", None) for parameter in parameters]
            self.whole = all(mesh is not None and mesh.ndim == 1 and mesh.size() == dist.get_world_size()
                             for mesh in meshes)
        # FullyShardedDataParallel lays parameters out flat, where a rank's part of one may be empty.
        flat = any(getattr(parameter, "_fsdp_flattened", False) for parameter in parameters)
        self.visible = self.whole and not flat and not OBSERVER.uneven
        if self.parallel:
            self.countable = one_count(group)
            self.settled = self.operations()
            others = [model for model in OBSERVER.models if model.parallel]
            for model in (*others, self) if others or not self.countable else ():
                model.listen()
            self.look_next()

    def watch(self, indices: Iterable[int], action: Callable[[int, torch.Tensor], None]) -> list[Callable[[], None]]:
        """Hear of the gradients of some parameters; returns what ends that."""
        alive = [(index, parameter) for index in indices if (parameter := self.refs[index]()) is not None]
        return [hook(parameter, functools.partial(action, index)) for index, parameter in alive
                if parameter.requires_grad]

    def ends(self) -> set[int]:
        """The first parameter and the last: one would do, if each took part in each backward pass."""
        return {0, len(self.refs) - 1} if self.refs else set()

    def listen(self) -> None:
        """Hear of each backward pass: others use the group too, or nobody counts its operations."""
        if not self.hears:
            self.hears = True
            self.watch(self.ends(), self.heard)

    def operations(self) -> int:
        """How many operations the group has carried out; each time another number where nobody knows."""
        owner = self.owner()
        if owner is None or not self.countable:
            return self.begun + 1
        return int(owner.process_group._get_sequence_number_for_group())

    @safe
    def heard(self, *_: object) -> None:
        """A leaf's gradient in a backward pass; nothing of it is exchanged yet."""
        task = torch._C._current_graph_task_id()
        if task != self.task:
            if self.hears:
                self.settle()
            self.task, owner = task, self.owner()
            # The forward pass sets it: False within no_sync. A group of one has nobody to exchange with.
            self.synced = owner is not None and owner.require_forward_param_sync and not self.alone
            self.begun = self.operations() if self.countable else 0
            if self.hears:
                self.settled = self.begun

    def settle(self) -> None:
        """Count DDP's exchange: since the last one, or since the pass began, its group has worked for nobody else."""
        if self.synced or not (self.hears or self.alone or self.owner() is None):
            self.synced = False
            if (now := self.operations()) != self.settled:
                self.settled = now
                self.exchanged()

    @careful
    def look_next(self) -> None:
        """Look at the next exchange."""
        if self.sharded:
            one = sum(model.sharded for model in OBSERVER.models) == 1  # whose scatter it is, a call does not say
            OBSERVER.scatters = Scatters(dist.get_world_size(), self.stride) if self.whole and one else None
        elif self.visible:
            self.looking, self.own = True, {}
            self.missed = torch._C._current_graph_task_id()  # a pass that has begun without these hooks
            self.hooks = self.watch(range(len(self.refs)), self.gradient)

    def pick(self, tensor: torch.Tensor, stride: int = 0) -> torch.Tensor:
        """The sampled elements of one parameter's tensor, as far as this rank holds it."""
        return local(tensor.detach()).reshape(-1)[:: stride or self.stride]

    @careful
    def gradient(self, index: int, gradient: torch.Tensor) -> None:
        """A leaf's gradient in a pass that is looked at; the exchange begins with it and what has been added up."""
        parameter, task = self.refs[index](), torch._C._current_graph_task_id()
        if parameter is None or task == self.missed:
            return
        if self.parallel and task != self.queued:
            self.queued = task
            self.heard()
            torch.autograd.Variable._execution_engine.queue_callback(self.backward_ends)
        own = self.pick(gradient)
        self.own[index] = own.clone() if parameter.grad is None else own + self.pick(parameter.grad)

    @careful
    def backward_ends(self) -> None:
        """DDP has its own callback for this moment; it is in line before the one that is added now."""
        torch.autograd.Variable._execution_engine.queue_callback(self.backward_ended)

    @careful
    def backward_ended(self) -> None:
        """The gradients are averages now, if DDP was to exchange them in this pass and its group has worked."""
        if torch._C._current_autograd_node() is not None:
            return  # a pass within another, as torch.utils.checkpoint begins: that one has not ended
        ddp = self.owner()
        if ddp is None or self.operations() == self.begun:
            self.synced = False
        if ddp is not None and self.looking and self.own and self.synced:
            # A script's own communication hooks are named, as they may round.
            self.look([hook_name(action) for action, _ in getattr(ddp, "_comm_hooks", [])])

    def exchanged(self) -> None:
        """One exchange; DDP's was looked at when its backward pass ended."""
        self.exchanges += 1
        if self.sharded:
            self.look_at_scatters()
        elif self.own and not self.parallel:
            self.look([])
        if self.exchanges + 1 >= self.due and not self.looking:
            self.look_next()

    @careful
    def look(self, hooks: list[str]) -> None:
        """Record both sides of an exchange."""
        parameters = [parameter for ref in self.refs if (parameter := ref()) is not None]
        if len(parameters) < len(self.refs):
            return
        if any(p._backward_hooks and not hasattr(next(reversed(p._backward_hooks.values())), "__torch_unserializable__")
               for p in parameters):
            self.end_look()  # a hook of the script's own came after: what it made of the gradient was not seen
            self.look_next()
            return

        def side(gradients: list[torch.Tensor | None]) -> torch.Tensor:
            return joined([reals(torch.zeros_like(self.pick(parameter)) if gradient is None else gradient)
                           for parameter, gradient in zip(parameters, gradients, strict=True)]).double()

        before = side([self.own.get(index) for index in range(len(parameters))])
        after = side([None if p.grad is None else self.pick(p.grad) for p in parameters])
        if self.signs is None:
            self.signs = random_signs(len(before), 0).t()
        sums = torch.stack([before, after]) @ self.signs
        if not sums.isfinite().all():
            self.own = {}  # a parameter may have no part in the next pass
            return  # a scaler of mixed precision tries again with a smaller scale
        coarsest = max((torch.finfo(p.dtype) for p in parameters), key=lambda kind: kind.eps)  # a complex one's parts
        sums_before, sums_after = sums.tolist()
        self.note(before=digest(before), after=digest(after), elements=len(before), norm=float(before.abs().sum()),
                  dtype=coarsest.dtype, sums_before=sums_before, sums_after=sums_after,
                  by="DistributedDataParallel" if self.parallel else "hand", hooks=hooks)

    @careful
    def look_at_scatters(self) -> None:
        """Record what this rank gave to the exchange, and its part of the average."""
        seen, OBSERVER.scatters = OBSERVER.scatters, None
        if seen is None or seen.unseen or not seen.calls:
            return
        if not (bool(seen.before.isfinite().all()) and bool(seen.after.isfinite().all())):
            return
        self.note(before=seen.given.hexdigest(), after=seen.gained.hexdigest(), elements=seen.elements, norm=seen.norm,
                  dtype=str(seen.dtype).removeprefix("torch."), sums_before=seen.before.tolist(),
                  sums_after=seen.after.tolist(), by="fully_shard", hooks=[], part=True)

    def note(self, **fields: object) -> None:
        """One look at an exchange, and no more until another is due."""
        self.looks += 1
        OBSERVER.looked.add(self)
        self.end_look()
        step = self.exchanges + self.parallel  # DDP's is counted when an optimizer asks
        self.due = due_after(step)
        OBSERVER.chain.add("gradients", epoch=self.number, step=step, of=self.elements, **fields)
        OBSERVER.exchange_heads(f"{self.number}/{self.looks}", f"{self.number}/{self.looks - 1}", 0.0)

    def end_look(self) -> None:
        """Hear of no more gradients."""
        for unhook in self.hooks:
            unhook()
        self.own, self.hooks, self.looking = {}, [], False

    def before_step(self) -> None:
        """Without DDP, what an optimizer is about to apply is what the script has made of all ranks' gradients.

        Where the groups have worked, but by no call that is counted, that may have been an exchange or not. So may
        operations from one rank to another: the stages of a pipeline have other parameters than each other.
        """
        passed, self.passed = self.passed, OBSERVER.passed
        before, self.sent = self.sent, OBSERVER.scattered if self.sharded else OBSERVER.sent
        worked, self.worked = self.worked, OBSERVER.operations() - OBSERVER.passed_over
        if before < self.sent:
            self.exchanged()
        elif passed < self.passed:
            self.end_look()
            self.visible = False
            self.uncounted += 1
            self.exchanged()
        elif worked != self.worked:
            self.uncounted += 1
            self.exchanged()
        else:
            self.own = {}

    def stepped(self, seen: int) -> int:
        """One optimizer step; it is idle if nothing was exchanged since this optimizer's last. Exchanges, until now."""
        if self.parallel:
            self.settle()
        elif seen == self.exchanges and (sent := OBSERVER.scattered if self.sharded else OBSERVER.sent) != self.sent:
            self.sent, self.worked = sent, OBSERVER.operations() - OBSERVER.passed_over
            self.exchanges += 1  # by the optimizer itself, which nobody can look at
            self.uncounted += 1
        self.steps += 1
        self.idle += seen == self.exchanges and (self.exchanges > 0 or self.has_gradient())
        self.state = self.versions()
        return self.exchanges

    def versions(self) -> tuple[int, int]:
        """How often the first parameter and the last were written to."""
        first, last = (ref() for ref in (self.refs[0], self.refs[-1])) if self.refs else (None, None)
        return (-1 if first is None else first._version, -1 if last is None else last._version)

    def has_gradient(self) -> bool:
        """Whether a step had one to apply: torch.distributed.checkpoint takes one with zeros, to make a state."""
        gradients = [p.grad for ref in self.refs if (p := ref()) is not None and p.grad is not None]
        return not gradients or any(gradient.is_sparse or bool(local(gradient).any()) for gradient in gradients)

    @careful
    def weights(self, most: int, last: bool) -> None:
        """Record the weights, or a sample of them; nothing once they are gone."""
        parameters = [parameter for ref in self.refs if (parameter := ref()) is not None]
        if not self.visible or len(parameters) < len(self.refs):
            return
        stride = max(1, -(-self.elements // most))
        values = joined([self.pick(parameter, stride) for parameter in parameters])
        part = {"part": True} if self.sharded else {}
        if last and self.versions() != self.state:
            part["changed"] = True  # by the script, since the last step
        OBSERVER.chain.add("weights", epoch=self.number, step=self.exchanges, parameters=digest(values),
                           elements=len(values), of=self.elements, last=last, **part)

    @safe
    def last_weights(self) -> None:
        """The weights when the script gives its model up, leaves the group, or ends."""
        if OBSERVER.chain and self.steps > self.weights_at:
            self.weights_at = self.steps
            self.weights(LAST_SAMPLE, True)

    @safe
    def give_up(self) -> None:
        """Its DistributedDataParallel is gone, or another has its parameters: these belong to it no longer."""
        self.last_weights()
        self.end_look()
        self.refs, self.owner = [], lambda: None
        OBSERVER.looked.discard(self)
        for one in OBSERVER.steppers.values():
            one.size, one.early = [], True  # which models it steps is asked again

    def facts(self) -> dict[str, object]:
        """What a claim needs of its totals."""
        return {"model": self.number, "by": "DistributedDataParallel" if self.parallel else "hand",
                "sharded": self.sharded, "whole": self.whole, "elements": self.elements, "steps": self.steps,
                "exchanges": self.exchanges, "uncounted": self.uncounted, "idle": self.idle, "looks": self.looks}


def beside(name: str) -> Any:
    """Another file of this folder; a script may have a module of that name."""
    spec: Any = importlib.util.spec_from_file_location(f"{__name__}_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds_of(standstill: Any, name: str, default: float) -> float:
    """The time in a variable; of a value that is not one, a line says that the default counts instead."""
    try:
        value: float = standstill.seconds(name, default)
    except ValueError as error:  # SecondsError
        emit(f"gangplank: {error}; {default:g} counts instead\n")
        return default
    return value


class Stepper:
    """An optimizer: the models whose parameters it has, and the exchanges of each that its last step has seen."""

    def __init__(self, optimizer: Any, gone: Callable[[object], None]) -> None:
        self.optimizer = weakref.ref(optimizer, gone)
        self.size: list[int] = []
        self.seen: dict[Model, int] = {}
        self.frozen: list[tuple[int, int]] = []  # where its groups have parameters that need no gradient, so far
        self.early = True  # whether there is something to do before a step, too
        self.partial = False  # whether it has parameters of no model, as there are too many of those


def size_of(optimizer: Any) -> list[int]:
    """The parameters of each of its groups: both may grow."""
    return [len(group["params"]) for group in optimizer.param_groups]


class Observer:
    """One rank's process, from the moment it imported torch."""

    def __init__(self) -> None:
        self.active, self.blind = True, ""
        self.uneven = False  # whether this rank had fewer inputs than others, within Join
        self.seconds = 0.0
        self.chain: Any = None  # a Chain, once the rank has joined
        self.store: Any = None
        self.world_size, self.steps = 1, 0
        self.unwatched = 0  # steps before the rank joined, and those of parameters of no model
        self.sent = self.scattered = 0  # operations that bring data to others, and those that fully_shard averages by
        self.passed = 0  # and those from one rank to another
        self.scatters: Scatters | None = None  # where a look at fully_shard's exchange is due
        self.scattering = False
        self.models: list[Model] = []
        self.looked: set[Model] = set()  # whose weights are read after the next step
        self.outermost = 0  # the id of the optimizer of that step: one may call another's, and then bring weights
        self.handles: list[Any] = []  # of the hooks of all optimizers
        self.let_go: list[tuple[Model, int, torch.Tensor]] = []  # parameters that torch is about to swap
        self.steppers: dict[int, Stepper] = {}  # by the optimizer's id
        self.depth = 0  # of operations of the script's own: one may call another
        self.apart: list[tuple[Model, int]] = []  # what DDP's groups had counted when the outermost began
        self.began_at: int | None = None  # and what all groups had, if it is passed over
        self.passed_over = self.asked = 0
        self.uncountable = False  # whether no number has the operations of all groups
        self.sharding = True  # whether there is a model of which each rank holds a part, or may be one
        self.counts = dict.fromkeys(COLLECTIVES, 0)
        self.status: object = None
        self.main = self.watched = self.joining = False
        self.launched = 0  # how often a launcher had processes of its own, when it was asked
        self.timing: list[Callable[[], None]] = []  # what ends the hooks of a step whose exchange is timed
        self.timed_at = math.inf  # when the next one will be
        self.ready = 0.0  # when DDP had the last gradient of a backward pass of such a step; 0 once that has ended
        self.timed_pass = -1  # the last one
        self.timed, self.waited = 0, 0.0  # such steps, and seconds from there to the end of their backward passes
        self.loading = self.exchanging = 0.0  # seconds, since
        self.paced, self.paced_steps = -math.inf, 0  # the last line about steps, or the first step
        self.pace_s = math.inf  # until the rank has joined, and where nobody asks for such lines
        self.next = math.inf  # when there is a step to time, or a line to say

    def stand_down(self) -> None:
        """A script that writes its own evidence, or a fork of a rank: nothing more is observed."""
        self.active = False
        for handle in self.handles:
            handle.remove()

    @careful
    def watch(self) -> None:
        """Say where this rank is whenever it does nothing for long: it waits for others, or they for it."""
        if not self.watched:
            self.watched, standstill = True, beside("standstill")
            if (limit_s := seconds_of(standstill, "GANGPLANK_STUCK_S", standstill.STUCK_S)) > 0:
                standstill.begin(limit_s, self.progress, emit, lambda: self.active, lambda: self.joining)

    def progress(self) -> tuple[int, int, int, int]:
        """What grows while a training goes forward."""
        models = list(self.models)
        if self.chain is None and launches():
            self.launched += 1  # what it has started trains
        exchanges = sum(model.exchanges + model.operations() for model in models)
        return self.joining, self.steps + self.launched, sum(self.counts.values()), exchanges

    def begin(self, rank: int, world_size: int, attempt: str) -> None:
        """Who takes part."""
        env, host = os.environ, socket.gethostname()
        script = Path(getattr(sys.modules["__main__"], "__file__", None) or sys.argv[0])
        text = script.read_bytes() if script.is_file() else b""
        settings = json.dumps([hashlib.sha256(text).hexdigest(), of_all_ranks(sys.argv[1:])])
        if self.chain is None or self.chain.rank != rank:
            self.chain = Chain(rank)
        self.world_size = world_size
        self.chain.add("begin", format=FORMAT, observed=True, world_size=world_size, joined=self.store is not None,
                       host=host, pod=env.get("GANGPLANK_POD") or host, node=env.get("GANGPLANK_NODE") or host,
                       pod_uid=env.get("GANGPLANK_POD_UID") or None, job_uid=env.get("GANGPLANK_JOB_UID") or None,
                       pid=os.getpid(), local_rank=int(env.get("LOCAL_RANK") or 0), attempt=attempt,
                       master=f"{env.get('MASTER_ADDR')}:{env.get('MASTER_PORT')}", script=script.name,
                       settings=hashlib.sha256(settings.encode()).hexdigest(), resumed=None)

    @safe
    def will_join(self) -> None:
        """The script makes the process group: from now on the others wait for this rank, or it for them."""
        self.joining, self.store = True, None
        self.watch()

    @careful
    def joins(self) -> None:
        """The process group exists."""
        self.store = dist.PrefixStore("gangplank", dist.distributed_c10d._get_default_store())
        attempt = self.store.compare_set("attempt", "", secrets.token_hex(8)).decode()  # the first one's, for all
        self.begin(dist.get_rank(), dist.get_world_size(), attempt)
        self.uncountable = not one_count()
        if self.pace_s == math.inf and (pace_s := seconds_of(beside("standstill"), "GANGPLANK_PACE_S", PACE_S)):
            self.pace_s, self.next = pace_s, 0.0
            time_of(dataloader._BaseDataLoaderIter, "__next__", "loading")

    @careful
    def wraps(self, ddp: DistributedDataParallel) -> None:
        """A model is exchanged by DDP from now on."""
        if self.chain and len(self.models) < MOST_MODELS:
            parameters = [p for p in ddp.parameters() if p.requires_grad]
            held = set(map(id, parameters))
            for model in self.models:
                if any(id(ref()) in held for ref in model.refs):
                    model.give_up()
            self.add(parameters, ddp)

    def add(self, parameters: list[torch.Tensor], owner: Any) -> Model:
        """One more model."""
        model = Model(len(self.models) + 1, parameters, owner)
        self.models.append(model)
        self.sharding = any(model.sharded for model in self.models)
        return model

    def stepper(self, optimizer: Any) -> Stepper:
        """What an optimizer steps; parameters that no DDP holds are a model of its own."""
        key = id(optimizer)
        one = self.steppers.get(key)
        if one is not None and one.size == size_of(optimizer) and not (one.frozen and any(
                optimizer.param_groups[group]["params"][at].requires_grad for group, at in one.frozen)):
            return one
        left = {id(p): p for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
        models = []
        for model in self.models:
            held = [id(p) for ref in model.refs if (p := ref()) is not None and id(p) in left]
            if held:
                models.append(model)
            for name in held:
                del left[name]
        partial = bool(left) and len(self.models) >= MOST_MODELS
        if left and not partial:
            models.append(self.add(list(left.values()), optimizer))
        if one is None:
            one = self.steppers[key] = Stepper(optimizer, lambda _: self.steppers.__delitem__(key))
        one.partial = partial
        one.size = size_of(optimizer)
        one.frozen = [(group, at) for group, each in enumerate(optimizer.param_groups)
                      for at, p in enumerate(each["params"]) if not p.requires_grad]
        one.seen = {model: one.seen.get(model, 0) for model in models}
        one.early = not all(model.parallel for model in models)
        return one

    @safe
    def before_step(self, optimizer: Any) -> None:
        """An optimizer is about to apply gradients."""
        if self.timing:
            self.end_timing()
        if self.chain:
            for model in self.stepper(optimizer).seen:
                if not model.parallel:
                    model.before_step()

    @safe
    def stepped(self, optimizer: Any) -> None:
        """An optimizer has."""
        self.steps += 1
        if self.next < math.inf and (now := perf_counter()) >= self.next:
            self.is_due(now)
        if not self.chain:
            self.unwatched += 1
        else:
            one = self.stepper(optimizer)
            seen = one.seen
            self.unwatched += one.partial
            for model, exchanges in seen.items():
                seen[model] = model.stepped(exchanges)
            if self.looked and self.outermost == id(optimizer):
                self.outermost = 0
                for model in [model for model in seen if model in self.looked]:
                    self.looked.remove(model)
                    model.weights(SAMPLE, False)

    def lets_go(self, *tensors: torch.Tensor) -> None:
        """Two tensors are about to be swapped, as by a conversion: torch refuses those that have weak references.

        Not even an observer that has failed may keep one.
        """
        if self.timing:
            self.end_timing()
        names = set(map(id, tensors))
        for model in self.models:
            for index, ref in enumerate(model.refs):
                if (parameter := ref()) is not None and id(parameter) in names:
                    model.end_look()
                    model.refs[index] = lambda: None
                    self.let_go.append((model, index, parameter))

    def takes_back(self) -> None:
        """They have been swapped, or not."""
        for model, index, parameter in self.let_go:
            if index < len(model.refs):
                model.refs[index] = weakref.ref(parameter)
        self.let_go = []

    @safe
    def shadows(self) -> None:
        """Within Join, this rank has no input left and takes part in an exchange of the others.

        From now on its exchanges have other numbers than theirs, so that nobody can compare them.
        """
        self.uneven = True
        for model in self.models:
            model.visible = False
            model.end_look()

    def is_due(self, now: float) -> None:
        """Time a step, or say where the time of the last ones went."""
        if now >= self.timed_at:
            self.begin_timing(now)
        if now - self.paced >= self.pace_s:
            self.say_pace(now)
        self.next = min(self.timed_at, self.paced + self.pace_s)

    @safe
    def begin_timing(self, now: float) -> None:
        """Time the exchange of the next step."""
        self.timed_at = now + self.pace_s / TIMED
        self.timing = [unhook for model in self.models if model.parallel
                       for unhook in model.watch(model.ends(), self.has_own)]

    @safe
    def has_own(self, *_: object) -> None:
        """A gradient of this rank's own; from the last one on, a backward pass waits for the others'."""
        self.ready, task = perf_counter(), torch._C._current_graph_task_id()
        if task != self.timed_pass:
            self.timed_pass = task
            torch.autograd.Variable._execution_engine.queue_callback(self.pass_ends)

    @safe
    def pass_ends(self) -> None:
        """DDP has its own callback for this moment; it is in line before the one that is added now."""
        torch.autograd.Variable._execution_engine.queue_callback(self.pass_ended)

    @safe
    def pass_ended(self) -> None:
        """The averages are there. What the script does before its optimizer applies them is its own."""
        if self.ready:
            self.waited, self.ready = self.waited + perf_counter() - self.ready, 0.0

    @safe
    def end_timing(self) -> None:
        """The step of which the exchange is timed is about to end."""
        for unhook in self.timing:
            unhook()
        self.timed, self.timing, self.ready = self.timed + 1, [], 0.0

    @careful
    def say_pace(self, now: float) -> None:
        """Where the time of the last steps went; GPUs work while Python waits for them, in whatever it does next."""
        seconds, steps = now - self.paced, self.steps - self.paced_steps
        if self.world_size > 1 and seconds < math.inf:
            waited = self.waited * steps / max(1, self.timed)  # as if all had been timed
            data = min(self.loading, seconds)
            exchange = min(self.exchanging + waited, seconds - data)
            rest = seconds - data - exchange
            on_gpu = any(p.is_cuda for model in self.models for ref in model.refs[:1] if (p := ref()) is not None)
            shares = (f"GPU and exchange {rest + exchange:.3f} s" if on_gpu
                      else f"compute {rest:.3f} s, exchange {exchange:.3f} s")
            emit(f"gangplank: rank {self.chain.rank}: {steps} steps in {seconds:.3f} s: data {data:.3f} s, {shares}\n")
        self.paced, self.paced_steps, self.loading, self.exchanging = now, self.steps, 0.0, 0.0
        self.timed, self.waited = 0, 0.0
        if self.timed_at == math.inf:
            self.begin_timing(now)

    def operations(self) -> int:
        """How many operations all groups of this rank have carried out; each time another number if nobody knows."""
        if not self.uncountable:
            try:
                return sum(group._get_sequence_number_for_group() for group in dist.distributed_c10d._world.pg_map)
            except RuntimeError:  # a back-end that does not count
                self.uncountable = True
        self.asked += 1
        return self.asked

    @safe
    def own_begins(self, barrier: bool = False) -> None:
        """The script begins an operation of its own; DDP's begin within a backward pass.

        A barrier brings no gradient to others, and fully_shard's of parts of weights do not either.
        """
        self.depth += 1
        if self.depth == 1:
            self.began_at = self.operations() if barrier or self.sharding else None
            within = torch._C._current_graph_task_id() != -1
            self.apart = [] if within else [(model, model.operations()) for model in self.models if model.countable]

    @safe
    def own_ends(self) -> None:
        """What DDP's groups have counted since then is not DDP's exchange."""
        self.depth -= 1
        if self.depth == 0:
            for model, count in self.apart:
                model.settled += model.operations() - count
            if self.began_at is not None:
                self.passed_over += self.operations() - self.began_at

    @careful
    def gives(self, world: bool, given: object) -> None:
        """A reduce-scatter of the script's begins; one of a smaller group is not the average of all."""
        if self.scatters and world and isinstance(given, torch.Tensor):
            self.scatters.gives(given)
        elif self.scatters:
            self.scatters.unseen = True

    @careful
    def gains(self, work: object, gained: object) -> None:
        """It has ended; an asynchronous one may not have."""
        if self.scatters and not self.scatters.unseen and work is None and isinstance(gained, torch.Tensor):
            self.scatters.gains(gained)
        elif self.scatters:
            self.scatters.unseen = True

    def exchange_heads(self, mark: str, earlier: str, wait_s: float) -> None:
        """Publish this chain's newest hash under a mark, and record what the others published under an earlier one."""
        if self.store is None:
            return
        own = self.chain.head
        self.store.set(f"{mark}/{self.chain.rank}", own)
        if earlier.endswith("/0"):
            return
        heads = self.read(earlier, wait_s)
        heads[self.chain.rank] = own
        self.chain.add("heads", epoch=None if mark == "end" else 0, mark=earlier, heads=heads)

    def read(self, mark: str, wait_s: float) -> list[str | None]:
        """What each rank has published under a mark; None for those that have not within the time."""
        keys = [f"{mark}/{rank}" for rank in range(self.world_size)]
        deadline, pause = time.monotonic() + wait_s, 0.002
        while not (everyone := self.store.check(keys)) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(0.1, 1.5 * pause)
        if everyone:
            return [raw.decode() for raw in self.store.multi_get(keys)]
        return [self.store.get(key).decode() if self.store.check([key]) else None for key in keys]

    def gather(self) -> None:
        """Rank 0 prints all records: a pod that ends after its own may be removed, and its log with it.

        Its own are printed again too: a node keeps the newest part of a long log alone.
        """
        rank, many = self.chain.rank, self.world_size > GATHERED
        if rank:
            self.store.set(f"lines/{rank}", "" if many else "".join(self.chain.lines))
            return
        self.store.set("lines/0", "")
        for line in self.chain.lines:
            emit(line)
        for lines in self.read("lines", GATHER_S):
            for line in (lines or "").splitlines(keepends=True):
                emit(line)

    @careful
    def leaves(self) -> None:
        """The script is about to destroy its group."""
        for model in self.models:
            if model.parallel:
                model.settle()
            model.last_weights()

    def crashed(self) -> bool:
        """Whether the process ends because something went wrong."""
        return hasattr(sys, "last_exc") or hasattr(sys, "last_value") or self.status not in (None, 0)

    def end(self) -> None:
        """The last records, if the script ended well."""
        alone = self.chain is None and "TORCHELASTIC_RUN_ID" in os.environ and self.main
        if not self.active or self.crashed() or not (self.chain or alone):
            self.active = False  # what is released from here on is released as Python ends
            return
        self.leaves()
        blind, self.blind = self.blind, ""
        self._end(blind)
        self.active = False

    @careful
    def _end(self, blind: str) -> None:
        if self.chain is None:
            self.begin(int(os.environ["RANK"]), 1, secrets.token_hex(8))
        counts = {name: count for name, count in self.counts.items() if count}
        blind = blind or ("its inputs ended before those of others, within Join" if self.uneven else "")
        self.chain.add("end", steps=self.steps, unwatched=self.unwatched, collectives=counts,
                       models=[model.facts() for model in self.models], blind=blind or None,
                       evidence_seconds=round(self.seconds, 4), cpu_seconds=round(time.process_time(), 3))
        rank, exchanged = self.chain.rank, False
        try:
            if self.store is not None:
                self.exchange_heads("end", "end", WAIT_S)
                exchanged = True
                self.gather()
        except Exception:  # noqa: BLE001, S110  # the store has ended with rank 0
            pass
        if exchanged:
            return
        heads: list[str | None] = [None] * max(self.world_size, rank + 1)
        heads[rank] = self.chain.head
        self.chain.add("heads", epoch=None, mark="end", heads=heads)


OBSERVER = Observer()


def stand_down() -> None:
    """For evidence.py: this script writes its own; and for torchrun.py, whose rank has failed."""
    OBSERVER.stand_down()


def end() -> None:
    """For torchrun.py, whose ranks leave without what Python does at its exit."""
    OBSERVER.end()


def around(owner: Any, name: str, *, before: Callable[..., object] | None = None,
           after: Callable[..., object] | None = None) -> Any:
    """A function that does what the original does, with a word to the observer before or after it."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def observed(*args: Any, **words: Any) -> Any:
        if before:
            before(*args, **words)
        result = original(*args, **words)
        if after:
            after(*args, **words)
        return result

    return observed


def counting(name: str, original: Any) -> Any:
    """A collective that is counted; a compiler sees the original alone."""
    counts = OBSERVER.counts

    @functools.wraps(original)
    def counted(*args: Any, **words: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **words)
        counts[name] += 1
        if name in ONE_TO_ONE:
            OBSERVER.passed += 1
        elif name != "barrier":
            OBSERVER.sent += 1
            OBSERVER.scattered += name.startswith("reduce_scatter")
        OBSERVER.own_begins(name == "barrier")
        began = perf_counter()
        try:
            return original(*args, **words)
        finally:
            seconds = perf_counter() - began
            OBSERVER.exchanging += seconds
            OBSERVER.own_ends()
            if OBSERVER.ready:  # what is counted from there on has it once
                OBSERVER.ready += seconds

    return counted


def scattering(original: Any) -> Any:
    """A reduce-scatter of one tensor, which a look may see both sides of; one that calls another is one."""
    @functools.wraps(original)
    def seen(output: Any, input: Any, *args: Any, **words: Any) -> Any:  # noqa: A002  # torch's own names
        if OBSERVER.scatters is None or OBSERVER.scattering or torch.compiler.is_compiling():
            return original(output, input, *args, **words)
        group = words.get("group", args[1] if len(args) > 1 else None)
        OBSERVER.gives(dist.get_world_size(group) == dist.get_world_size(), input)
        OBSERVER.scattering = True
        try:
            work = original(output, input, *args, **words)
        finally:
            OBSERVER.scattering = False
        OBSERVER.gains(work, output)
        return work

    return seen


def time_of(owner: Any, name: str, kind: str) -> None:
    """Count the time that a method without arguments takes, as loading or as exchanging."""
    original, counts = getattr(owner, name, None), vars(OBSERVER)
    if original is None:
        return  # in a script's own torch; its time counts as computing

    @functools.wraps(original)
    def timed(self: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(self)
        if kind == "exchanging":
            OBSERVER.own_begins()
        began = perf_counter()
        try:
            return original(self)
        finally:
            counts[kind] += perf_counter() - began
            if kind == "exchanging":
                OBSERVER.own_ends()

    setattr(owner, name, timed)


def swapping(original: Any) -> Any:
    """torch.utils.swap_tensors, which refuses tensors with weak references."""
    @functools.wraps(original)
    def swap(one: torch.Tensor, other: torch.Tensor) -> Any:
        OBSERVER.lets_go(one, other)
        try:
            return original(one, other)
        finally:
            OBSERVER.takes_back()

    return swap


def replace(name: str, function: Any) -> None:
    """Put a function into torch.distributed, and where torch has taken the original from there."""
    for module in (dist, dist.distributed_c10d, sys.modules.get("torch.distributed.device_mesh")):
        if hasattr(module, name):
            setattr(module, name, function)


def watch_exit() -> None:
    """Note the status of a SystemExit that ends the program: what runs at Python's exit cannot ask for it."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:  # Python 3.11, in an image of your own: the pod's exit status alone shows the failure
        return
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    while frame.f_back:
        frame = frame.f_back
    program = frame.f_code

    def unwinds(code: CodeType, _offset: int, error: BaseException) -> None:
        if code is program and isinstance(error, SystemExit):
            OBSERVER.status = error.code

    tool = next((one for one in MONITORS if monitoring.get_tool(one) is None), None)
    if tool is not None:
        monitoring.use_tool_id(tool, "gangplank")
        monitoring.register_callback(tool, monitoring.events.PY_UNWIND, unwinds)
        monitoring.set_events(tool, monitoring.events.PY_UNWIND)


def is_main() -> bool:
    """Whether this is the rank's own process, and not one that it has started; those share the mark of its run."""
    run = f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} {os.environ.get('LOCAL_RANK', '')} "
    if not os.environ.get(MAIN, "").startswith(run):  # none, or that of what has started torchrun
        os.environ[MAIN] = f"{run}{os.getpid()}"
    return os.environ[MAIN] == f"{run}{os.getpid()}"


def launches() -> bool:
    """Whether this process has started others, as what calls torchrun for the script does: those are the ranks."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return False
    try:
        return any(children.read_text() for children in Path("/proc/self/task").glob("*/children"))
    except OSError:  # a thread has ended meanwhile
        return False


def install(began: float) -> None:
    """Watch this process; `began` is when its thread's CPU began to work for that."""
    if not dist.is_available():
        return
    c10d, optimizer = dist.distributed_c10d, sys.modules["torch.optim.optimizer"]

    def is_world(group: object = None, **words: object) -> bool:
        return words.get("group", group) in (None, dist.group.WORLD)

    replace("init_process_group", around(
        c10d, "init_process_group", before=lambda *_, **__: OBSERVER.will_join(),
        after=lambda *_, **__: OBSERVER.joins()))
    replace("destroy_process_group", around(
        c10d, "destroy_process_group", before=lambda *a, **w: OBSERVER.leaves() if is_world(*a, **w) else None))
    for name in COLLECTIVES:
        if hasattr(c10d, name):
            original = getattr(c10d, name)
            seen = scattering(original) if name in {"reduce_scatter_tensor", "reduce_scatter_single"} else original
            replace(name, counting(name, seen))
    DistributedDataParallel.__init__ = around(
        DistributedDataParallel, "__init__", after=lambda ddp, *_, **__: OBSERVER.wraps(ddp))
    join_hook = getattr(sys.modules[DistributedDataParallel.__module__], "_DDPJoinHook", None)
    if join_hook:
        join_hook.main_hook = around(join_hook, "main_hook", before=lambda _: OBSERVER.shadows())
    if hasattr(torch.utils, "swap_tensors"):
        torch.utils.swap_tensors = swapping(torch.utils.swap_tensors)
    time_of(DistributedDataParallel, "_sync_buffers", "exchanging")  # those of BatchNorm, before a forward pass
    is_compiling, steppers = torch.compiler.is_compiling, OBSERVER.steppers

    def before_step(one: Any, *_: object) -> None:
        if is_compiling():
            return
        if OBSERVER.timing or (known := steppers.get(id(one))) is None or known.early:
            OBSERVER.before_step(one)
        if OBSERVER.looked and not OBSERVER.outermost:
            OBSERVER.outermost = id(one)

    OBSERVER.handles = [optimizer.register_optimizer_step_pre_hook(before_step),
                        optimizer.register_optimizer_step_post_hook(
                            lambda one, *_: None if is_compiling() else OBSERVER.stepped(one))]

    watch_exit()
    OBSERVER.main = is_main()
    os.register_at_fork(after_in_child=OBSERVER.stand_down)
    atexit.register(OBSERVER.end)
    OBSERVER.seconds += time.thread_time() - began
    if OBSERVER.main and int(os.environ["WORLD_SIZE"]) > 1:
        OBSERVER.watch()
