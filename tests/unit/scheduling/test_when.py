"""When a job would start, by what running ones say they have left: cases, and simulated queues of trainings."""

from __future__ import annotations

import heapq
import math
import random
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.scheduling import when
from gangplank.scheduling.demand import edited
from gangplank.scheduling.fit import fit
from gangplank.scheduling.namespace_rules import charged
from gangplank.scheduling.when import CLOSING, OPENING, Course, Holder, Interval, Outlook, Waiting, left, outlook
from tests.unit.scheduling.states import cluster, job, node, pod

if TYPE_CHECKING:
    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.fit import Answer
    from gangplank.scheduling.snapshot import Snapshot

WORLDS = 200


def exactly(seconds: float) -> Interval:
    return Interval(seconds, seconds, seconds)


def running(name: str, seconds: float | None, cores: int = 2) -> tuple[Holder, tuple[dict[str, object], ...]]:
    """A job on node a that holds some cores for some time."""
    one = pod(name, "a", cpu=str(cores))
    return Holder(name, frozenset({name}), left=None if seconds is None else exactly(seconds)), (one,)


def asked(cores: int, *held: tuple[Holder, tuple[dict[str, object], ...]], ahead: tuple[Waiting, ...] = ()) -> Outlook:
    """For a job of one pod, on a node of four cores."""
    state = cluster(node("a", cpu="4"), pods=tuple(one for _, pods in held for one in pods))
    return outlook(Waiting(small(cores), lasts=exactly(100)), state, [holder for holder, _ in held], ahead)


def small(cores: int) -> Demand:
    return job("indexed", workers=0, resources={"cpu": str(cores), "memory": "1Gi"})


def test_where_there_is_room_it_starts_now() -> None:
    said = asked(2, running("one", 60))
    assert (said.start, said.end, said.after) == (OPENING, OPENING + exactly(100), ())


def test_it_starts_after_as_many_as_have_to_end() -> None:
    said = asked(4, running("slow", 90), running("quick", 30))
    assert said.start == Interval(90, 95, 110)
    assert said.end == Interval(190, 195, 210)
    assert said.after == ("quick", "slow")
    assert asked(2, running("slow", 90), running("quick", 30)).after == ("quick",)


def test_jobs_ahead_take_what_is_freed_first() -> None:
    ahead = (Waiting(small(2), lasts=exactly(50)),)
    said = asked(4, running("slow", 90), running("quick", 30), ahead=ahead)
    assert said.start
    assert said.after == ("quick", "digits", "slow")
    said = asked(4, running("slow", 60), running("quick", 30), ahead=ahead)
    assert said.start == Interval(80, 90, 120)  # 30, and 50 of the one ahead, with the pauses before either
    assert said.after == ("quick", "slow", "digits")


