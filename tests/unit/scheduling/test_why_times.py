"""How the live tests count the seconds until why names a cause: from which moment, and which answers are noted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import why_times
from tests.support.why_stories import Story
from tests.support.why_times import attempted, signs, timed

if TYPE_CHECKING:
    from tools.cause_figures import Timed

Json = dict[str, Any]


def noted(kind: str, status: str, second: int, **more: Any) -> Json:
    """A pod or a gang with one condition."""
    condition = {"type": kind, "status": status, "lastTransitionTime": f"2026-11-24T12:00:0{second}Z"}
    return {"spec": {}, "status": {**more, "conditions": [condition]}}


TRIED = noted("PodScheduled", "False", 3)
NOT_QUEUED = noted("Unschedulable", "True", 4, phase="Pending")


@pytest.mark.parametrize(("pods", "groups", "second"), [
    ([TRIED, noted("PodScheduled", "False", 5)], [], 3),
    ([TRIED, {**noted("PodScheduled", "True", 1), "spec": {"nodeName": "a"}}], [], 3),
    ([TRIED, {"spec": {}}], [], None),
    ([{"spec": {}}], [NOT_QUEUED], None),
    ([], [NOT_QUEUED], 4),
    ([], [noted("Unschedulable", "True", 4, phase="Inqueue")], None),
    ([], [noted("Scheduled", "True", 2, phase="Pending")], None),
    ([], [], None),
], ids=[
    "all", "those that wait", "not all", "no pod", "a gang that may not queue", "a gang without pods", "not refused",
    "nothing",
])  # fmt: skip
def test_the_first_attempt_of_a_scheduler_is_when_it_first_found_no_place(
    pods: list[Json], groups: list[Json], second: int | None
) -> None:
    expected = datetime(2026, 11, 24, 12, 0, second, tzinfo=UTC) if second else None
    assert attempted(pods, groups) == expected


BEGUN_AT = datetime.now(UTC) - timedelta(seconds=20)
PAST, LATER = (at.isoformat() for at in (BEGUN_AT, BEGUN_AT + timedelta(seconds=15)))
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "b", "creationTimestamp": PAST}}
POD = {"metadata": {"name": "a-0", "namespace": "b"}, "spec": {"nodeName": "c"}}


def condition(kind: str, status: str) -> Json:
    """The status of an object with one condition."""
    return {"conditions": [{"type": kind, "status": status, "lastTransitionTime": PAST}]}


BOUND: Json = {**POD, "status": condition("PodScheduled", "True")}
WAITS: Json = {**POD, "spec": {}, "status": condition("PodScheduled", "False")}
BESIDE = {**BOUND, "metadata": {"name": "holder", "namespace": "b"}}


def event(kind: str, reason: str, source: str, name: str = "a-0", **more: str) -> Json:
    """A warning."""
    who = {"kind": kind, "name": name}
    one = {"involvedObject": who, "reason": reason, "type": "Warning", "source": {"component": source}}
    return {**one, "firstTimestamp": PAST, **more}


MOUNT = event("Pod", "FailedMount", "kubelet")
REFUSAL = event("Job", "FailedCreate", "job-controller", "a")


def ended(exit_code: int, state: str = "state") -> Json:
    """A pod whose container has ended."""
    end = {"exitCode": exit_code, "finishedAt": PAST}
    return {**BOUND, "status": {**BOUND["status"], "containerStatuses": [{state: {"terminated": end}}]}}


@pytest.mark.parametrize(("job", "pod", "said", "number"), [
    ({}, BOUND, MOUNT, 1),
    ({}, BOUND, event("Pod", "FailedScheduling", "default-scheduler"), 0),
    ({}, BOUND, event("Pod", "Pulled", "kubelet", type="Normal"), 0),
    ({}, BOUND, REFUSAL, 0),
    ({}, ended(7), None, 1),
    ({}, ended(7, "lastState"), None, 1),
    ({}, ended(0), None, 0),
    ({"status": condition("FailureTarget", "True")}, BOUND, None, 1),
    ({"status": condition("Failed", "False")}, BOUND, None, 0),
    ({"status": {"conditions": [{"status": "Running", "lastTransitionTime": PAST}]}}, BOUND, None, 0),
], ids=[
    "a kubelet", "a scheduler", "no warning", "a refusal", "an end", "an end before", "a good end", "a job that fails",
    "a job that does not", "a Volcano Job",
])  # fmt: skip
def test_a_sign_is_a_kubelet_s_warning_a_failed_container_or_a_failed_job(
    job: Json, pod: Json, said: Json | None, number: int
) -> None:
    assert list(signs(job, [pod], [said] if said else [])) == [PAST] * number


def run(monkeypatch: pytest.MonkeyPatch, codes: list[str], looks: list[Json], **more: Any) -> Timed:
    """What is noted of answers with these codes, if the cluster has these objects before each; the last ones stay."""
    left, answers, log, limit_s = list(looks), list(codes), more.pop("log", ""), more.pop("limit_s", 60)
    now: Json = {}

    def find(*_: object) -> Json:
        now.clear()
        now.update(left[0])
        left[:] = left[1:] or left
        return JOB

    def asked(*_: object, **__: object) -> Any:
        code = answers[0]
        answers[:] = answers[1:] or answers
        cause = SimpleNamespace(code=code) if code else None
        return SimpleNamespace(cause=cause, text=lambda: "an answer")

    kube: Any = SimpleNamespace(
        find=find, items=lambda _, kind, __: now.get(kind, []), read=lambda *_, **__: log.encode()
    )  # fmt: skip
    monkeypatch.setattr(why_times, "asked", asked)
    monkeypatch.setattr(why_times, "POLL_S", 0)
    monkeypatch.setattr(why_times, "NOTED_S", 0)
    monkeypatch.setattr(why_times, "LIMIT_S", limit_s)
    return timed(kube, "a", Story(more.pop("code", "image"), backend="indexed", **more), JOB)


@pytest.mark.parametrize(("looks", "since", "moments"), [
    ([{}, {"Pod": [WAITS]}], "attempt", {"attempt", "submitted"}),
    ([{"Pod": [WAITS]}, {"Pod": [BOUND], "Event": [MOUNT]}], "sign", {"bound", "sign", "submitted"}),
    ([{"Pod": [BOUND]}, {"Pod": [], "Event": [MOUNT]}], "sign", {"bound", "sign", "submitted"}),
    ([{"Pod": [BOUND]}], "bound", {"bound", "submitted"}),
    ([{"Event": [REFUSAL]}], "submitted", {"refused", "submitted"}),
    ([{"Pod": [BESIDE], "Event": [event("Pod", "FailedMount", "kubelet", "holder")]}], "submitted", {"submitted"}),
], ids=["no place", "a place later", "a pod that is gone", "no sign", "refused", "the pod of another"])  # fmt: skip
def test_the_first_attempt_counts_then_the_first_sign_then_the_submission(
    monkeypatch: pytest.MonkeyPatch, looks: list[Json], since: str, moments: set[str]
) -> None:
    row = run(monkeypatch, ["", "image"], looks)
    assert (row.since, set(row.after_s)) == (since, moments)
    assert row.seconds >= 20
    assert not row.other


def test_a_rank_that_only_its_log_knows_of_shows_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {**BOUND["status"], "containerStatuses": [{"state": {"running": {"startedAt": PAST}}}]}
    log = f"{PAST} it begins\n{LATER} gangplank: rank 1: no step and no exchange for 5 s\n"
    row = run(monkeypatch, ["stuck"], [{"Pod": [{**BOUND, "status": status}]}], log=log, code="stuck")
    assert row.since == "sign"
    assert row.after_s["bound"] - row.after_s["sign"] == pytest.approx(15)


def test_a_job_that_is_not_submitted_is_counted_from_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    row = run(monkeypatch, ["image"], [{}], submitted=False)
    assert (row.since, set(row.after_s)) == ("asked", {"asked"})


def test_an_answer_that_names_another_cause_or_none_after_the_attempt_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [{"Pod": [WAITS]}]
    assert [run(monkeypatch, codes, looks).other for codes in (["quota", "", "image"], ["image"])] == ["quota", ""]
    assert [run(monkeypatch, codes, looks).blank for codes in (["", "image"], ["image"])] == [1, 0]
    assert run(monkeypatch, ["", "image"], [{}, {"Pod": [WAITS]}]).blank == 0


def test_a_cause_that_is_never_named_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="an answer"):
        run(monkeypatch, [""], [{"Pod": [WAITS]}], limit_s=0)
