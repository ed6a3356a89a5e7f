"""What ranks say of one another that no status has: who did not join, and where all of them stand still."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gangplank.cluster.stuck import Stuck
from gangplank.scheduling.cause import Cause
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangplank.cluster.failure import LastWords

# https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/TCPStore.cpp
ALONE = re.compile(r"Timed out after (\d+) seconds waiting for clients\. (\d+)/(\d+) clients joined")
# https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/socket.cpp
UNREACHED = re.compile(r"client socket has (?:timed out|failed) .*(?:connect to|network address of) \((\S+), (\d+)\)")


def meeting(words: Iterable[LastWords]) -> Cause | None:
    """Who did not join, if a rank gave up waiting for the others; the other pods' logs have no such line."""
    words = list(words)
    waited = {log.pod: match for log in words for line in log.lines if (match := ALONE.search(line))}
    refused = {log.pod: match for log in words for line in log.lines if (match := UNREACHED.search(line))}
    silent = [log for log in words if log.pod not in waited and log.pod not in refused]
    if waited:
        seconds, joined, size = next(iter(waited.values())).groups()
        last = [f"the last line of {log.pod}: {log.lines[-1]}" if log.lines else f"{log.pod} has printed nothing"
                for log in silent[:3]]  # fmt: skip
        who = listed([log.pod for log in silent]) or f"{int(size) - int(joined)} of its {size} pods"
        text = f"{who} did not join the others within {seconds} s"
        fix = "correct what runs before torchrun in these pods, or give it less to do"
        return Cause("rendezvous", text, (f"{joined} of {size} had joined", *last), fix)
    if refused:
        host, port = next(iter(refused.values())).groups()
        text = f"{listed(list(refused))} could not reach the first rank at {host}:{port}"
        fix = "check that the first pod runs, that its name resolves in the pods, and that no NetworkPolicy forbids it"
        return Cause("rendezvous", text, tuple(match[0] for match in refused.values())[:1], fix)
    return None


def idle(logs: Mapping[str, Sequence[str]], world_size: int | None) -> Cause | None:
    """Where ranks stand still, by the ends of the logs of running pods; None if the newest line says otherwise.

    A world size of None is one that only the pods know.

    >>> line = "gangplank: rank 1: no step and no exchange for 120 s; it is at a.py:2, in load: os.read(3, 9)"
    >>> idle({"a-1": [line]}, 2).text
    'there was no step and no exchange for 120 s: rank 1 is at a.py:2, in load: os.read(3, 9); rank 0 said nothing'
    >>> idle({"a-1": [line, "gangplank: rank 1: it continues"]}, 2)
    """
    ranks = Stuck(world_size)
    for lines in logs.values():
        for line in lines:
            ranks.take(line, 0.0)
    return Cause("stuck", f"there was {ranks.summary()}", tuple(ranks.callers()), ranks.fix) if ranks.waits else None
