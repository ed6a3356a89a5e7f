"""Lines of a log that did not come: the trainer numbers its events, and the records of its evidence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gangplank.proof.log_lines import count, is_event

if TYPE_CHECKING:
    from collections.abc import Mapping


class Numbers:
    """The last numbers in one log, of each rank's events and records."""

    def __init__(self) -> None:
        self.last: dict[tuple[bool, int], int] = {}

    def missing(self, fields: Mapping[str, Any]) -> int:
        """How many lines of its rank are missing before an event or a record; those before the first are unknown.

        >>> numbers = Numbers()
        >>> event = {"event": "upload_failed", "rank": 0, "reason": ""}
        >>> [numbers.missing({**event, "number": number}) for number in (1, 2, 5)]
        [0, 0, 2]
        """
        event = is_event(fields)
        number, place = fields.get("number" if event else "seq"), (event, fields["rank"])
        if not count(number):  # of an image from before there were numbers
            return 0
        before = self.last.get(place)
        if before is None or fields.get("event") == "start" or fields.get("kind") == "begin":
            self.last[place] = number  # perhaps of another process in the same container
            return 0
        self.last[place] = max(before, number)
        return max(0, number - before - 1)


class Gaps:
    """The lines that did not come, of all logs of a job, until they are reported."""

    def __init__(self, job: str, namespace: str) -> None:
        self.job, self.namespace = job, namespace
        self.missing: Counter[str] = Counter()  # and not reported yet, by pod

    def take(self, numbers: Numbers, pod: str, fields: Mapping[str, Any]) -> None:
        """Count what is missing before an event or a record of a log with these numbers."""
        if missing := numbers.missing(fields):
            self.missing[pod] += missing

    def texts(self) -> list[str]:
        """What is said of the lines that did not come since the last call."""
        missing, self.missing = self.missing, Counter()
        return [lost(self.job, self.namespace, pod, number) for pod, number in missing.items()]


def lost(job: str, namespace: str, pod: str, number: int) -> str:
    """What is said of lines that did not come."""
    what = "a line" if number == 1 else f"{number} lines"
    fix = f"none, if `gangplank proof {job} -n {namespace}` says PROVEN; if not, let `output` name a volume"
    return f"{what} of the log of {pod} did not come: its node has lost or rotated them. Fix: {fix}"
