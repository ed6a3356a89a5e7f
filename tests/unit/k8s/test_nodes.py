"""gangplank/k8s/nodes.py: which taints keep a pod out."""

from __future__ import annotations

import pytest

from gangplank.k8s.nodes import tolerated

TAINT = {"key": "flyte/gpu", "value": "dedicated", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "flyte/gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "flyte/gpu", "value": "dedicated"}, True),
        ({"key": "flyte/gpu", "operator": "Equal", "value": "dedicated", "effect": "NoSchedule"}, True),
        ({"key": "flyte/gpu", "operator": "Equal", "value": "other"}, False),
        ({"key": "flyte/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, False),
    ],
)
def test_a_toleration_is_read_as_the_scheduler_reads_it(toleration: dict[str, str], *, expected: bool) -> None:
    assert tolerated(TAINT, [toleration]) is expected
