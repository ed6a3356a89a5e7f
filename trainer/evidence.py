"""Each rank's evidence: records chained by hash, printed as they happen, gathered by rank 0.

A record is a JSON object; `hash` is the sha256 of its other members as canonical JSON, `prev` the hash of the rank's
record before it. Every epoch the ranks exchange the heads of their chains, so a rewritten chain contradicts the others.
`gangplank proof` reads the records and judges them; docs/proof.md lists their fields. A script writes them like this:

    watch = GradientWatch(ddp)                                # a DistributedDataParallel
    evidence = Evidence(rank, facts)                          # a `begin` record: FORMAT and these facts
    for epoch in (1, 2):
        watch.arm()                                           # look at the gradients of the next step
        for number, ids in enumerate(batches(epoch), start=1):  # this rank's sample ids, as tensors
            loss = learn(ids)                                 # forward, backward, optimizer step
            evidence.saw(ids)
            if watch.armed:
                evidence.gradients(epoch, number, watch)      # before and after the all-reduce
        evidence.samples(epoch)                               # every id since the last such record
        evidence.add("epoch", epoch=epoch, steps=len(batches(epoch)), samples=sum(map(len, batches(epoch))),
                     exchanges=watch.take_exchanges(), loss=loss, accuracy=0.0, parameters=parameter_hash(net))
        evidence.exchange_heads(epoch)
    evidence.add("end", accuracy=0.0, seconds=0.0)
    evidence.exchange_heads(None)                             # the last record: this rank has finished

No `from __future__ import annotations` here: DDP wants a hook whose annotations are types, not strings.
"""

import base64
import contextlib
import hashlib
import json
import math
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from exchange import all_gather_bytes, gather_bytes
from log import say_lines
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Record = dict[str, object]

# What the records hold; docs/proof.md says what each number means. Evidence that was written before there was one is 1.
FORMAT = 3

if observer := sys.modules.get("gangplank_observer"):
    observer.stand_down()  # what writes its own evidence is not observed from outside


def canonical(record: Mapping[str, object]) -> bytes:
    """The one way to write a record down, so that its hash is defined."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of the values (a CPU-GPU sync point where the tensor is on a GPU)."""
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def joint_hash(values: Mapping[str, memoryview]) -> str:
    """One hash over named values, whatever their order."""
    total = hashlib.sha256()
    for name in sorted(values):
        total.update(f"{name}\0{values[name].nbytes}\0".encode())
        total.update(values[name])
    return total.hexdigest()


def parameter_hash(net: nn.Module) -> str:
    """One hash over all weights."""
    with counted():
        return joint_hash({name: raw(value) for name, value in net.state_dict().items()})


def pack_ids(ids: torch.Tensor) -> Record:
    """Sample ids as a compressed bitmap (bit i % 8 of byte i // 8 is id i) and the ids that were repeated."""
    values = ids.numpy()
    bits = np.zeros(values.max(initial=-1) + 1, dtype=np.uint8)
    bits[values] = 1
    repeats = list[int]()
    if int(bits.sum()) < len(values):
        unique, counts = np.unique(values, return_counts=True)
        repeats = unique.repeat(counts - 1).tolist()
    bitmap = np.packbits(bits, bitorder="little").tobytes()
    return {"count": len(values), "bitmap": base64.b64encode(zlib.compress(bitmap, 1)).decode(), "repeats": repeats}


CHECKSUMS = 4
BLOCK = 1 << 13  # elements with signs of their own
AT_ONCE = 8  # blocks: small enough for a CPU's cache


