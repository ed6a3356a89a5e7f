"""What would do: only what fit has shown to be enough, and how much of the job would start as it is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from gangplank.cli.why import fields, what_would_do, written
from gangplank.scheduling.cause import Cause
from gangplank.scheduling.fit import Answer, Verdict, fit
from gangplank.scheduling.remedy import Remedy, largest, remedy, smaller
from gangplank.scheduling.why import Situation
from tests.unit.scheduling.states import Json, cluster, job, node, pod, queue

if TYPE_CHECKING:
    from gangplank.scheduling.snapshot import Snapshot

CLOSED = (queue("root"), queue("default", state="Closed"))
TAINT: Json = {"key": "flyte/gpu", "value": "dedicated", "effect": "NoSchedule"}


def quota(name: str, hard: str, used: str = "0") -> Json:
    return {"metadata": {"name": name}, "spec": {"hard": {"requests.cpu": hard}},
            "status": {"used": {"requests.cpu": used}}}  # fmt: skip


def test_one_cause_that_is_enough_is_enough() -> None:
    state = cluster(queues=CLOSED)
    way = remedy(job(), state, fit(job(), state).causes)
    assert ([cause.code for cause in way.causes], way.enough, way.pods) == (["queue-closed"], True, 0)


def test_causes_that_must_go_together_are_all_named() -> None:
    state = cluster(queues=CLOSED, quotas=(quota("team", "2"),))
    way = remedy(job(), state, fit(job(), state).causes)
    assert ([cause.code for cause in way.causes], way.enough) == (["quota", "queue-closed"], True)


def test_nothing_is_promised_that_fit_cannot_show() -> None:
    state = cluster(queues=CLOSED, unread={"resourcequotas": "you may not list them"})
    way = remedy(job(), state, fit(job(), state).causes)
    assert ([cause.code for cause in way.causes], way.enough) == (["queue-closed"], False)


@pytest.mark.parametrize(("state", "pods"), [
    (cluster(), 8),
    (cluster(pods=(pod("x", "a", cpu="3"),)), 5),
    (cluster(quotas=(quota("team", "10", used="8"),)), 2),
    (cluster(queues=(queue("root"), queue("default", capability={"cpu": "3"}))), 3),
    (cluster(node("a", taints=(TAINT,))), 0),
    (cluster(queues=CLOSED), 0),
])  # fmt: skip
def test_the_largest_job_that_fits_now(state: Snapshot, pods: int) -> None:
    asked = job(workers=20)
    assert largest(asked, state) == pods


@pytest.mark.parametrize("seed", range(30))
def test_the_largest_job_fits_and_one_pod_more_does_not(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [node(name, cpu=str(dice.randint(1, 5))) for name in "abc"]
    asked = job(workers=20, resources={"cpu": str(dice.randint(1, 3))}, master_resources={"cpu": "1"})
    state = cluster(*nodes)
    most = largest(asked, state)
    others = asked.size - max(part.minimum for part in asked.parts)
    if most:
        assert fit(smaller(asked, most - others), state).verdict is Verdict.YES
    assert fit(smaller(asked, max(most - others, 0) + 1), state).verdict is not Verdict.YES


QUOTA, OPEN = Cause("quota", "…", fix="ask for more"), Cause("queue-closed", "…", fix="open it")


@pytest.mark.parametrize(("way", "lines"), [
    (Remedy((QUOTA,)), ["what would do: ask for more"]),
    (Remedy((QUOTA, OPEN)), ["what would do, together:", "  ask for more", "  open it"]),
    (Remedy((QUOTA,), enough=False), ["what is needed, and perhaps more: ask for more"]),
    (Remedy((QUOTA,), pods=5),
     ["what would do: ask for more", "what would start now: a job of 5 pods (workers: 4)"]),
    (Remedy(()), []),
])  # fmt: skip
def test_the_lines_say_whether_it_is_enough(way: Remedy, lines: list[str]) -> None:
    assert what_would_do(way) == lines


def test_amounts_are_named() -> None:
    (over,) = fit(job(), cluster(quotas=(quota("team", "1"),))).causes
    assert over.fix == "make the job smaller by 2 requests.cpu, or ask for a quota of 3 requests.cpu"
    (large,) = fit(job(workers=20), cluster()).causes
    assert large.fix == "make the job smaller, 8 pods at most, or add nodes"


def test_a_yes_names_what_ends_and_a_no_what_would_do() -> None:
    yes = Answer(Verdict.YES, nodes={"digits-0": "a"}, ended=("vision/x",))
    assert written(Situation("digits"), yes, yes.ended).splitlines() == [
        "digits: yes, it would start now", "  digits-0 on a", "  its scheduler would end vision/x for it",
    ]  # fmt: skip
    no = Answer(Verdict.NO, causes=(QUOTA, OPEN))
    assert written(Situation("digits"), no, way=Remedy((OPEN,), pods=2)).splitlines()[-2:] == [
        "what would do: open it", "what would start now: a job of 2 pods (workers: 1)",
    ]  # fmt: skip
    assert fields("digits", no, Remedy((OPEN,), pods=2))["needed"] == ["queue-closed"]
