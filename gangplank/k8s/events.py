"""Events, which Kubernetes keeps for an hour and in no order."""

from __future__ import annotations

from typing import Any


def when(event: dict[str, Any]) -> str:
    """When an event was seen last; texts of times in UTC compare as the times do.

    >>> when({"lastTimestamp": None, "eventTime": "2026-11-24T11:59:59.000000Z"})
    '2026-11-24T11:59:59.000000Z'
    """
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
