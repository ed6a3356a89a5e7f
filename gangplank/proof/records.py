"""Evidence as it is read: records from logs or evidence.jsonl, their hashes, and the chains they form.

The trainer's evidence.py writes what this reads; a test with real runs keeps the two together.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.errors import Problem, Unreadable, shown
from gangplank.proof import log_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FORMAT = 5  # the newest format that this library knows, as in trainer/evidence.py; docs/proof.md says what each means
RANK = re.compile(r"[0-9]{1,9}")
MOST_BITMAP = 1 << 26  # bytes: half a billion samples


class EvidenceError(Unreadable):
    """A record that its format does not explain: which, got, expected, fix."""


class Record(dict[str, object]):
    """One record of evidence; its fields are read with their type, and one that is missing is named.

    >>> Record(kind="epoch", rank=1, seq=4, steps="x").whole("steps")
    Traceback (most recent call last):
    gangplank.proof.records.EvidenceError: rank 1 record 4 (epoch) steps: got "x", expected a whole number >= 0. \
Fix: write it as docs/proof.md describes
    """

    @property
    def name(self) -> str:
        """How a message calls it."""
        return f"rank {self.get('rank')} record {self.get('seq')} ({self.get('kind')})"

    def refused(self, key: str, expected: str, fix: str = "write it as docs/proof.md describes") -> EvidenceError:
        """The error about one field."""
        return EvidenceError(str(Problem(f"{self.name} {key}", shown(self.get(key)), expected, fix)))

    def __missing__(self, key: str) -> object:
        raise self.refused(key, "a value")

    def whole(self, key: str) -> int:
        """A whole number of 0 or more."""
        value = self.get(key)
        if not log_lines.count(value):
            raise self.refused(key, "a whole number >= 0")
        return value

    def number(self, key: str) -> float:
        """A finite number."""
        value = self.get(key)
        if not log_lines.amount(value):
            raise self.refused(key, "a finite number")
        return value

    @property
    def zero(self) -> bool:
        """Whether the rank's own gradient is zero, as far as the record shows it: from format 2 on."""
        return "norm" in self and not self.number("norm")

    def text(self, key: str) -> str:
        """A text."""
        value = self.get(key)
        if not isinstance(value, str):
            raise self.refused(key, "a text")
        return value


Records = list[Record]


def read_records(text: str) -> Records:
    r"""The evidence in a rank's log or in evidence.jsonl; other lines are ignored.

    >>> read_records('hello\n{"kind":"metrics"}\n{"event":"step"}')
    []
    """
    return records_of(text.split("\n"))


def records_of(lines: Iterable[str]) -> Records:
    """The evidence among lines, which are read one by one."""
    return [record(fields) for fields in map(log_lines.read, lines) if fields and log_lines.is_record(fields)]


def record(fields: Mapping[str, object]) -> Record:
    """A record without the `event` that marks it in a log."""
    return Record({key: value for key, value in fields.items() if key != "event"})