class Signs:
    """The signs of all elements in each checksum: random, fixed, and the same on every rank.

    They repeat every BLOCK elements, but for a sign of each block that the bucket's index decides.
    """

    def __init__(self, device: torch.device) -> None:
        self.of_elements = self.draw(0, BLOCK).t().contiguous().t().to(device)  # columns in one piece: faster
        self.of_blocks: dict[tuple[int, int], torch.Tensor] = {}
        self.values = torch.empty(AT_ONCE, BLOCK, dtype=torch.float64, device=device)  # kept: new memory takes time
        self.turn = threading.Lock()  # gloo calls back in several threads

    @staticmethod
    def draw(seed: int, count: int) -> torch.Tensor:
        """1 or -1 [count, CHECKSUMS]."""
        coins = torch.randint(0, 2, (count, CHECKSUMS), generator=torch.Generator().manual_seed(seed),
                              dtype=torch.float64)
        return coins.mul_(2).sub_(1)

    def sums(self, bucket: torch.Tensor, index: int, *, norm: bool) -> tuple[torch.Tensor, float]:
        """The checksums of a bucket's gradients [n], and the sum of their absolute values if that is asked for.

        A checksum is the sum of all elements, half of them with the other sign. Sums are linear: that of the mean is
        the mean of the ranks'.
        """
        blocks = -(-len(bucket) // BLOCK)
        if (index, blocks) not in self.of_blocks:
            self.of_blocks[index, blocks] = self.draw(1 + index, blocks).to(bucket.device)
        values, rows, norms = self.values[:blocks], list[torch.Tensor](), list[torch.Tensor]()
        flat = values.view(-1)
        with self.turn:
            for part in bucket.split(max(1, len(flat))):
                flat[: len(part)].copy_(part)
                if len(part) < len(flat):
                    flat[len(part) :].zero_()
                rows.append(values @ self.of_elements)
                if norm:
                    norms.append(values.abs_().sum())
        sums = (self.of_blocks[index, blocks] * torch.cat(rows)[:blocks]).sum(0)
        return sums.cpu(), math.fsum(torch.stack(norms).tolist()) if norm else 0.0


class Look:
    """What was seen of all gradients on one side of an all-reduce, by bucket."""

    def __init__(self) -> None:
        self.buckets: dict[int, tuple[torch.Tensor, float]] = {}
        self.hashes: dict[str, memoryview] = {}
        self.elements, self.dtypes = 0, set[torch.dtype]()
        self.turn = threading.Lock()  # gloo calls back in several threads

    def add(self, bucket: torch.Tensor, index: int, signs: Signs, *, averaged: bool) -> None:
        """Take in one bucket's gradients [n]; ranks have the same buckets, since DDP lays them so.

        Averages are hashed, as they have to be equal to the last bit. A rank's own gradients are identified by their
        checksums: equal gradients have equal ones.
        """
        sums, norm = signs.sums(bucket, index, norm=not averaged)
        content = hashlib.sha256(raw(bucket)).digest() if averaged else struct.pack("<d", norm) + raw(sums)
        with self.turn:
            self.buckets[index], self.hashes[str(index)] = (sums, norm), memoryview(content)
            self.elements += len(bucket)
            self.dtypes.add(bucket.dtype)

    @property
    def sums(self) -> torch.Tensor:
        """The checksums of all buckets together."""
        return sum((self.buckets[index][0] for index in sorted(self.buckets)),
                   torch.zeros(CHECKSUMS, dtype=torch.float64))

    @property
    def norm(self) -> float:
        """The sum of all absolute values."""
        return math.fsum(norm for _, norm in self.buckets.values())


class GradientWatch:
    """A DDP communication hook: DDP's own averaging, which counts, and looks at what goes in and comes out when armed.

    Hashes and checksums are made of both sides.
    """

    def __init__(self, ddp: DistributedDataParallel, ignore: Iterable[nn.Parameter] = ()) -> None:
        self.ignore = {id(p) for p in ignore}
        self.armed = False
        self.seconds = 0.0
        self.exchanges = 0
        self.before, self.after = Look(), Look()
        self.signs: Signs | None = None
        ddp.register_comm_hook(None, self._hook)

    def arm(self) -> None:
        """Look at the next backward pass that communicates."""
        self.armed, self.before, self.after = True, Look(), Look()

    def take_exchanges(self) -> int:
        """How many backward passes have averaged all their gradients since the last call."""
        count, self.exchanges = self.exchanges, 0
        return count

    def _look(self, bucket: dist.GradBucket, *, averaged: bool) -> None:
        """All gradients of a bucket but the ignored; a CPU-GPU sync point where they are on a GPU."""
        with counted():
            buffer = bucket.buffer()
            self.signs = self.signs or Signs(buffer.device)
            names = [id(parameter) for parameter in bucket.parameters()] if self.ignore else []
            places = [gradient for name, gradient in zip(names, bucket.gradients(), strict=True)
                      if name in self.ignore] if self.ignore.intersection(names) else []
            hidden = [(place, place.clone()) for place in places]
            for place in places:  # views into the buffer
                place.zero_()
            look = self.after if averaged else self.before
            look.add(buffer, bucket.index(), self.signs, averaged=averaged)
            for place, values in hidden:
                place.copy_(values)

    def _hook(self, _: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer, armed = bucket.buffer(), self.armed
        if armed:
            self._look(bucket, averaged=False)
        began = time.perf_counter()
        self.exchanges += bucket.is_last()
        buffer.div_(dist.get_world_size())
        pending = dist.all_reduce(buffer, async_op=True).get_future()

        def averaged(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            result = done.value()[0]
            self.seconds += time.perf_counter() - began
            if armed:
                self._look(bucket, averaged=True)
            return result

        return pending.then(averaged)


CPU_SECONDS = [0.0]  # that this process has spent on its evidence


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Add the body's time on this thread's CPU to CPU_SECONDS."""
    began = time.thread_time()
    yield
    CPU_SECONDS[0] += time.thread_time() - began


def finite(value: float) -> float | None:
    """A number that JSON has."""
    return value if math.isfinite(value) else None


class Evidence:
    """One rank's chain, and on rank 0 also the records that the others have handed in."""

    def __init__(self, rank: int, facts: Record, collected: Mapping[int, list[Record]] | None = None,
                 resumed: Record | None = None) -> None:
        """Begin a chain, or continue the one in `collected` (all chains up to a checkpoint)."""
        self.rank = rank
        # Lines, not records: a checkpoint writes them all, and must not take longer the longer the run is.
        self.collected = {r: [canonical(record) + b"\n" for record in records]
                          for r, records in (collected or {}).items()}
        own = (collected or {}).get(rank, [])
        self.head = str(own[-1]["hash"]) if own else ""
        self.seq = len(own)
        self.unsent: list[bytes] = []
        self.unprinted: list[str] = []
        self.ids: list[torch.Tensor] = []
        self.turn = threading.RLock()  # a checkpoint's thread makes the record that a mark stands for
        self.marked: tuple[int, list[torch.Tensor]] | None = None
        self.before_mark = 0
        self.add("begin", format=FORMAT, **facts, resumed=resumed)

    def add(self, kind: str, **fields: object) -> None:
        """Append one record and print it."""
        with self.turn, counted():
            self._settle()
            self._add(kind, **fields)

    def _add(self, kind: str, **fields: object) -> None:
        record: Record = {"kind": kind, "rank": self.rank, "seq": self.seq, "prev": self.head,
                          "time": round(time.time(), 3), **fields}
        body = canonical(record)
        self.head = hashlib.sha256(body).hexdigest()
        self.seq += 1
        line = b'%s,"hash":"%s"}\n' % (body[:-1], self.head.encode())
        self.unsent.append(line)
        self.unprinted.append('{"event":"evidence",' + line[1:].decode())
        if kind not in {"samples", "epoch"}:  # the next record follows at once
            self._print()

    def _print(self) -> None:
        say_lines("".join(self.unprinted))
        self.unprinted = []

    def saw(self, ids: torch.Tensor) -> None:
        """Note the samples of a batch; costs nothing until `samples`."""
        self.ids.append(ids)

    def samples(self, epoch: int) -> None:
        """Record the samples seen since the last such record."""
        with self.turn, counted():
            self._settle()
            self._samples(epoch, self.ids)
        self.ids = []

    def _samples(self, epoch: int, ids: list[torch.Tensor]) -> None:
        if ids:
            self._add("samples", epoch=epoch, **pack_ids(torch.cat(ids)))

    def mark(self, epoch: int) -> None:
        """Set the mark up to which `take` takes; the next caller makes the record of the samples before it."""
        self.marked, self.ids = (epoch, self.ids), []

    def _settle(self) -> None:
        if self.marked:
            (epoch, ids), self.marked = self.marked, None
            self._samples(epoch, ids)
            self.before_mark = len(self.unsent)

    def gradients(self, epoch: int, step: int, watch: GradientWatch) -> None:
        """Record what an armed watch has seen."""
        before, after = watch.before, watch.after
        dtypes = sorted(before.dtypes, key=lambda dtype: -torch.finfo(dtype).eps)  # the coarsest is the bound's
        self.add("gradients", epoch=epoch, step=step, before=joint_hash(before.hashes), after=joint_hash(after.hashes),
                 elements=before.elements, dtype=str(dtypes[0]).removeprefix("torch.") if dtypes else "none",
                 norm=finite(before.norm), sums_before=[finite(value) for value in before.sums.tolist()],
                 sums_after=[finite(value) for value in after.sums.tolist()])
        watch.armed = False

    def exchange_heads(self, epoch: int | None) -> None:
        """Send the others this chain's head and record theirs; None marks the last exchange of a run."""
        heads = [raw.hex() for raw in all_gather_bytes(bytes.fromhex(self.head))]
        self.add("heads", epoch=epoch, heads=heads)

    def take(self) -> list[bytes]:
        """The records before the last mark that were not handed in yet; from now on they count as handed in."""
        with self.turn:
            self._settle()
            if self.unprinted:
                self._print()
            taken, self.unsent = self.unsent[:self.before_mark], self.unsent[self.before_mark:]
            self.before_mark = 0
            return taken

    def hand_in(self, extra: Record, taken: list[bytes],
                group: dist.ProcessGroup | None = None) -> list[dict[str, Any]]:
        """Bring records to rank 0, with something extra; returns every rank's extra on rank 0."""
        mine = json.dumps(extra).encode() + b"\n" + b"".join(taken)
        extras = []
        for rank, raw in enumerate(gather_bytes(mine, group)):
            first, *lines = raw.splitlines(keepends=True)
            extras.append(json.loads(first))
            self.collected.setdefault(rank, []).extend(lines)
        return extras

    def lines(self) -> bytes:
        """All collected records, one JSON object a line, by rank."""
        return b"".join(line for rank in sorted(self.collected) for line in self.collected[rank])


def read_lines(raw: bytes) -> dict[int, list[Record]]:
    """The chains that `lines` wrote, by rank."""
    chains: dict[int, list[Record]] = {}
    for line in raw.splitlines():
        record = json.loads(line)
        chains.setdefault(record["rank"], []).append(record)
    return chains
