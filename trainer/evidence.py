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
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from exchange import all_gather_bytes, gather_bytes
from log import say
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


def tensor_hash(tensor: torch.Tensor) -> bytes:
    """sha256 of the values (a CPU-GPU sync point where the tensor is on a GPU)."""
    return hashlib.sha256(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data).digest()


def joint_hash(hashes: Mapping[str, bytes]) -> str:
    """One hash over named hashes, whatever their order."""
    return hashlib.sha256(b"".join(name.encode() + b"\0" + hashes[name] for name in sorted(hashes))).hexdigest()


def parameter_hash(net: nn.Module) -> str:
    """One hash over all weights."""
    with counted():
        return joint_hash({name: tensor_hash(value) for name, value in net.state_dict().items()})


def pack_ids(ids: torch.Tensor) -> Record:
    """Sample ids as a compressed bitmap (bit i % 8 of byte i // 8 is id i) and the ids that were repeated."""
    values, counts = torch.unique(ids, return_counts=True)
    bits = torch.zeros((int(values[-1]) // 8 + 1) * 8 if len(values) else 0, dtype=torch.uint8)
    bits[values] = 1
    weights = 2 ** torch.arange(8, dtype=torch.int64)
    bitmap = (bits.view(-1, 8) * weights).sum(1).to(torch.uint8).numpy().tobytes()
    return {"count": len(ids), "bitmap": base64.b64encode(zlib.compress(bitmap, 9)).decode(),
            "repeats": values.repeat_interleave(counts - 1).tolist()}


CHECKSUMS = 4
BLOCK = 1 << 16  # elements that are summed at a time


class Look:
    """What was seen of all gradients on one side of an all-reduce."""

    def __init__(self) -> None:
        self.hashes: dict[str, bytes] = {}
        self.sums = torch.zeros(CHECKSUMS, dtype=torch.float64)
        self.norm, self.elements, self.dtypes = 0.0, 0, set[torch.dtype]()
        self.turn = threading.Lock()  # gloo calls back in several threads

    def add(self, bucket: torch.Tensor, index: int, signs: torch.Tensor) -> None:
        """Take in one bucket's gradients [n]; ranks have the same buckets, since DDP lays them so.

        A checksum is the sum of all elements, half of them with the other sign. Sums are linear: that of the mean is
        the mean of the ranks'. Signs repeat every BLOCK elements, but for a sign of each block that the index decides.
        """
        digest, values = tensor_hash(bucket), bucket.double()
        blocks = values.split(BLOCK)
        coins = torch.randint(0, 2, (len(blocks), CHECKSUMS), generator=torch.Generator().manual_seed(index))
        turns = (2 * coins - 1).double().to(values.device)
        sums = torch.stack([turn * (signs[:, : len(block)] @ block)
                            for turn, block in zip(turns, blocks, strict=True)]).sum(0).cpu()
        norm = values.abs().sum().item()
        with self.turn:
            self.hashes[str(index)] = digest
            self.sums += sums
            self.norm, self.elements = self.norm + norm, self.elements + len(values)
            self.dtypes.add(bucket.dtype)


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
        coins = torch.randint(0, 2, (CHECKSUMS, BLOCK), generator=torch.Generator().manual_seed(0))
        self.signs = (2 * coins - 1).double()  # the same on every rank
        ddp.register_comm_hook(None, self._hook)

    def arm(self) -> None:
        """Look at the next backward pass that communicates."""
        self.armed, self.before, self.after = True, Look(), Look()

    def take_exchanges(self) -> int:
        """How many backward passes have averaged all their gradients since the last call."""
        count, self.exchanges = self.exchanges, 0
        return count

    def _look(self, bucket: dist.GradBucket, into: Look) -> None:
        """All gradients of a bucket but the ignored; a CPU-GPU sync point where they are on a GPU."""
        with counted():
            buffer = bucket.buffer()
            self.signs = self.signs.to(buffer.device)
            copy = buffer.clone()
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True) if self.ignore else ():
                if id(parameter) in self.ignore:
                    at = (gradient.data_ptr() - buffer.data_ptr()) // buffer.element_size()
                    copy[at : at + gradient.numel()] = 0
            into.add(copy, bucket.index(), self.signs)

    def _hook(self, _: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer, armed = bucket.buffer(), self.armed
        if armed:
            self._look(bucket, self.before)
        began = time.perf_counter()
        self.exchanges += bucket.is_last()
        buffer.div_(dist.get_world_size())
        pending = dist.all_reduce(buffer, async_op=True).get_future()

        def averaged(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            result = done.value()[0]
            self.seconds += time.perf_counter() - began
            if armed:
                self._look(bucket, self.after)
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
        record["hash"] = self.head = hashlib.sha256(canonical(record)).hexdigest()
        self.seq += 1
        self.unsent.append(canonical(record) + b"\n")
        say("evidence", **record)

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
