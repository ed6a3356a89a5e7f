"""Which rank of a job failed first, and how: from the report that torchrun writes about a process that has ended.

The exit code of a pod's container is torchrun's own, 1, whatever its script's was. And when one rank ends, the others
lose it and fail a moment later, in the same second of the pods' statuses; torchrun's report has microseconds.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangplank.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

LAST_LINES, LAST_CHARACTERS = 15, 300  # of each log, and of each line, kept to explain a failure
MIXED_LINES = 8 * LAST_LINES  # of a log that several ranks of a pod write at once
SIGNALLED = 128  # added to a signal's number, as shells do
MOST = 255  # the largest exit status; of a larger number, its last 8 bits are: 256 would be success
# https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/multiprocessing/api.py
# Its numbers are as long as torch's can be: a script may print this line too, with any number.
ENDED = re.compile(
    r"E(\d{4} \S{1,32}) .{0,300}\] failed \(exitcode: (-?[1-9]\d{0,2})\) local_rank: (\d{1,9}) \(pid: \d+\) of "
)
# https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/multiprocessing/errors/__init__.py
RANK = re.compile(r"  rank +: (\d{1,9}) \(local_rank: (\d{1,9})\)$")
# What it says before that report, where other processes of the pod still ran
ENDING = re.compile(r"W\d{4} \S{1,32} .*\] Sending process \d{1,9} closing signal \S+$")
# What gloo says once a rank has reached the others: no cause, and of a pod's other ranks after the one that failed
CONNECTED = re.compile(r"\[(\S*gloo/\S+\] INFO|Gloo\]) Rank \d{1,9} is connected to ")
# How torch begins each line of the traceback of a rank
OF_RANK = re.compile(r"\[rank(\d{1,9})\]: ")
# A frame of a rank that stands still (trainer/standstill.py): where it is, not why it failed. Thread and place are cut.
FRAME = re.compile(r"gangplank: rank (\d{1,9}): thread ([^:]{1,64}): (.*)")
# What gloo, NCCL and torchrun's store say where another rank is gone
LOST = re.compile(
    r"connection (was )?(closed|reset) by (remote )?peer|remote process exited|pair closure|broken pipe", re.IGNORECASE
)


# What Python and torch say in words that name no cause a reader could act on, and what to do
HINTS = (
    (re.compile(r"Read-only file system: '([^']*)'"), "{0} is on a read-only file system",
     "write below /tmp, or to the volume or bucket that `output` names"),
    (re.compile(r"PermissionError: \[Errno 13\] Permission denied: '([^']*)'"), "{0} is not this user's",
     "write below /tmp, or to the volume or bucket that `output` names: ranks run as user 1000"),
    (re.compile(r"No space left on device: '([^']*)'"), "{0} is on a volume that is full",
     "free space on it, or let `output` name a larger one"),
    (re.compile(r"Default process group has not been initialized"), "the script does not call init_process_group",
     "call torch.distributed.init_process_group before anything else of torch.distributed"),
)


def hint(lines: Iterable[str]) -> str:
    """The cause and the fix that the last words of a rank give away; "" for all others.

    >>> hint(["OSError: [Errno 30] Read-only file system: '/opt/a.pt'"]).partition(". ")[0]
    '/opt/a.pt is on a read-only file system'
    """
    for line in reversed(list(lines)):
        for pattern, cause, fix in HINTS:
            if match := pattern.search(line):
                return f"{cause.format(*match.groups())}. Fix: {fix}"
    return ""


@dataclass
class LastWords:
    """What the end of one container's log says."""

    pod: str
    kept: deque[str] = field(default_factory=lambda: deque(maxlen=MIXED_LINES))
    time: str = ""  # of torchrun's report, "" before it; of one clock a node, and without the year
    code: int = 0  # of the process that failed; a signal's number is negative
    local_rank: str = ""
    rank: str = ""

    def take(self, line: str) -> None:
        """One more line; what follows torchrun's report is torchrun's, and not the script's."""
        if self.time:
            if (named := RANK.match(line)) and named[2] == self.local_rank:
                self.rank = named[1]
        elif ended := ENDED.search(line):  # a progress bar before it does not end its line
            self.time, self.code, self.local_rank = ended[1], int(ended[2]), ended[3]
            self._keep(line[: ended.start()])
        elif not any(pattern.match(line) for pattern in (FRAME, ENDING, CONNECTED)):
            self._keep(line)

    def _keep(self, line: str) -> None:
        if line.strip():
            self.kept.append(plain(line[:LAST_CHARACTERS]))

    @property
    def lines(self) -> list[str]:
        """The last lines of the script: once the rank is known, without the traceback of another in the same pod."""
        own = [line for line in self.kept
               if not (self.rank and (named := OF_RANK.match(line)) and named[1] != self.rank)]  # fmt: skip
        return own[-LAST_LINES:]

    @property
    def how(self) -> str:
        """How the process ended."""
        return f"exit code {self.code}" if self.code >= 0 else f"signal {-self.code}"

    @property
    def status(self) -> int:
        """The exit status of a command that ends as the process did."""
        return min(self.code if self.code >= 0 else SIGNALLED - self.code, MOST)

    @property
    def who(self) -> str:
        """The rank, and its pod."""
        return f"rank {self.rank} ({self.pod})" if self.rank else self.pod


def first(logs: Iterable[LastWords]) -> LastWords | None:
    """The one whose process failed first; one that complains of another's end is the first only among such."""
    reports = [log for log in logs if log.time]
    return min(reports, key=lambda log: (any(map(LOST.search, log.lines)), log.time), default=None)
