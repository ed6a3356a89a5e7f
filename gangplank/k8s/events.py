"""Events, which Kubernetes keeps for an hour and in no order."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from gangplank.k8s.age import age_s


def lasted_s(event: dict[str, Any]) -> float:
    """Seconds from an event's first time to its last; endless where the first is not noted.

    >>> lasted_s({"firstTimestamp": "2026-11-24T12:00:00Z", "lastTimestamp": "2026-11-24T12:00:04Z"}), lasted_s({})
    (4.0, inf)
    """
    first, last = event.get("firstTimestamp") or event.get("eventTime"), when(event)
    return age_s(first, datetime.fromisoformat(last)) if first and last else math.inf


def when(event: dict[str, Any]) -> str:
    """When an event was seen last; texts of times in UTC compare as the times do.

    >>> when({"lastTimestamp": None, "eventTime": "2026-11-24T11:59:59.000000Z"})
    '2026-11-24T11:59:59.000000Z'
    """
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
