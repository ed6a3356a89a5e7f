"""How long ago something was, by a time that Kubernetes has noted."""

from __future__ import annotations

from datetime import UTC, datetime


def age_s(timestamp: str | None, now: datetime | None = None) -> float:
    """Seconds since a time, below 0 before it; 0 without one.

    >>> age_s("2026-11-24T12:00:00Z", datetime(2026, 11, 24, 12, 1, tzinfo=UTC)), age_s(None)
    (60.0, 0.0)
    """
    return ((now or datetime.now(UTC)) - datetime.fromisoformat(timestamp)).total_seconds() if timestamp else 0.0
