"""why blames nobody who is healthy or merely waits, whatever the moment and whatever old events say."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangplank.scheduling.why import BUSY_S, Situation, diagnose
from tests.unit.scheduling.states import cluster, group, job, pod

Json = dict[str, Any]
SIZE = 3
READY = {"type": "PodReadyToStartContainers", "status": "True"}
SCHEDULED = {"type": "PodScheduled", "status": "True"}
NOT_YET = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient cpu."}
UNSCHEDULED, UNSEEN = "unscheduled", "not seen by a scheduler"
STAGES = ("absent", UNSEEN, UNSCHEDULED, "mounting", "pulling", "has its sandbox", "runs", "has ended")


def event(uid: str, reason: str, at: int, kind: str = "Warning") -> Json:
    when = f"2026-11-24T12:{at // 60:02}:{at % 60:02}Z"
    return {"type": kind, "reason": reason, "message": "m", "involvedObject": {"uid": uid}, "lastTimestamp": when}


def own(number: int, stage: str) -> Json:
    """A pod of the job at one moment of its life."""
    item = pod(f"digits-{number}", "a", namespace="vision")
    creating = [{"name": "a", "image": "i", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    item["status"] = {"phase": "Pending", "containerStatuses": creating}
    if stage in {UNSCHEDULED, UNSEEN}:
        del item["spec"]["nodeName"]
        item["status"] = {"phase": "Pending", "conditions": [NOT_YET] if stage == UNSCHEDULED else []}
    elif stage == "runs":
        item["status"] = {"phase": "Running", "containerStatuses": [{"name": "a", "state": {"running": {}}}]}
    elif stage == "has ended":
        ended = {"terminated": {"reason": "Completed", "exitCode": 0}}
        item["status"] = {"phase": "Succeeded", "containerStatuses": [{"name": "a", "state": ended}]}
    if "nodeName" in item["spec"]:
        item["status"]["conditions"] = [SCHEDULED] + [READY] * (stage == "has its sandbox")
    return item


@st.composite
def healthy(draw: st.DrawFn) -> Situation:
    """A job that nothing is wrong with: on its way, or waiting for others, with warnings of the past."""
    age_s = draw(st.floats(0, 600))
    known = age_s > BUSY_S or draw(st.booleans())  # its controller and its scheduler have looked at it
    stages = draw(st.lists(st.sampled_from(STAGES), min_size=SIZE, max_size=SIZE))
    stages = [UNSCHEDULED if known and stage == UNSEEN else stage for stage in stages]
    events = []
    for number, stage in enumerate(stages):
        uid, at = f"digits-{number}", draw(st.integers(0, 600))
        if draw(st.booleans()):
            events.append(event(uid, "FailedScheduling", at))
        if stage in {"pulling", "has its sandbox", "runs"} and draw(st.booleans()):
            events.append(event(uid, draw(st.sampled_from(["FailedMount", "FailedCreatePodSandBox"])), at))
        if stage == "pulling":
            events.append(event(uid, "Pulling", at + draw(st.integers(0, 60)), "Normal"))
    others = [
        pod(f"other-{number}", draw(st.sampled_from("ab")), cpu=draw(st.sampled_from("1234")))
        for number in range(draw(st.integers(0, 4)))
    ]
    return Situation(
        "digits",
        job(),
        cluster(pods=tuple(others)),
        phase="Running",
        answered=known,
        age_s=age_s,
        pods=tuple(own(number, stage) for number, stage in enumerate(stages) if stage != "absent"),
        group=group("digits", "default", "vision", **({"phase": "Inqueue"} if known else {})),
        events=tuple(draw(st.permutations(events))),
        ended=draw(st.sampled_from(["", "", "succeeded"])),
    )


@given(healthy())
def test_nobody_healthy_or_merely_waiting_is_blamed(now: Situation) -> None:
    diagnosis = diagnose(now)
    assert diagnosis.cause is None or diagnosis.cause.passing, diagnosis.text()
    calm = r": nothing is wrong|(: it)?( runs with| has nodes for) \d of 3 pods;| waits because |: it would start now"
    assert re.match(f"digits({calm})", diagnosis.first_line), diagnosis.text()
