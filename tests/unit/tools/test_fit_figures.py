"""The sums of a sweep over mixes: how many wait, how many answers differ, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.fit_mixes import mix
from tools.fit_figures import Compared, keep, load, summary, table

if TYPE_CHECKING:
    from pathlib import Path

SAME = Compared(1, "nodes", "no", "no", "no")
ANSWERS = [
    SAME,
    Compared(2, "cap", "yes", "yes", "yes"),
    Compared(3, "reclaim", "cannot tell", "yes", "yes", "whether its queue reclaims 4 cpu"),
    Compared(4, "gpus", "no", "yes", "yes"),
]
MIXES, WAITING, DIFFERENT = 300, 0.3, 0.01  # so many; at least, and at most


def test_the_classes_of_differences_are_counted() -> None:
    assert summary(ANSWERS) == {
        "mixes": 4, "waits": 0.25, "differs": 0.25, "classes": {"fit cannot tell": 1, "fit no, live yes": 1},
    }  # fmt: skip


def test_each_answer_that_differs_is_listed_with_its_class() -> None:
    assert list(table(ANSWERS)) == [
        ("all three agree", "2", "50.0%", ""),
        ("fit cannot tell", "1", "25.0%", "3 (reclaim)"),
        ("fit no, live yes", "1", "25.0%", "4 (gpus)"),
        ("the job has to wait", "1", "25.0%", ""),
    ]
    assert list(table([])) == []


def test_how_often_fit_cannot_tell_has_a_row_of_its_own() -> None:
    """Also if it always can, and where the copy cannot tell either."""
    assert ("fit cannot tell", "0", "0.0%", "") in list(table([SAME]))
    neither = Compared(5, "claims", "cannot tell", "cannot tell", "yes")
    assert ("fit cannot tell", "2", "66.7%", "3 (reclaim), 5 (claims)") in list(table([SAME, ANSWERS[2], neither]))


@pytest.mark.parametrize(("fit", "copy", "live", "difference"), [
    ("yes", "yes", "no", "fit yes, copy yes, live no"),
    ("no", "cannot tell", "no", "copy cannot tell"),
    ("yes", "yes", "neither within 180 s", "fit yes, copy yes, live neither within 180 s"),
])  # fmt: skip
def test_a_difference_names_who_says_what(fit: str, copy: str, live: str, difference: str) -> None:
    assert Compared(1, "nodes", fit, copy, live).difference == difference


def test_a_later_answer_replaces_the_one_about_its_seed(tmp_path: Path) -> None:
    path = tmp_path / "fit-mixes.json"
    assert load(path) == []
    for answer in (ANSWERS[1], Compared(1, "nodes", "yes", "no", "no"), SAME):
        keep(answer, path)
    assert load(path) == ANSWERS[:2]


def test_the_last_sweep_has_every_mix_enough_jobs_that_wait_both_schedulers_and_few_differences() -> None:
    answers = load()
    sums = summary(answers)
    assert [one.seed for one in answers] == list(range(MIXES))
    assert sums["waits"] >= WAITING, sums
    assert sums["differs"] <= DIFFERENT, sums
    assert {mix(one.seed).jobs[-1]["backend"] for one in answers} == {"volcano", "indexed"}