def quota(cores: int, used: int) -> dict[str, Any]:
    """Of the job's namespace."""
    status = {"used": {"requests.cpu": str(used)}}
    return {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": str(cores)}}, "status": status}


def in_quota(own: Waiting, *pods: dict[str, Any], holders: tuple[Holder, ...] = (), **more: Any) -> Outlook:
    """On a node with room, in a namespace with a quota of two cores, of which its pods use two."""
    state = cluster(node("a", cpu="16"), pods=pods, quotas=(quota(2, 2 * len(pods)),))
    return outlook(own, state, holders, **more)


def test_the_quota_counts_a_job_s_own_pods_once() -> None:
    mine = pod("mine", "", cpu="2", namespace="vision")
    assert in_quota(Waiting(small(2), frozenset({"mine"})), mine).start == OPENING
    assert in_quota(Waiting(small(2)), mine).start is None  # another's


def test_who_ends_frees_quota_and_who_starts_takes_some() -> None:
    holder, _ = running("first", 30)
    said = in_quota(Waiting(small(2)), pod("first", "a", cpu="2", namespace="vision"), holders=(holder,))
    assert (said.start, said.after) == (Interval(30, 35, 50), ("first",))
    said = in_quota(Waiting(small(2)), ahead=(Waiting(small(2), lasts=exactly(50)),))
    assert (said.start, said.after) == (Interval(50, 60, 90), ("digits",))


def test_pods_that_ended_still_count_as_objects() -> None:
    ended = pod("first", "a", cpu="2", namespace="vision")
    counting = {"metadata": {"name": "q"}, "spec": {"hard": {"count/pods": "3", "pods": "3"}}}
    counting["status"] = {"used": {"count/pods": "3", "pods": "3"}}
    (after,) = charged([counting], [ended], -1, ended=True)
    assert after["status"]["used"] == {"count/pods": "3", "pods": "2"}
    (after,) = charged([counting], [ended], -1)
    assert after["status"]["used"] == {"count/pods": "2", "pods": "2"}


def shy(cores: int, rule: str = "podAntiAffinity") -> Demand:
    """A job with a rule that `fit` does not compute."""
    hard = {rule: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    return edited(small(cores), affinity=hard)


def test_a_job_ahead_that_nobody_can_tell_of_may_start_first_or_not() -> None:
    held, ahead = running("quick", 30, cores=4), (Waiting(shy(4), lasts=exactly(50)),)
    said = asked(4, held, ahead=ahead)
    assert said.start == Interval(30, 90, 120)  # without it; with it
    assert said.unsure == (
        "whether digits starts first: what the job's required affinity to pods leaves (not computed here)",
    )
    doubt = (Waiting(small(4), lasts=exactly(50), unsure="priorityclasses (you may not list them)"),)
    assert asked(4, held, ahead=doubt).start == Interval(30, 90, 120)


def test_jobs_behind_take_what_is_too_little_for_it_except_early() -> None:
    state = cluster(node("a", cpu="4"), pods=running("quick", 30)[1])
    behind = [Waiting(small(2), lasts=exactly(100))]
    said = outlook(Waiting(small(4)), state, [running("quick", 30)[0]], behind=behind)
    assert said.start == Interval(30, 110, 140)


def test_the_order_is_by_priority_then_by_age() -> None:
    old, young = Waiting(small(1), created="2026-01-01"), Waiting(small(1), created="2026-01-02")
    urgent = Waiting(small(1), created="2026-01-03", priority=10)
    assert sorted([young, urgent, old], key=lambda one: one.turn) == [urgent, old, young]


def test_what_is_held_by_who_does_not_say_until_when_may_come_earlier() -> None:
    said = asked(2, running("mute", None), running("quick", 30))
    assert said.unsure == ("when 1 that hold something end: it may start earlier",)


def test_who_does_not_know_does_not_guess() -> None:
    said = asked(4, running("mute", None), running("quick", 30))
    assert said.start is None
    assert "1 that hold something do not say how long they still take" in said.why
    said = asked(4, running("quick", 30, cores=4), ahead=(Waiting(small(2)),))
    assert said.start is None
    assert "1 are ahead of it, and nobody knows how long they take" in said.why


@pytest.mark.parametrize(
    ("points", "total", "now"),
    [([], 10, 0.0), ([(0.0, 5)], 10, 0.0), ([(0.0, 5), (1.0, 6)], 0, 1.0), ([(0.0, 5), (1.0, 6)], 10, 100.0)],
)
def test_a_training_that_says_too_little_or_no_more_has_no_end(
    points: list[tuple[float, int]], total: int, now: float
) -> None:
    assert left(points, total, now) is None


def test_two_reports_say_nothing_of_how_much_the_pace_varies() -> None:
    rest = left([(0.0, 0), (10.0, 10)], 110, 10.0)
    assert rest == Interval(50, 100, 200) + CLOSING


def training(chance: random.Random, seconds: float) -> tuple[list[tuple[float, int]], int, float]:
    """What a training of which `seconds` have passed has reported, its steps, and how long it really still takes.

    Its pace drifts, as on a machine that others use, and each report comes a little late.
    """
    usual, drift, total = chance.uniform(0.05, 2.0), 0.0, chance.randint(300, 3000)
    now, points, end = 0.0, list[tuple[float, int]](), 0.0
    every = max(1, round(5 / usual))
    for step in range(1, total + 1):
        drift = 0.99 * drift + chance.gauss(0, 0.02)
        now += usual * math.exp(drift) * chance.uniform(0.9, 1.1)
        if now <= seconds and step % every == 0:
            points.append((now + chance.uniform(0, 0.2), step))
        end = now
    return points[-60:], total, end + chance.uniform(1, 10) - seconds


@pytest.mark.slow
def test_in_simulated_queues_intervals_hold_what_comes() -> None:
    """A few slots, a job on each, some ahead: four in five starts are in the interval, the guess is near."""
    chance, inside, errors = random.Random(22), 0, list[float]()
    for _ in range(WORLDS):
        slots, waiting = chance.randint(1, 4), chance.randint(0, 3)
        trainings = [training(chance, chance.uniform(60, 120)) for _ in range(slots)]
        said = [left(points, total, points[-1][0]) for points, total, _ in trainings]
        if not all(said) or any(rest <= 0 for _, _, rest in trainings):
            continue
        real = [chance.uniform(100, 600) for _ in range(waiting)]
        guesses = [Interval(0.8 * one, one, 1.3 * one) for one in (time * chance.uniform(0.85, 1.2) for time in real)]
        holders = [Holder(f"h{number}", frozenset({f"h{number}"}), left=one) for number, one in enumerate(said)]
        state = cluster(*(node(f"n{number}", cpu="1") for number in range(slots)),
                        pods=tuple(pod(f"h{number}", f"n{number}") for number in range(slots)))  # fmt: skip
        ahead = [Waiting(small(1), lasts=one) for one in guesses]
        answer = outlook(Waiting(small(1)), state, holders, ahead)
        assert answer.start, answer.why
        ends = [rest for _, _, rest in trainings]
        heapq.heapify(ends)
        for time in real:
            heapq.heappush(ends, heapq.heappop(ends) + chance.uniform(2, 10) + time)
        start = heapq.heappop(ends) + chance.uniform(2, 10)
        inside += answer.start.low <= start <= answer.start.high
        errors.append(abs(answer.start.likely - start) / start)
    assert len(errors) > 0.5 * WORLDS
    assert inside / len(errors) > 0.8, inside / len(errors)
    assert median(errors) < 0.15, median(errors)


def test_one_of_many_alike_is_asked_about_though_their_pods_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end of a job asks once for all that are alike; a pod that has a node makes its job another."""
    asked_about: list[str] = []

    def counted(job: Demand, state: Snapshot, *, explain: bool, displacing: bool) -> Answer:
        asked_about.append(job.name)
        return fit(job, state, explain=explain, displacing=displacing)

    monkeypatch.setattr(when, "fit", counted)
    slow = Holder("slow", frozenset({"slow"}), left=exactly(90))
    waits = [pod(f"waiting-{number}", "", cpu="4", namespace="vision") for number in range(20)]
    ahead = [Waiting(small(4), frozenset({one["metadata"]["uid"]}), lasts=exactly(10)) for one in waits]
    state = cluster(node("a", cpu="4"), pods=(pod("slow", "a", cpu="4"), *waits))
    said = outlook(Waiting(small(4)), state, [slow], ahead)
    assert said.after == ("slow", *["digits"] * 20)
    assert len(asked_about) < 3 * 22 * 4  # of three futures with 21 ends each; every job at each end would be 759
    placed = pod("placed", "a", cpu="4", namespace="vision")
    course = Course(cluster(node("a", cpu="4"), pods=(placed, waits[0])), 0, {})
    assert course.alike(ahead[0])
    assert not course.alike(Waiting(small(4), frozenset({"placed"})))
