"""Ranks that do nothing for long, in one message: each says where it is, then its stack (trainer/standstill.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gangplank.cluster.failure import FRAME, LAST_CHARACTERS
from gangplank.cluster.pace import window
from gangplank.proof import log_lines
from gangplank.text import listed

# What the rank prints; a test compares them.
# A script may print them too: numbers are short, and a place is cut.
SAID = re.compile(r"gangplank: rank (\d{1,9}): (?:no step and no exchange|(not joined)) for (\d{1,9}) s; it is at (.*)")
CONTINUES = re.compile(r"gangplank: rank (\d{1,9}): it continues$")
FIX = "all ranks have to call the same collectives in the same order"
JOIN = "every rank has to come to init_process_group"
MAIN = "MainThread"
OWN = re.compile(r"[^/<\s].*:\d+, in ")  # a frame of the script's folder: other files have their whole path
MOST = 3  # places in a message
PLAUSIBLE_RANKS = 10_000  # of a job that does not say its world size: a script may print any rank
FRAMES = 4  # of the script, from the innermost outwards, that are kept of a rank


def began_again(line: str) -> int | None:
    """The rank that has taken steps since, by its own line, or is new: torchrun starts it in the same container."""
    if one := window(line):
        return one.rank
    fields = log_lines.read(line) or {}
    return int(fields["rank"]) if fields.get("event") in {"start", "step"} else None


@dataclass
class Stuck:
    """What ranks have said of themselves, of which one message is made once all have, or the others have had time."""

    world_size: int | None  # None: only its pods know
    wait_s: float = 10.0  # from the first rank that says so: their clocks began together, and their lines travel
    places: dict[int, str] = field(default_factory=dict)
    apart: set[int] = field(default_factory=set)  # those that have not joined the others
    frames: dict[int, list[str]] = field(default_factory=dict)  # of the script, in a rank's main thread
    idle_s: int = 0
    since: float = 0.0

    def take(self, line: str, now: float) -> bool:
        """Whether a line is that of one of the job's ranks."""
        if self.places and (rank := began_again(line)) is not None:
            self.places.pop(rank, None)
        if moves := CONTINUES.search(line):
            self.places.pop(int(moves[1]), None)
            return self.has(int(moves[1]))
        if part := FRAME.search(line):
            self.frame(int(part[1]), part[2], part[3])
            return self.has(int(part[1]))
        match = SAID.search(line)
        if match is None or not self.has(int(match[1])):
            return False
        self.since = self.since if self.places else now
        others_s = self.idle_s if self.places else 0
        rank = int(match[1])
        self.places[rank], self.frames[rank] = match[4][:LAST_CHARACTERS], []
        self.apart = self.apart | {rank} if match[2] else self.apart - {rank}
        self.idle_s = max(others_s, int(match[3]))
        return True

    def has(self, rank: int) -> bool:
        """Whether the job may have this rank."""
        return rank < (PLAUSIBLE_RANKS if self.world_size is None else self.world_size)

    @property
    def complete(self) -> bool:
        """Whether all ranks have said where they are."""
        return self.world_size is not None and len(self.places) >= self.world_size

    @property
    def waits(self) -> bool:
        """Whether a rank waits for others; ranks of which none has joined may only have much to prepare."""
        return not self.places.keys() <= self.apart

    @property
    def fix(self) -> str:
        """What has to be corrected."""
        return JOIN if self.places.keys() & self.apart else FIX

    def frame(self, rank: int, thread: str, text: str) -> None:
        """Keep a frame of the script of a rank that has said that it stands still."""
        kept = self.frames.get(rank)
        if kept is not None and len(kept) < FRAMES and thread == MAIN and OWN.match(text):
            kept.append(text[:LAST_CHARACTERS])

    def callers(self) -> list[str]:
        """From where in the script the ranks came to where they are, a line for each way."""
        ways: dict[tuple[str, ...], list[int]] = {}
        for rank in sorted(self.places):
            if outer := self.frames.get(rank, [])[1:]:
                ways.setdefault((self.places[rank], *outer), []).append(rank)
        return [f"rank{'s' if len(own) > 1 else ''} {listed(own)}: called from {'; from '.join(way[1:])}"
                for way, own in list(ways.items())[:MOST]]  # fmt: skip

    def message(self, now: float) -> str:
        """The message, once; "" before it is complete.

        >>> ranks = Stuck(2)
        >>> for rank, place in enumerate(["a.py:4, in train: dist.barrier()", "a.py:2, in load: os.read(3, 9)"]):
        ...     _ = ranks.take(f"gangplank: rank {rank}: no step and no exchange for 120 s; it is at {place}", 0.0)
        >>> print(ranks.message(0.0))
        no step and no exchange for 120 s: rank 0 is at a.py:4, in train: dist.barrier(); rank 1 is at a.py:2, \
in load: os.read(3, 9). Fix: all ranks have to call the same collectives in the same order
        """
        if not self.waits or (not self.complete and now < self.since + self.wait_s):
            return ""
        text = f"{self.summary()}. Fix: {self.fix}"
        self.places, self.idle_s = {}, 0
        return text

    def summary(self) -> str:
        """Where all of them are."""
        ranks: dict[str, list[int]] = {}
        for rank, place in sorted(self.places.items()):
            ranks.setdefault(f"{place}, before joining" if rank in self.apart else place, []).append(rank)
        parts = [f"rank{'s' if len(own) > 1 else ''} {listed(own)} {'are' if len(own) > 1 else 'is'} at {place}"
                 for place, own in list(ranks.items())[:MOST]]
        size = self.world_size or max(self.places) + 1  # at least
        silent = [rank for rank in range(size) if rank not in self.places]
        parts += [f"rank{'s' if len(silent) > 1 else ''} {listed(silent, 6)} said nothing"] if silent else []
        return f"no step and no exchange for {self.idle_s} s: {'; '.join(parts)}"
