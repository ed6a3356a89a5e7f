"""Which rank is behind the others, and in what: ranks print where the time of their steps goes.

All ranks of a training take a step together, so each takes the same time for it: who is behind does not wait, and the
others wait for it in the exchange. What is compared is therefore what a rank does by itself: loading data, computing,
and the optimizer's update, which counts as computing. A slow network makes the exchange of all ranks longer, alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from statistics import median_high
from typing import TYPE_CHECKING

from gangplank.proof import log_lines
from gangplank.scheduling.cause import Cause
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# What trainer/observe.py prints of a script; a test compares them. On a GPU it cannot tell computing from waiting.
# The script may print it too: its numbers are short.
COUNT, SECONDS = r"(\d{1,9})", r"(\d{1,9}\.\d{1,9})"
PACE = re.compile(
    rf"gangplank: rank {COUNT}: {COUNT} steps in {SECONDS} s: data {SECONDS} s, "
    rf"(?:compute {SECONDS} s, exchange|GPU and exchange) {SECONDS} s$"
)
SPAN_S = 10.0  # a rank is behind if it is in each of the last two spans of this length: less may be chance
SHARE = 0.25  # of a step, by which it has to be: on a busy machine, healthy ranks differ too
ROUNDING_S = 0.001
MOST = 4  # ranks in the evidence
FIXES = {
    "data": "compare how its pod reads its data with how the others do: volume, node, processes that load",
    "compute": "compare its pod with the others': CPU limit, what else runs on its node, the size of its batches",
}


@dataclass(frozen=True)
class Window:
    """Some steps of one rank: how many, and the seconds that they took, by kind."""

    rank: int
    steps: int
    data: float
    compute: float
    exchange: float
    total: float  # with what is none of these
    on_gpu: bool = False  # then computing is in `exchange`, too

    @property
    def own(self) -> dict[str, float]:
        """Seconds of a step that do not depend on the others."""
        return {"data": self.data / self.steps, "compute": self.compute / self.steps}

    def of_gpu(self) -> Window:
        """The same with what is known on a GPU."""
        return replace(self, compute=0.0, exchange=self.total - self.data, on_gpu=True)

    def __add__(self, other: Window) -> Window:
        """Both together."""
        seconds = ("data", "compute", "exchange", "total")
        more = {name: getattr(self, name) + getattr(other, name) for name in seconds}
        return Window(self.rank, self.steps + other.steps, **more, on_gpu=self.on_gpu)


def is_pace(line: str) -> bool:
    """Whether a line is the observer's, about a rank's steps."""
    return PACE.search(line) is not None


def window(line: str) -> Window | None:
    """What a line says of some steps: the observer's, or the trainer's at the end of an epoch.

    >>> window("gangplank: rank 1: 60 steps in 30.0 s: data 6.0 s, compute 12.0 s, exchange 12.0 s").own
    {'data': 0.1, 'compute': 0.2}
    """
    if match := PACE.search(line):
        rank, steps = int(match[1]), int(match[2])
        total, data, compute, exchange = (float(match[i] or 0) for i in range(3, 7))
        return Window(rank, steps, data, compute, exchange, total, match[5] is None) if steps else None
    fields = log_lines.read(line)
    if not fields or fields.get("event") != "epoch" or not fields["steps"]:
        return None
    kinds = ("data", "compute", "allreduce", "update")
    data, both, exchange, update = (max(0.0, float(fields["seconds"].get(kind, 0.0))) for kind in kinds)
    one = Window(fields["rank"], fields["steps"], data, both - exchange + update, exchange, data + both + update)
    return one if exchange <= both + ROUNDING_S else one.of_gpu()  # there, its exchange is DDP's mean of all epochs


def spans(windows: Sequence[Window]) -> list[Window]:
    """A rank's last two spans, the newest first; fewer if there has been too little time."""
    both: list[Window] = []
    for one in reversed(windows):
        if both and both[-1].total < SPAN_S:
            both[-1] += one
        elif len(both) < 2:
            both.append(one)
        else:
            break
    return [one for one in both if one.total >= SPAN_S]