def record_hash(record: Mapping[str, object]) -> str:
    """sha256 of a record without its `hash`, as canonical JSON (sorted keys, no spaces)."""
    body = {key: value for key, value in record.items() if key != "hash"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_sound(record: Mapping[str, object]) -> bool:
    """Whether a record has the trainer's shape and the hash of its content."""
    try:
        return log_lines.is_record(record) and record["hash"] == record_hash(record)
    except RecursionError:  # nested more deeply than any record is
        return False


def unpack_ids(record: Mapping[str, object]) -> list[int]:
    """The sample ids of a `samples` record, in order, repeats included.

    >>> unpack_ids({"bitmap": base64.b64encode(zlib.compress(bytes([0b101]))).decode(), "repeats": [2]})
    [0, 2, 2]
    """
    bits, repeats = unpack_bits(record)
    return sorted([*ids_in(bits), *repeats])


def ids_in(bits: int, most: int = 8 * MOST_BITMAP) -> list[int]:
    """The lowest ids of a set that is given as bits.

    >>> ids_in(0b10110), ids_in(0b10110, most=1)
    ([1, 2, 4], [1])
    """
    ids = list[int]()
    for at, byte in enumerate(bits.to_bytes(-(-bits.bit_length() // 8), "little")):
        if len(ids) >= most:
            break
        ids += [8 * at + bit for bit in range(8) if byte >> bit & 1]
    return ids[:most]


def unpack_bits(record: Mapping[str, object]) -> tuple[int, list[int]]:
    """The sample ids of a `samples` record as bits, and its repeats; what would fill the memory is refused."""
    try:
        stream = zlib.decompressobj()
        bitmap = stream.decompress(base64.b64decode(str(record.get("bitmap")), validate=True), MOST_BITMAP)
    except (ValueError, zlib.error) as error:
        raise Record(record).refused("bitmap", f"zlib's bytes in base64 ({error})") from error
    if not stream.eof:
        raise Record(record).refused("bitmap", f"whole, of at most {MOST_BITMAP} bytes")
    repeats = record.get("repeats")
    if not isinstance(repeats, list) or not all(map(log_lines.count, repeats)):
        raise Record(record).refused("repeats", "a list of ids")
    return int.from_bytes(bitmap, "little"), repeats


@dataclass(frozen=True)
class Run:
    """The evidence of the work that led to the final weights, by rank of the last world; and all other evidence."""

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

    @property
    def begins(self) -> list[Record]:
        """Every start that left evidence, also those whose work was abandoned."""
        return self.of("begin") + [r for r in self.abandoned if r["kind"] == "begin"]

    def starts(self, rank: int) -> list[Record]:
        """The records with which a rank's processes began, at least one."""
        begins = self.of("begin", rank)
        if not begins:
            raise EvidenceError(f"rank {rank}: got no record of the kind begin, expected one for each of its processes")
        return begins

    def last_begin(self, rank: int) -> Record:
        """The record with which a rank's last process began."""
        return self.starts(rank)[-1]

    @property
    def world_size(self) -> int:
        """How many ranks the last start had, as they say themselves; at least 1."""
        begins = [self.last_begin(rank) for rank in self.chains if self.of("begin", rank)]
        return max([1, *(size for begin in begins if log_lines.count(size := begin.get("world_size")))])

    @property
    def records(self) -> list[Record]:
        """All sound records."""
        return [*(r for chain in self.chains.values() for r in chain), *self.earlier, *self.abandoned]

    def with_begin(self, kind: str) -> Iterator[tuple[Record, Record]]:
        """Records of one kind that count, each with the `begin` of its process."""
        begins: dict[int, Record] = {}
        for item in [*(r for chain in self.chains.values() for r in chain), *self.earlier]:
            if item["kind"] == "begin":
                begins[item.whole("rank")] = item
            elif item["kind"] == kind and item.whole("rank") in begins:
                yield item, begins[item.whole("rank")]

    @property
    def observed(self) -> bool:
        """Whether all evidence was written from outside the script (trainer/observe.py)."""
        begins = self.begins
        return bool(begins) and all(begin.get("observed") is True for begin in begins)

    @property
    def format(self) -> int:
        """The oldest format of the records; EvidenceError if one is newer than FORMAT."""
        formats = [FORMAT]
        for begin in self.of("begin") or self.begins:
            formats.append(begin.whole("format") if "format" in begin else 1)
            if not 1 <= formats[-1] <= FORMAT:
                raise begin.refused("format", f"1 to {FORMAT}, which this gangplank can judge", "upgrade gangplank")
        return min(formats)


def follow(tip: Record, by_hash: Mapping[str, Record], gaps: list[str]) -> list[Record]:
    """The chain that ends in `tip`, from its beginning; a missing link is noted and ends the walk.

    So is a start that does not follow what its checkpoint carried.
    """
    chain = [tip]
    while chain[-1]["prev"]:
        before = by_hash.get(chain[-1].text("prev"))
        if before is None or before["rank"] != tip["rank"]:
            gaps.append(f"nothing before {chain[-1].name}")
            break
        chain.append(before)
    chain.reverse()
    first = chain[0]
    if not first["prev"] and (first["seq"] or first["kind"] != "begin"):
        gaps.append(f"{first.name} is the first of its chain, but {'not number 0' if first['seq'] else 'no begin'}")
    for item in chain:
        resumed = item.get("resumed") if item["kind"] == "begin" else None
        heads = resumed.get("heads") if isinstance(resumed, dict) else None
        if isinstance(heads, dict) and heads.get(str(item["rank"]), "") != item["prev"]:
            gaps.append(f"{item.name} does not follow what its checkpoint carried")
    numbered = enumerate(chain, start=chain[0].whole("seq"))
    gaps += [f"{r.name} is number {number}" for number, r in numbered if r["seq"] != number]
    return chain


def select(records: Iterable[Mapping[str, object]]) -> Run:
    """Sort the records into chains; those whose hash is wrong are put aside."""
    by_hash: dict[str, Record] = {}
    altered = []
    for item in map(Record, records):
        if is_sound(item):
            by_hash[item.text("hash")] = item
        else:
            altered.append(item.name)
    gaps: list[str] = []
    tips: dict[int, list[Record]] = {}
    for item in sorted(by_hash.values(), key=lambda r: (r.number("time"), r.text("hash"))):
        if item["kind"] == "heads" and item.get("epoch") is None:
            tips.setdefault(item.whole("rank"), []).append(item)
    tips = without_failed(tips, by_hash)
    chains = {rank: follow(own[-1], by_hash, gaps) for rank, own in sorted(tips.items())}
    for rank in left_before(chains):
        del chains[rank], tips[rank]
    finals = {rank: 1 + others(own[:-1], chains[rank], by_hash) for rank, own in sorted(tips.items())}
    earlier: list[Record] = []
    for rank, head in sorted({item for chain in chains.values() for item in heads_at_resume(chain, gaps)}):
        if rank not in chains and head in by_hash:
            earlier += follow(by_hash[head], by_hash, gaps)
        elif rank not in chains:
            gaps.append(f"the chain of rank {rank}, which left when the world shrank, is missing")
    unique_earlier = {r.text("hash"): r for r in earlier}
    used = {r["hash"] for chain in chains.values() for r in chain} | set(unique_earlier)
    abandoned = [r for key, r in by_hash.items() if key not in used]
    return Run(chains, finals, list(unique_earlier.values()), abandoned, altered, gaps)


def start_of(record: Record, by_hash: Mapping[str, Record]) -> Record:
    """The `begin` of the process that wrote a record; where the chain is cut off, the oldest record that is left."""
    while record["kind"] != "begin" and (before := by_hash.get(record.text("prev"))):
        record = before
    return record


def without_failed(tips: Mapping[int, list[Record]], by_hash: Mapping[str, Record]) -> dict[int, list[Record]]:
    """The ranks' ends, but for those of a start that not all its ranks ended, and after which the rank began again.

    A rank may fail when others have finished already: then the job starts again, and all train once more.
    """
    starts = {tip.text("hash"): start_of(tip, by_hash) for own in tips.values() for tip in own}
    ended: dict[str, set[int]] = {}
    for rank, own in tips.items():
        for tip in own:
            ended.setdefault(str(starts[tip.text("hash")].get("attempt")), set()).add(rank)

    def failed(tip: Record, last: Record) -> bool:
        start, again = starts[tip.text("hash")], starts[last.text("hash")]
        size = start.get("world_size")
        return (log_lines.count(size) and len(ended[str(start.get("attempt"))]) < size
                and again["kind"] == "begin" and tip.number("time") < again.number("time"))

    return {rank: [*(tip for tip in own[:-1] if not failed(tip, own[-1])), own[-1]] for rank, own in tips.items()}


def others(tips: Sequence[Record], chain: Sequence[Record], by_hash: Mapping[str, Record]) -> int:
    """How many of a rank's other ends are of no start that this chain resumed.

    All ranks may have finished, and one been killed before it could exit: then they resume, and finish again.
    """
    after = {r["prev"]: r for r in chain}
    resumed: dict[str, bool] = {}
    for tip in tips:
        path, item = list[str](), by_hash.get(tip.text("hash"))
        while item and (name := item.text("hash")) not in resumed and name not in after:
            path.append(name)
            item = by_hash.get(item.text("prev"))
        at = item.text("hash") if item else ""
        answer = resumed[at] if at in resumed else bool(at) and after[at]["kind"] == "begin"
        resumed |= dict.fromkeys(path or [at], answer)
    return sum(not resumed[tip.text("hash")] for tip in tips)


def left_before(chains: Mapping[int, Sequence[Record]]) -> list[int]:
    """Ranks that finished before the world shrank: the smaller one resumed what they had finished, without them.

    All ranks may have finished, and one been killed before it could exit. What such a rank wrote after the head that
    was resumed is of the same start.
    """
    begins = [record for record in chains.get(0, ()) if record["kind"] == "begin"]
    size = begins[-1].get("world_size") if begins else None
    if not log_lines.count(size):
        return []  # the claims refuse it
    resumed, gone = set(heads_at_resume(begins, [])), []
    for rank, chain in chains.items():
        written = list[Record]()
        for record in reversed(chain):
            if (rank, record["hash"]) in resumed:
                gone += [rank] if rank >= size and all(later["kind"] != "begin" for later in written) else []
                break
            written.append(record)
    return gone


def complete(run: Run, world_size: int) -> bool:
    """Whether every rank's chain reaches from its beginning to its end; logs lack the records of earlier pods.

    A job may not say how many ranks it has: then they do.
    """
    size = max(world_size, run.world_size)  # as a record says, it may be any number
    return not run.gaps and all(rank in run.finals for rank in range(size))


def heads_at_resume(chain: Sequence[Record], gaps: list[str]) -> list[tuple[int, str]]:
    """Rank and head of every chain that a checkpoint carried, at each resume of this chain; one without is a gap."""
    carried = []
    for record in chain:
        resumed = record.get("resumed")
        if record["kind"] != "begin" or resumed is None:
            continue
        heads = resumed.get("heads") if isinstance(resumed, dict) else None
        if isinstance(heads, dict) and all(RANK.fullmatch(rank) and log_lines.digest(heads[rank]) for rank in heads):
            carried += [(int(rank), str(head)) for rank, head in heads.items()]
        else:
            gaps.append(f"{record.name} does not say which chains it resumed")
    return carried
