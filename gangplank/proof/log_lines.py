"""One line of a log: the trainer's if it has the shape of its events or records, else another program's and ignored.

Scripts and libraries print JSON too, so the shape is checked field by field: names, types and ranges. The trainer's
log.py and evidence.py write what this reads.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MARK = '{"event":"'  # how the trainer's log.py begins a line; evidence.jsonl has records without it
MOST = 2**53  # the largest whole number that every JSON reader reads exactly
LONGEST = 253  # characters of a name in Kubernetes
DIGEST = re.compile(r"[0-9a-f]{64}")  # sha256


def count(value: object) -> TypeGuard[int]:
    """Whether it is a whole number of 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def amount(value: object) -> TypeGuard[float]:
    """Whether it is a finite number."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and -MOST <= value <= MOST


def name(value: object) -> bool:
    """Whether it is text without control characters, of a length that names have."""
    return isinstance(value, str) and len(value) <= LONGEST and value.isprintable()


def words(value: object) -> bool:
    """Whether it is text."""
    return isinstance(value, str)


def digest(value: object) -> bool:
    """Whether it is the hash of a record."""
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None


def rows(value: object) -> bool:
    """Whether it is what every rank did."""
    return isinstance(value, list) and bool(value) and all(fits(row, ROW) for row in value)


Shape = dict[str, "Callable[[object], bool]"]
ROW: Shape = {
    "rank": count, "pod": name, "node": name, "world_size": count, "steps": count, "samples": count, "loss": amount,
    "accuracy": amount,
}  # fmt: skip
EVENTS: dict[str, Shape] = {
    "start": {
        "rank": count, "world_size": count, "host": name, "pod": name, "node": name,
        "job_uid": lambda value: value is None or name(value), "pod_uid": lambda value: value is None or name(value),
    },
    "step": {
        "rank": count, "epoch": count, "step": count, "steps_total": count, "loss": amount, "mean_loss": amount,
        "gradient_norm": amount,
    },
    "epoch": {
        "rank": count, "epoch": count, "epochs": count, "steps": count, "samples": count, "loss": amount,
        "accuracy": amount, "test_loss": amount,
        "seconds": lambda value: isinstance(value, dict) and all(map(amount, value.values())),
    },
    "result": {
        "rank": count, "world_size": count, "accuracy": amount, "loss": amount, "seconds": amount, "ranks": rows,
    },
}  # fmt: skip
# Of what is not progress; each event has a number, by which a missing line is noticed.
OTHERS: dict[str, Shape] = {
    "resume": {"rank": count, "checkpoint": name, "step": count},
    "checkpoint": {"rank": count, "step": count, "checkpoint": name},
    "checkpoint_failed": {"rank": count, "step": count, "reason": words},
    "checkpoint_refused": {"rank": count, "checkpoint": name, "reason": words},
    "rotation_failed": {"rank": count, "step": count, "reason": words},
    "upload_failed": {"rank": count, "reason": words},
    "events_failed": {"rank": count, "reason": words},
    "stopped": {"rank": count, "step": count},
    "end": {"rank": count, "world_size": count, "steps": count},
}
RECORD: Shape = {
    "kind": lambda value: isinstance(value, str) and value.isidentifier(),
    "rank": count,
    "seq": count,
    "prev": lambda value: value == "" or digest(value),
    "time": amount,
    "hash": digest,
}


def fits(fields: object, shape: Shape) -> bool:
    """Whether it is an object with every field of a shape; it may have others."""
    return isinstance(fields, dict) and all(key in fields and check(fields[key]) for key, check in shape.items())


def is_event(fields: Mapping[str, object]) -> bool:
    """Whether an object is one of the trainer's events."""
    event = fields.get("event")
    shape = (EVENTS.get(event) or OTHERS.get(event)) if isinstance(event, str) else None
    return shape is not None and fits(fields, shape)


def is_record(fields: Mapping[str, object]) -> bool:
    """Whether an object is a record of evidence, sound or altered."""
    return fields.get("event", "evidence") == "evidence" and fits(fields, RECORD)


def read(line: str) -> dict[str, Any] | None:
    r"""The event or record in a line, which may follow words without an end of line; None for any other line.

    >>> read('{"event":"step","loss":1.0}'), read('{"kind": "metrics"}'), read("10%")
    (None, None, None)
    >>> record = '{"kind":"end","rank":0,"seq":1,"prev":"","time":1.5,"hash":"' + 64 * "0" + '"}'
    >>> read(record)["kind"]
    'end'
    """
    start = line.rfind(MARK)
    if start < 0 and not (line.startswith("{") and '"hash"' in line):
        return None
    try:
        fields = json.loads(line[max(start, 0) :])
    except (ValueError, RecursionError):
        return None  # half a line, or another program's; half a record shows as a gap in its chain
    return fields if isinstance(fields, dict) and (is_event(fields) or is_record(fields)) else None

