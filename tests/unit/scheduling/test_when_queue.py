"""Fifty simulated trainings behind one another, eight at a time: how often the intervals of `when` hold what comes.

Each has a start-up (scheduler, pod, import of torch, rendezvous), steps with an evaluation after each epoch, and an
end (last evaluation, evidence). The machine is busy with other work that comes and goes, so all of it takes longer
or shorter together.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field
from statistics import median

import pytest

from gangplank.scheduling.when import (
    CLOSING,
    OPENING,
    Holder,
    Interval,
    Run,
    Waiting,
    by_running,
    closing,
    left,
    opening,
    outlook,
    rest_of,
    spread,
    starting,
)  # fmt: skip
from tests.unit.scheduling.states import cluster, job, node, pod

JOBS, SLOTS, EPOCHS, STEPS = 50, 8, (8, 12, 16), 50
EVERY, SHOWN = 5, 40  # steps between two reports, and how many of these are read
ONE = job("indexed", workers=0, resources={"cpu": "1", "memory": "1Gi"})


@dataclass
class Training:
    """What really happens to one job."""

    name: str
    epochs: int
    started: float = 0.0
    ended: float = 0.0
    points: list[tuple[float, int]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return STEPS * self.epochs

    def said(self, now: float) -> list[tuple[float, int]]:
        """What it has reported by then."""
        return [point for point in self.points if point[0] <= now][-SHOWN:]


class Machine:
    """How much longer everything takes: other work comes and goes."""

    def __init__(self, chance: random.Random, noise: float) -> None:
        self.levels, level = [], 0.0
        for _ in range(2000):
            level = 0.85 * level + chance.gauss(0, noise)
            self.levels.append(math.exp(level))

    def slower(self, now: float) -> float:
        return self.levels[min(int(now / 10), len(self.levels) - 1)]


def happens(chance: random.Random, noise: float) -> list[Training]:
    """The whole run."""
    machine = Machine(chance, noise)
    jobs = [Training(f"t{number:02}", chance.choice(EPOCHS)) for number in range(JOBS)]
    free = [0.0] * SLOTS
    for one in jobs:
        now = heapq.heappop(free)
        now += chance.uniform(2, 6) * machine.slower(now)
        one.started = now
        now += chance.uniform(5, 40) * machine.slower(now)  # its import of torch shares the machine with others
        for step in range(1, one.total + 1):
            now += 0.12 * chance.uniform(0.7, 1.4) * machine.slower(now)
            if step % EVERY == 0:
                one.points.append((now, step))
            if step % STEPS == 0:
                now += chance.uniform(0.5, 1.5) * machine.slower(now)
        one.ended = now + chance.uniform(2, 5) * machine.slower(now)
        heapq.heappush(free, one.ended + chance.uniform(0, 2))
    return jobs


def known(jobs: list[Training], now: float) -> tuple[dict[int, Interval], dict[str, Interval | None], Interval]:
    """By epochs, how long a job takes; by job that runs, what it has left; and how long a start takes."""
    ended = [one for one in jobs if one.ended <= now]
    running = [one for one in jobs if one.started <= now < one.ended]
    rests: dict[str, Interval | None] = {}
    lasts: dict[int, Interval] = {}
    ends: dict[int, Interval] = {}
    for epochs in EPOCHS:
        like = [one for one in ended if one.epochs == epochs][-5:]
        if like:
            ends[epochs] = closing(like[-1].points[-SHOWN:], like[-1].total, like[-1].ended)
    for one in running:
        rests[one.name] = left(one.said(now), one.total, now, ends.get(one.epochs, CLOSING))
    for epochs in EPOCHS:
        own = [(now - one.started, rest) for one in running if one.epochs == epochs and (rest := rests[one.name])]
        like = [one for one in ended if one.epochs == epochs][-5:]
        if one_like := spread([one.ended - one.started for one in like]) or by_running(own):
            lasts[epochs] = one_like
    for one in running:
        if starting(one.said(now), one.total):
            rests[one.name] = rest_of(lasts.get(one.epochs), now - one.started)
    runs = [Run(0.0, one.started - 1, one.started, one.ended if one in ended else None) for one in (*ended, *running)]
    return lasts, rests, opening(runs)


Guess = tuple[str, float, float, bool]  # start or end, what was said, what came, whether the interval has it


def first_guesses(jobs: list[Training], chance: random.Random) -> list[Guess]:
    """The first known answer about the start and the end of each job."""
    guesses: dict[tuple[str, str], Guess] = {}
    asked = [one for one in jobs if chance.random() < 0.4]  # of the starts: each takes time to compute
    for now in range(5, int(max(one.ended for one in jobs)), 15):
        lasts, rests, opens = known(jobs, now)
        holders = [Holder(name, frozenset({name}), left=rest) for name, rest in rests.items()]
        state = cluster(node("a", cpu=str(SLOTS)), pods=tuple(pod(name, "a") for name in rests))
        waiting = [one for one in jobs if one.started > now]
        for one in jobs:
            if (one.name, "end") not in guesses and (rest := rests.get(one.name)):
                real = one.ended - now
                guesses[one.name, "end"] = ("end", rest.likely, real, rest.low <= real <= rest.high)
            if one in asked and one in waiting and (one.name, "start") not in guesses:
                ahead = [Waiting(ONE, lasts=lasts.get(other.epochs)) for other in waiting[: waiting.index(one)]]
                start = outlook(Waiting(ONE), state, holders, ahead, opening=opens).start
                if start:
                    real = one.started - now
                    guesses[one.name, "start"] = ("start", start.likely, real, start.low <= real <= start.high)
    return list(guesses.values())


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "seed"), [(0.05, 22), (0.2, 24)])
def test_first_answers_hold_what_comes(noise: float, seed: int) -> None:
    """On a calm machine, and on one that other work slows down to half its pace and less, in turns."""
    chance = random.Random(seed)
    guesses = first_guesses(happens(chance, noise), chance)
    for kind, least in (("start", 15), ("end", 45)):
        own = [one for one in guesses if one[0] == kind]
        assert len(own) >= least
        inside = sum(one[3] for one in own) / len(own)
        error = median(abs(said - real) / max(real, 1.0) for _, said, real, _ in own)
        print(f"noise {noise}, {kind}: {len(own)} answers, {inside:.0%} inside, median error {error:.0%}")
        assert inside >= 0.8, (kind, inside)
        assert error < 0.5, (kind, error)


def test_a_start_is_measured_where_one_waited_for_another_to_end() -> None:
    """Those before had nothing to wait for: their starts say nothing."""
    runs = [Run(0, 1, 3, 50.0), Run(0, 52, 55, 90.0), Run(0, 93, 97, 130.0), Run(0, 131, 136), Run(200, 210, 212)]
    assert opening(runs[:3]) == OPENING
    said = opening(runs)
    assert (said.low, said.likely) == (0.0, 6.0)
    assert said.high > 7.0


def test_what_follows_the_last_step_is_measured() -> None:
    points = [(float(second), second) for second in range(0, 100, 10)]
    assert closing(points, 95, 110.0).likely == 110 - 90 - 5
    assert closing(points[:1], 95, 110.0) == CLOSING


def test_a_pause_is_no_progress() -> None:
    """Steps that were not reported are fewer than those between two reports."""
    points = [(float(second), second) for second in range(0, 100, 10)]
    rests = [left(points, 300, now, Interval(0, 0, 0)) for now in (90.0, 100.0, 130.0)]
    assert [rest.likely for rest in rests if rest] == [210, 200, 200]


def test_a_queue_that_has_just_begun_is_not_one_slot_wide() -> None:
    """Jobs that start up hold their places as long as those like them take, not forever."""
    spans = [(30.0, Interval(60, 70, 80))]
    lasts = by_running(spans)
    assert lasts
    assert rest_of(lasts, 10.0)
    assert (lasts.low, lasts.likely, lasts.high) == (90 / 1.25, 100, 110 * 1.25)
