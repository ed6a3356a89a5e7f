"""`gangplank why` on a live cluster: how soon it names a cause, and that no answer before names another.

Each cause is made real alone, in a namespace of its own. A sweep takes all stories, and keeps what it measures in
tests/sweeps/causes.json. The goal is GOAL_S, of which nothing is asserted here: others share the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sweeps import sweeping
from tests.support.why_causes import ONE_BY_ONE, STORIES
from tests.support.why_stories import story
from tests.support.why_times import timed
from tools.cause_figures import GOAL_S, SINCE, keep

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube
    from tests.cluster.conftest import Lab

EVERY = STORIES | ONE_BY_ONE
TRIED = (  # a sample for which a scheduler has to try, and which changes nothing outside its namespace
    "too-small", "too-large", "too-large-indexed", "no-device", "selector", "affinity", "volume-missing",
    "spread", "spread-indexed", "apart", "apart-indexed", "together", "repelled",
)  # fmt: skip


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("name", EVERY if sweeping("causes") else TRIED)
def test_the_first_answer_after_the_scheduler_s_first_attempt_names_the_cause_and_none_before_another(
    lab: Lab, kube: Kube, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    one = EVERY[name]
    with story(lab, f"soon-{name}", one) as job:
        row = timed(kube, name, one, job)
    if sweeping("causes"):
        keep(row, EVERY)
    with capsys.disabled():
        beyond = " (beyond the goal)" if row.seconds > GOAL_S else ""
        print(f"\n{name}: named {row.seconds:.1f} s after {SINCE[row.since]}{beyond}")
    assert not row.other, row
    assert not row.blank, row
