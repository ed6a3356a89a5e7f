"""What counts as the scheduler's answer in a copy of the site."""

from __future__ import annotations

import pytest

from gangplank.shadow.inside import SETTLED, UNSEEN, settled

REFUSED = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]}


@pytest.mark.parametrize(
    ("statuses", "sessions"), [([REFUSED, REFUSED], SETTLED), ([REFUSED, {}], UNSEEN), ([{}], UNSEEN)]
)
def test_a_refusal_counts_late_while_the_scheduler_has_said_nothing_of_some_pods(
    statuses: list[dict[str, object]], sessions: int
) -> None:
    """On a busy machine it has looked at a gang of which it knows some pods only."""
    assert settled([{"spec": {}, "status": status} for status in statuses]) == sessions


def test_a_pod_with_a_node_has_been_seen() -> None:
    assert settled([{"spec": {"nodeName": "a"}, "status": {}}, {"spec": {}, "status": REFUSED}]) == SETTLED
