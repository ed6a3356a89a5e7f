"""What the sweep of `when` keeps: enough trainings, of each length."""

from __future__ import annotations

from collections import Counter

import pytest

from tools.when_figures import EPOCHS, lengths, load

QUEUED, LENGTHS = 50, 3  # jobs, at least
OF_EACH = 10  # of them, at least


@pytest.mark.parametrize("kind", ["start", "end"])
def test_the_last_sweep_has_an_answer_about_enough_queued_trainings_of_each_length(kind: str) -> None:
    jobs = {one.job for one in load() if one.kind == kind}
    assert len(jobs) >= QUEUED
    counts = Counter(lengths(int(number))[int(index)] for _, number, index in (job.split("-") for job in jobs))
    assert len({*EPOCHS}) >= LENGTHS
    assert min(counts[epochs] for epochs in EPOCHS) >= OF_EACH, counts