def late(ranks: Mapping[int, Window]) -> dict[int, tuple[str, float]]:
    """The ranks that are behind the others in some time, in what, and by how many seconds a step.

    >>> usual = {rank: Window(rank, 10, 1.0, 2.0, 7.0, 10.0) for rank in range(3)}
    >>> late(usual)
    {}
    >>> late({**usual, 1: Window(1, 10, 8.0, 2.0, 0.0, 10.0)})
    {1: ('data', 0.7)}
    """
    behind = {}
    for rank, one in ranks.items():
        others = [other.own for number, other in ranks.items() if number != rank]
        usual = {kind: median_high(own[kind] for own in others) for kind in one.own}
        excess = sum(one.own.values()) - median_high(sum(own.values()) for own in others)
        if excess > SHARE * one.total / one.steps:
            kind = max(usual, key=lambda kind: one.own[kind] - usual[kind])
            behind[rank] = (kind, round(excess, 6))
    return behind


def behind(logs: Mapping[str, Iterable[str]], world_size: int | None) -> Cause | None:
    """Which ranks are behind, by the ends of the logs of running pods; None if none is, or if not all have said enough.

    A world size of None is one that only the pods know: all ranks are those up to the highest that has said anything.

    >>> line = "gangplank: rank {}: 60 steps in 30.0 s: data {} s, compute 1.5 s, exchange {} s"
    >>> logs = {"a-0": 2 * [line.format(0, 0.6, 27.9)], "a-1": 2 * [line.format(1, 28.2, 0.3)]}
    >>> behind(logs, 2).text
    'rank 1 (a-1) is behind the others by 0.46 s a step: data takes it 0.47 s, and them 0.01 s'
    """
    windows: dict[int, list[Window]] = {}
    pods: dict[int, str] = {}
    for pod, lines in logs.items():
        for one in filter(None, map(window, lines)):
            windows.setdefault(one.rank, []).append(one)
            pods[one.rank] = pod
    world_size = max(windows, default=0) + 1 if world_size is None else world_size
    ends = {rank: spans(own) for rank, own in windows.items() if rank < world_size}
    if world_size < 2 or len(ends) < world_size or any(len(both) < 2 for both in ends.values()):
        return None
    if any(one.on_gpu for both in ends.values() for one in both):
        ends = {rank: [one.of_gpu() for one in both] for rank, both in ends.items()}
    newest, before = ({rank: both[i] for rank, both in ends.items()} for i in range(2))
    then, now = late(before), late(newest)
    kinds = {rank: kind for rank, (kind, _) in now.items() if rank in then and then[rank][0] == kind}
    if not kinds:
        return None
    worst = max(kinds, key=lambda rank: now[rank][1])
    kind, usual = kinds[worst], [one.own for rank, one in newest.items() if rank not in kinds]
    several = len(kinds) > 1
    who = f"ranks {listed(sorted(kinds))} are" if several else f"rank {worst} ({pods[worst]}) is"
    text = (
        f"{who} behind the others by {'up to ' if several else ''}{now[worst][1]:.2f} s a step: {kind} takes "
        f"{f'rank {worst} ({pods[worst]})' if several else 'it'} {newest[worst].own[kind]:.2f} s, and "
        f"{'the others' if several else 'them'} {median_high(own[kind] for own in usual):.2f} s"
    )
    shown = [*sorted(kinds, key=lambda rank: -now[rank][1]), *(rank for rank in sorted(newest) if rank not in kinds)]
    return Cause("slow", text, tuple(shares(newest[rank]) for rank in sorted(shown[:MOST])), FIXES[kind])


def shares(one: Window) -> str:
    """Where the time of a rank's steps goes."""
    parts = [("data", one.own["data"]), ("GPU and exchange", one.exchange / one.steps)]
    if not one.on_gpu:
        parts = [*one.own.items(), ("exchange", one.exchange / one.steps)]
    return f"rank {one.rank}, a step: " + ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in parts)
