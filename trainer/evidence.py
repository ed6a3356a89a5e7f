"""Each rank's evidence: records chained by hash, printed as they happen, gathered by rank 0.

A record is a JSON object; `hash` is the sha256 of its other members as canonical JSON, `prev` the hash of the rank's
record before it. The ranks exchange the heads of their chains, so a rewritten chain contradicts the others: train.py at
the end, and at ends of epochs at least 128 steps apart. `gangplank proof` reads the records and judges them;
docs/proof.md lists their fields. A script writes them like this, and may exchange heads at the end of each epoch:

    evidence = Evidence(rank, facts)                          # a `begin` record: FORMAT and these facts
    watch = GradientWatch(ddp, evidence)                      # of gradients.py; of a DistributedDataParallel
    for epoch in (1, 2):
        for ids in batches(epoch):                            # this rank's sample ids, as tensors
            loss = learn(ids)                                 # forward, backward, optimizer step
            evidence.saw(ids)
            watch.stepped(epoch)                              # its gradients, before and after the all-reduce
        evidence.samples(epoch)                               # every id since the last such record
        evidence.add("epoch", epoch=epoch, steps=len(batches(epoch)), samples=sum(map(len, batches(epoch))),
                     exchanges=watch.take_exchanges(), loss=loss, accuracy=0.0, parameters=parameter_sample(net))
        evidence.exchange_heads(epoch)
    evidence.add("end", accuracy=0.0, seconds=0.0, parameters=parameter_hash(net))
    evidence.exchange_heads(None)                             # the last record: this rank has finished
"""

import base64
import contextlib
import hashlib
import json
import math
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from exchange import all_gather_bytes, gather_bytes
from log import say_lines
from torch import nn

Record = dict[str, Any]

# What the records hold; docs/proof.md says what each number means. Evidence that was written before there was one is 1.
FORMAT = 5
SMALL = 1 << 13  # elements of a tensor that is hashed together with others
SAMPLE = 1 << 11  # elements of the weights, more or less
PATIENT = {"samples", "steps", "gradients", "epoch"}  # these wait for others: made together, they take less time
MARK = "mark"  # no record
STORED = 1 << 9  # bytes of a bitmap that is not worth compressing
SHORT = 128  # steps: fewer are not recorded at the end of an epoch, but with the next ones

