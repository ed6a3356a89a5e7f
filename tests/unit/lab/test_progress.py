"""The remaining time that a long build reports."""

from __future__ import annotations

import pytest

from lab.build.progress import Progress


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("slowness", "minutes"), [(0.5, 5), (1, 10), (3, 28)])
def test_the_estimate_follows_the_pace_of_the_machine(slowness: float, minutes: int) -> None:
    clock = Clock()
    progress = Progress({"kubernetes": 600, "volcano": 540, "trainer": 60}, clock, cores=2)
    assert progress.estimate() == "; about 20 min left"
    progress.begin("kubernetes")
    clock.now_s = 600 * slowness
    progress.begin("volcano")
    assert progress.left_s() / 60 == pytest.approx(minutes, rel=0.12)


def test_the_estimate_shrinks_while_a_step_runs_and_never_reaches_zero() -> None:
    clock = Clock()
    progress = Progress({"kubernetes": 300}, clock, cores=2)
    progress.begin("kubernetes")
    estimates = []
    for clock.now_s in (0, 100, 200, 299, 1000):
        estimates.append(progress.left_s())
    assert estimates == sorted(estimates, reverse=True)
    assert estimates[-1] > 0


def test_a_short_build_has_no_estimate() -> None:
    assert Progress({"etcd": 20}, cores=2).estimate() == ""
    assert Progress({}).estimate() == ""
