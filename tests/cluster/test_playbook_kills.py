"""D6: a playbook that is killed at the start, in the middle or at the end of a task; the next run puts it right.

`make test` kills the two that install and remove what the site has, at a point each. `make test-full` runs one round
too, and the sweep playbook-kills all of them: see tests/support/playbook_kills.py.
"""

from __future__ import annotations

import datetime as dt
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support import playbook_kills
from tests.support.sweeps import sweeping
from tools.kill_figures import Row, keep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.playbook_kills import Life

ROUNDS = 40  # more than the chains of any playbook, whose number only a run says; rounds without one end at once
TRIED = range(ROUNDS if sweeping("playbook-kills") else 1)


@pytest.mark.usefixtures("lab")
def test_d6_site_and_uninstall_killed_at_a_point_converge(tmp_path: Path) -> None:
    results, points = {}, {}
    for book in ("site", "uninstall"):
        notes = tmp_path / book
        playbook_kills.completed(book, notes=notes)
        points[book], results[book] = playbook_kills.drawn(notes), playbook_kills.facts()
    for book, point in points.items():
        done = playbook_kills.play(book, point=point)
        assert done.returncode == -signal.SIGKILL, f"{book}, to be killed at {point}: {done.stdout[-1000:]}"
        playbook_kills.completed(book)
        assert playbook_kills.differences(results[book], playbook_kills.facts()) == [], f"{book}, killed at {point}"
        assert playbook_kills.changed(playbook_kills.completed(book)) == 0, f"{book}, killed at {point}"


@pytest.fixture(scope="session")
def life() -> Iterator[Life]:
    """The undisturbed one; the lab of the last round is removed."""
    life = playbook_kills.undisturbed()
    counts = {book: len(points) for book, points in life.points.items()}
    assert life.rounds <= ROUNDS, f"the sweep would leave out points: {counts}"
    print(f"points by playbook: {counts}; {life.rounds} of {ROUNDS} rounds have one")
    yield life
    playbook_kills.completed("lab-down")


@pytest.mark.parametrize("number", TRIED)
def test_d6_each_playbook_of_a_labs_life_converges(life: Life, number: int) -> None:
    rows, today = playbook_kills.one_round(life, number), dt.datetime.now(dt.UTC).date().isoformat()
    kills = [
        Row(row.book, len(life.points[row.book]), point, not problem and not row.problems, today)
        for row in rows
        for point, problem in row.points.items()
    ]
    if sweeping("playbook-kills"):
        keep(kills, {book: [*map(str, points)] for book, points in life.points.items()})
    print(f"{sum(kill.converged for kill in kills)} of {len(kills)} kill points converged")
    assert all(kill.converged for kill in kills), "\n".join(map(str, rows))
    expected = {(book, str(point)) for book, points in life.killed_in(number).items() for point in points}
    assert {(kill.book, kill.point) for kill in kills} == expected
