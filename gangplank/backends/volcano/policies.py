"""What Volcano's webhook refuses of the policies of a job or a task.

Follows validatePolicies of volcano.sh/volcano v1.15.1 (pkg/webhooks/admission/jobs/validate/util.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, shown
from gangplank.k8s.manifest import Count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangplank.reading.fields import Problems

# What the webhook accepts; the CRD's own list is longer.
EVENTS = ("*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed", "JobUpdated")
ACTIONS = (
    "AbortJob",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "TerminateJob",
    "CompleteJob",
    "ResumeJob",
)
FORM = {"event": str, "events": [str], "exitCode": Count, "action": str}
ANY = "*"
ONE = "leave it in one of them"


def check(items: Sequence[Mapping[str, Any]] | None, path: str, problems: Problems) -> None:
    """Each policy has events or an exit code, and no event and no code stands in two of them."""
    events: set[str] = set()
    codes: set[int] = set()
    for index, item in enumerate(items or []):
        where, code = f"{path}[{index}]", item.get("exitCode")
        own = dict.fromkeys([*(item.get("events") or ()), *([item["event"]] if item.get("event") else ())])
        if bool(own) == (code is not None):
            problems.append(Problem(where, shown(dict(item)), "either event (or events) or exitCode"))
            continue
        if code is not None:
            if code == 0 or code in codes:
                expected = "a code above 0 that no other policy has"
                problems.append(Problem(f"{where}.exitCode", shown(code), expected, ONE if code else ""))
            codes.add(code)
            continue
        for event in own:
            if event not in EVENTS:
                problems.append(Problem(f"{where}.event", shown(event), f"one of {', '.join(EVENTS)}"))
            elif event in events:
                problems.append(Problem(f"{where}.event", shown(event), "an event that no other policy has", ONE))
        if item.get("action") not in ACTIONS:
            problems.append(Problem(f"{where}.action", shown(item.get("action")), f"one of {', '.join(ACTIONS)}"))
        events.update(own)
    if ANY in events and len(events) > 1:
        fix = "name each event, or keep the policy for * alone"
        problems.append(Problem(path, ", ".join(sorted(events)), "no other event beside *", fix))
