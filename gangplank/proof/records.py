"""Evidence as it is read: records from logs or evidence.jsonl, their hashes, and the chains they form.

The trainer's evidence.py writes what this reads; a test with real runs keeps the two together.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gangplank.proof import log_lines

Record = Mapping[str, object]
Records = list[dict[str, object]]
RANK = re.compile(r"[0-9]{1,9}")


def read_records(text: str) -> list[dict[str, object]]:
    r"""The evidence in a rank's log or in evidence.jsonl; other lines are passed over.

    >>> read_records('hello\n{"kind":"metrics"}\n{"event":"step"}')
    []
    """
    found = (log_lines.read(line) for line in text.split("\n"))
    return [record(fields) for fields in found if fields and log_lines.is_record(fields)]


def record(fields: Record) -> dict[str, object]:
    """A record without the mark that a log has of it."""
    return {key: value for key, value in fields.items() if key != "event"}


def record_hash(record: Record) -> str:
    """sha256 of a record without its `hash`, as canonical JSON (sorted keys, no spaces)."""
    body = {key: value for key, value in record.items() if key != "hash"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_sound(record: Record) -> bool:
    """Whether a record has the trainer's shape and the hash of what it says."""
    try:
        return log_lines.is_record(record) and record["hash"] == record_hash(record)
    except RecursionError:  # nested more deeply than any record is
        return False


def unpack_ids(record: Record) -> list[int]:
    """The sample ids of a `samples` record, in order, repeats included.

    >>> unpack_ids({"bitmap": base64.b64encode(zlib.compress(bytes([0b101]))).decode(), "repeats": [2]})
    [0, 2, 2]
    """
    bitmap = zlib.decompress(base64.b64decode(str(record["bitmap"]), validate=True))
    ids = [8 * index + bit for index, byte in enumerate(bitmap) for bit in range(8) if byte >> bit & 1]
    repeats = record["repeats"]
    if not isinstance(repeats, list):
        raise TypeError("repeats is not a list")
    return sorted([*ids, *repeats])


@dataclass(frozen=True)
class Run:
    """The evidence of the course that led to the final weights, by rank of the last world; and what is beside it."""

    chains: Mapping[int, Sequence[Record]]
    finals: Mapping[int, int]
    """How many completed chains each rank has."""
    earlier: Sequence[Record]
    """Records of ranks that left when the world shrank."""
    abandoned: Sequence[Record]
    altered: Sequence[str]
    gaps: Sequence[str]

    def of(self, kind: str, rank: int | None = None) -> list[Record]:
        """Records of one kind, of one rank or of all (those that left included)."""
        chosen: Iterable[Record] = (
            [r for chain in self.chains.values() for r in chain] + list(self.earlier)
            if rank is None
            else self.chains.get(rank, ())
        )
        return [r for r in chosen if r["kind"] == kind]

    def last_begin(self, rank: int) -> Record:
        """The record with which a rank's last process began."""
        return self.of("begin", rank)[-1]


def record_name(record: Record) -> str:
    """How a message calls a record."""
    return f"rank {record.get('rank')} record {record.get('seq')} ({record.get('kind')})"


def follow(tip: Record, by_hash: Mapping[str, Record], gaps: list[str]) -> list[Record]:
    """The chain that ends in `tip`, from its beginning; a missing link is noted and ends the walk."""
    chain = [tip]
    while chain[-1].get("prev"):
        before = by_hash.get(str(chain[-1]["prev"]))
        if before is None or before.get("rank") != tip.get("rank"):
            gaps.append(f"nothing before {record_name(chain[-1])}")
            break
        chain.append(before)
    chain.reverse()
    gaps += [
        f"{record_name(r)} is number {number}"
        for number, r in enumerate(chain, start=int(str(chain[0].get("seq", 0))))
        if r.get("seq") != number
    ]
    return chain


def select(records: Iterable[Record]) -> Run:
    """Sort the records into chains; those whose hash is wrong are put aside."""
    by_hash: dict[str, Record] = {}
    altered = []
    for item in records:
        if is_sound(item):
            by_hash[str(item["hash"])] = item
        else:
            altered.append(record_name(item))
    gaps: list[str] = []
    final_tips = [r for r in by_hash.values() if r["kind"] == "heads" and r.get("epoch") is None]
    finals = Counter(int(str(r["rank"])) for r in final_tips)
    chains = {int(str(tip["rank"])): follow(tip, by_hash, gaps) for tip in final_tips}
    earlier: list[Record] = []
    for rank, head in sorted({item for chain in chains.values() for item in heads_at_resume(chain, gaps)}):
        if rank not in chains and head in by_hash:
            earlier += follow(by_hash[head], by_hash, gaps)
        elif rank not in chains:
            gaps.append(f"the chain of rank {rank}, which left when the world shrank, is missing")
    unique_earlier = {str(r["hash"]): r for r in earlier}
    used = {str(r["hash"]) for chain in chains.values() for r in chain} | set(unique_earlier)
    abandoned = [r for key, r in by_hash.items() if key not in used]
    return Run(chains, finals, list(unique_earlier.values()), abandoned, altered, gaps)


def complete(run: Run, world_size: int) -> bool:
    """Whether every rank's chain is there from its beginning to its end; logs lack what earlier pods have said."""
    return run.finals.keys() >= set(range(world_size)) and not run.gaps


def heads_at_resume(chain: Sequence[Record], gaps: list[str]) -> list[tuple[int, str]]:
    """Rank and head of every chain that a checkpoint carried, at each resume of this chain; one without is a gap."""
    found = []
    for record in chain:
        resumed = record.get("resumed")
        if record["kind"] != "begin" or resumed is None:
            continue
        heads = resumed.get("heads") if isinstance(resumed, dict) else None
        if isinstance(heads, dict) and all(RANK.fullmatch(rank) and log_lines.digest(heads[rank]) for rank in heads):
            found += [(int(rank), str(head)) for rank, head in heads.items()]
        else:
            gaps.append(f"{record_name(record)} does not say which chains it resumed")
    return found
