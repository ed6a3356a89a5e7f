"""The judge of tests/cluster/test_race.py sees each promise broken, and nothing where all are kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.clock import Clock
from tests.cluster.race import Event, Gang, Moment, Share, judge, lost, timeline

Json = dict[str, Any]
SHARES = {"red": Share(2, 4), "blue": Share(2, 4)}
GANGS = [Gang("red", "a", 4), Gang("blue", "b", 2), Gang("red", "c", 1)]


def job(at: float, team: str, name: str, phase: str = "Pending", *, gone: bool = False) -> Event:
    item = {"metadata": {"namespace": team, "name": name}, "status": {"state": {"phase": phase}}}
    return Event(at, "Job", gone, item)


def pods(at: float, team: str, name: str, count: int, phase: str = "Running", **meta: str) -> list[Event]:
    found = []
    for number in range(count):
        own = {"namespace": team, "uid": f"{team}-{name}-{number}", "labels": {"volcano.sh/job-name": name}, **meta}
        item = {"metadata": own, "spec": {"nodeName": "n"}, "status": {"phase": phase}}
        found.append(Event(at, "Pod", gone=False, item=item))
    return found


def test_all_is_kept_where_a_gang_comes_and_goes_as_a_whole() -> None:
    story = [job(0, "red", "a"), *pods(1, "red", "a", 4), *pods(90, "red", "a", 4, "Succeeded")]
    story.append(job(91, "red", "a", "Completed"))
    assert judge(story, GANGS, SHARES) == []


def test_sees_a_cap_that_is_broken_for_a_moment() -> None:
    story = [job(0, "red", "a"), *pods(1, "red", "a", 4), job(1, "red", "c"), *pods(2, "red", "c", 1)]
    assert judge(story, GANGS, SHARES) == ["red has 5 of 4"]


def test_pods_that_are_being_removed_still_hold_what_they_have() -> None:
    going = pods(2, "red", "a", 4, deletionTimestamp="now")
    story = [job(0, "red", "a"), *pods(1, "red", "a", 4), *going, *pods(3, "red", "c", 1)]
    assert judge(story, GANGS, SHARES) == ["red has 5 of 4"]


@pytest.mark.parametrize(("seconds", "found"), [(9, []), (11, ["red/a has 3 of 4 pods bound for more than 10 s"])])
def test_sees_a_gang_that_stays_partly_bound(seconds: float, found: list[str]) -> None:
    story = [job(0, "red", "a"), *pods(1, "red", "a", 3), *pods(1 + seconds, "red", "a", 4)]
    late = [*story[:4], job(1 + seconds, "red", "c"), *story[4:]]
    assert judge(late, GANGS, SHARES) == found


@pytest.mark.parametrize("ends", ["Completing", "Completed", "Aborted"])
def test_a_gang_whose_job_ends_is_no_longer_partly_bound(ends: str) -> None:
    story = [job(0, "red", "a"), *pods(1, "red", "a", 3), job(2, "red", "a", ends), job(20, "red", "c")]
    assert judge(story, GANGS, SHARES) == []


@pytest.mark.parametrize(("seconds", "starves"), [(59, False), (61, True)])
def test_sees_a_team_that_starves_while_another_has_more_than_it_deserves(seconds: float, *, starves: bool) -> None:
    story = [job(0, "red", "a"), *pods(1, "red", "a", 4), job(2, "blue", "b"), job(2 + seconds, "red", "c")]
    told = "blue has 0 of the 2 it deserves, and gangs that would fit wait, for more than 60 s"
    assert judge(story, GANGS, SHARES) == ([told] if starves else [])


def test_nobody_starves_who_waits_for_more_than_it_deserves_or_while_none_has_too_much() -> None:
    big = [Gang("red", "a", 4), Gang("blue", "b", 3)]
    story = [job(0, "red", "a"), *pods(1, "red", "a", 4), job(2, "blue", "b"), job(99, "red", "c")]
    assert judge(story, big, SHARES) == []
    fair = [Gang("red", "a", 2), Gang("blue", "b", 2)]
    story = [job(0, "red", "a"), *pods(1, "red", "a", 2), job(2, "blue", "b"), job(99, "red", "c")]
    assert judge(story, fair, SHARES) == []


def test_tells_what_is_lost() -> None:
    now = Moment()
    for event in [job(0, "red", "a", "Failed"), *pods(1, "red", "a", 1), job(0, "red", "c", "Completed")]:
        now.see(event)
    deleted = {("red", "c")}
    assert lost(now, GANGS, deleted) == [
        "red/a is Failed, not Completed",
        "blue/b is gone, not Completed",
        "red/c was deleted and is there",
        "red/a has pods that still run",
    ]
    for event in [job(2, "red", "a", "Completed"), job(2, "blue", "b", "Completed"), job(2, "red", "c", gone=True)]:
        now.see(event)
    for event in pods(3, "red", "a", 1, "Succeeded"):
        now.see(event)
    assert lost(now, GANGS, deleted) == []


def test_the_timeline_of_a_failure_has_what_each_team_held_and_how_many_of_its_gangs_waited() -> None:
    story = [job(0, "red", "a"), job(0, "blue", "b"), *pods(6, "red", "a", 4), job(12, "red", "c")]
    assert timeline(story, GANGS, SHARES).splitlines() == [
        "   6.0 s: red has 1, 0 gangs wait; blue has 0, 1 gangs wait",
        "  12.0 s: red has 4, 1 gangs wait; blue has 0, 1 gangs wait",
    ]


class Replayed(Clock):
    """A clock of what it reads: the wall, the CPU time of others, and whether the lab runs here."""

    def __init__(self, rows: list[tuple[float, float]], lab_s: float) -> None:
        self.rows, self.lab_s = iter(rows), lab_s
        super().__init__(kwok=1)

    def read(self) -> tuple[float, float]:
        return next(self.rows)

    def lab(self) -> float:
        return self.lab_s


@pytest.mark.parametrize(
    ("foreign_s", "lab_s", "expected_s"),
    [(0, 5, 60), (60, 5, 30), (118, 5, 6), (240, 5, 6), (60, 0, 60)],
    ids=["alone", "half of two CPUs", "all but a little", "more than there is", "a lab elsewhere"],
)
def test_the_clock_leaves_out_what_others_use_but_at_least_a_tenth_passes(
    monkeypatch: pytest.MonkeyPatch, foreign_s: float, lab_s: float, expected_s: float
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert Replayed([(100, 7), (160, 7 + foreign_s)], lab_s).now() == pytest.approx(expected_s)


def test_a_pod_of_a_team_that_is_not_asked_about_is_not_lost() -> None:
    now = Moment()
    for event in [job(0, "red", "c", "Completed"), *pods(0, "cheat", "long", 2)]:
        now.see(event)
    assert lost(now, GANGS[2:], set()) == []