if observer := sys.modules.get("gangplank_observer"):
    observer.stand_down()  # what writes its own evidence is not observed from outside


ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def canonical(record: Mapping[str, object]) -> bytes:
    """The one way to write a record down, so that its hash is defined."""
    return ENCODE(record).encode()


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of the values (a CPU-GPU sync point where the tensor is on a GPU)."""
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def digest(tensor: torch.Tensor) -> str:
    """One hash over a tensor."""
    return hashlib.sha256(raw(tensor)).hexdigest()


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
        parts: dict[str, list[torch.Tensor]] = {}
        for name, value in net.state_dict().items():  # small ones of a type as one: an operation on each takes longer
            kind = f"small {value.dtype}" if value.numel() <= SMALL else name
            parts.setdefault(kind, []).append(value.detach().reshape(-1))
        return joint_hash({name: raw(torch.cat(values) if values[1:] else values[0]) for name, values in parts.items()})


class ParameterSample:
    """Copies of every n-th element of all weights, always the same ones; for tensors that stay in place."""

    def __init__(self, net: nn.Module) -> None:
        values = [value.detach().reshape(-1) for value in net.state_dict().values()]
        stride = max(1, -(-sum(map(len, values)) // SAMPLE))
        self.values = [value[::stride] for value in values]

    def __call__(self) -> torch.Tensor:
        """The weights of this moment; a record has their hash."""
        with counted():
            return torch.cat(self.values)


def parameter_sample(net: nn.Module) -> str:
    """One hash over elements of all weights."""
    with counted():
        return digest(ParameterSample(net)())


def pack_ids(batches: list[torch.Tensor]) -> Record:
    """Sample ids as a compressed bitmap (bit i % 8 of byte i // 8 is id i) and the ids that were repeated."""
    values = torch.cat(batches).numpy()
    bits = np.zeros(np.maximum.reduce(values, initial=-1) + 1, dtype=np.uint8)
    bits[values] = 1
    repeats = list[int]()
    if np.count_nonzero(bits) < len(values):
        unique, counts = np.unique(values, return_counts=True)
        repeats = unique.repeat(counts - 1).tolist()
    bitmap = np.packbits(bits, bitorder="little").tobytes()
    stream = stored(bitmap) if len(bitmap) <= STORED else zlib.compress(bitmap, 1)
    return {"count": len(values), "bitmap": base64.b64encode(stream).decode(), "repeats": repeats}


def stored(content: bytes) -> bytes:
    """What zlib makes of it without compression, in a tenth of the time: it takes no memory for that."""
    size = len(content)
    return b"\x78\x01\x01%b%b%b%b" % (size.to_bytes(2, "little"), (0xFFFF - size).to_bytes(2, "little"), content,
                                      zlib.adler32(content).to_bytes(4, "big"))


CPU_SECONDS = [0.0]  # that this process has spent on its evidence


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Add the body's time on this thread's CPU to CPU_SECONDS."""
    began = time.thread_time()
    yield
    CPU_SECONDS[0] += time.thread_time() - began


class Watch(Protocol):
    """What gradients.py adds."""

    def take_steps(self, least: int) -> Record | None:
        """What is recorded of the steps since the last record, if they are so many."""


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
        self.token = str(facts["attempt"])  # of this start, the same on every rank
        self.steps_before = int(str(resumed["step"])) if resumed else 0
        self.watch: Watch | None = None
        self.turn = threading.RLock()  # a checkpoint's thread makes the records that wait, too
        self.waiting: list[tuple[str, float, Record]] = []  # kind, time and fields of records that are made together
        self.before_mark = 0
        self.add("begin", format=FORMAT, **facts, resumed=resumed)

    def add(self, kind: str, **fields: object) -> None:
        """Append one record; it is printed with the next that does not wait."""
        with counted():
            if kind == "end":
                self._wait("steps", self._take_steps())
            self._wait(kind, fields)
            if kind not in PATIENT:
                self._settle()

    def _wait(self, kind: str, fields: Record | None) -> None:
        if fields is not None:
            self.waiting.append((kind, round(time.time(), 3), fields))

    def _settle(self) -> None:
        """Make the records that wait, and print them."""
        with self.turn:
            while self.waiting:
                kind, at, fields = self.waiting.pop(0)
                if kind == MARK:
                    self.before_mark = len(self.unsent)
                elif kind == "samples":
                    self._add(kind, at, {"epoch": fields["epoch"], **pack_ids(fields["ids"])})
                elif kind == "epoch" and isinstance(fields.get("parameters"), torch.Tensor):
                    self._add(kind, at, {**fields, "parameters": digest(fields["parameters"])})
                else:
                    self._add(kind, at, fields)
            if self.unprinted:
                say_lines("".join(self.unprinted))
                self.unprinted = []

    def _add(self, kind: str, at: float, fields: Record) -> None:
        body = canonical({"kind": kind, "rank": self.rank, "seq": self.seq, "prev": self.head, "time": at, **fields})
        self.head = hashlib.sha256(body).hexdigest()
        self.seq += 1
        line = b'%s,"hash":"%s"}\n' % (body[:-1], self.head.encode())
        self.unsent.append(line)
        self.unprinted.append('{"event":"evidence",' + line[1:].decode())

    def saw(self, ids: torch.Tensor) -> None:
        """Note the samples of a batch; costs nothing until `samples`."""
        self.ids.append(ids)

    def samples(self, epoch: int) -> None:
        """Record the samples seen since the last such record, and the steps if they are many."""
        with counted():
            self._samples(epoch)
            self._wait("steps", self._take_steps(SHORT))

    def _samples(self, epoch: int) -> None:
        if self.ids:
            self._wait("samples", {"epoch": epoch, "ids": self.ids})
            self.ids = []

    def _take_steps(self, least: int = 1) -> Record | None:
        return self.watch.take_steps(least) if self.watch else None

    def mark(self, epoch: int) -> None:
        """Set the mark up to which `take` takes; the next caller makes the records of what was before it."""
        with counted():
            self._samples(epoch)
            self._wait("steps", self._take_steps())
            self._wait(MARK, {})

    def exchange_heads(self, epoch: int | None) -> None:
        """Send the others this chain's head and record theirs; None marks the last exchange of a run."""
        with counted():
            self._settle()
            heads = [raw.hex() for raw in all_gather_bytes(bytes.fromhex(self.head))]
        self.add("heads", epoch=epoch, heads=heads)

    def take(self) -> list[bytes]:
        """The records before the last mark that were not handed in yet; from now on they count as handed in."""
        with self.turn, counted():
            self._settle()
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
