"""What counts as the scheduler's answer in a copy of the site."""

from __future__ import annotations

import pytest

from gangplank.shadow.inside import SETTLED, UNSEEN_S, settled

REFUSED = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]}
NEW: dict[str, object] = {}


@pytest.mark.parametrize(("statuses", "sessions", "seconds", "expected"), [
    ([REFUSED, REFUSED], SETTLED, 1, True),
    ([REFUSED, REFUSED], SETTLED - 1, 1, False),
    ([REFUSED, NEW], SETTLED, 1, False),
    ([REFUSED, NEW], 10 * SETTLED, UNSEEN_S - 1, False),
    ([REFUSED, NEW], SETTLED, UNSEEN_S, True),
    ([NEW], SETTLED - 1, UNSEEN_S, False),
])  # fmt: skip
def test_a_refusal_counts_late_while_the_scheduler_has_said_nothing_of_some_pods(
    statuses: list[dict[str, object]], sessions: int, seconds: int, expected: bool
) -> None:
    """On a busy machine it has looked at a gang of which it knows some pods only."""
    pods = [{"spec": {}, "status": status} for status in statuses]
    placed = {"spec": {"nodeName": "a"}, "status": {}}
    assert settled([placed, *pods], sessions, seconds) is expected
