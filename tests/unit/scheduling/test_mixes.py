"""The mixes of tests/cluster/test_fit_mixes.py are worth their hours: each subject counts, and about half must wait."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job
from gangplank.scheduling.demand import Demand, demand
from gangplank.scheduling.fit import Answer, Verdict, fit
from gangplank.scheduling.namespace_rules import counted
from gangplank.scheduling.settings import Configuration
from gangplank.scheduling.snapshot import Pods, Snapshot
from lab.simulated import TAINT
from tests.support.fit_mixes import HOME, PRIORITIES, SPECIAL, SUBJECTS, Mix, mix
from tests.unit.scheduling.states import group, node
from tests.unit.scheduling.states import queue as state_queue

if TYPE_CHECKING:
    from tests.unit.scheduling.states import Json

ACTIONS = ("enqueue", "allocate", "backfill", "gangreclaim")
LAB = Configuration(ACTIONS, ("priority", "gang", "capacity"), hierarchy=True)
SEEDS = range(300)
SHARE = 0.3  # of jobs that must wait, at least
CLASSES: tuple[Json, ...] = tuple({"metadata": {"name": name}, "value": value} for name, value in PRIORITIES.items())


def demanded(job: Json) -> Demand:
    """What a job asks for."""
    backend = BACKENDS[job["backend"]]
    manifest = backend.manifests(parse_job(job))[-1]
    return demand(job["name"], HOME, backend.objects(manifest), backend.queue(manifest).name)


def site(one: Mix, running: tuple[Json, ...], gangs: tuple[Json, ...]) -> Snapshot:
    """The state of a mix."""
    rows = [(sizes, taints) for sizes, taints in ((one.plain, (TAINT,)), (one.special, (TAINT, SPECIAL)))]
    nodes: list[Json] = []
    for sizes, taints in rows:
        for size in sizes:
            plain: Json = node(f"n{len(nodes)}", labels={"mix": one.label}, taints=taints)
            nodes.append({**plain, "status": {**plain["status"], "allocatable": {"pods": "110", **size}}})
    queues = [{**item, "status": {"state": "Open"}} for item in one.queues]
    used = {name: f"{value}m" for name, value in counted(list(running)).items()}
    hard = {"requests.cpu": str(one.quota_cores)}
    quota: Json = {"metadata": {"name": one.label}, "spec": {"hard": hard}, "status": {"used": used}}
    return Snapshot(
        nodes=tuple(nodes), pods=Pods(running), groups=gangs, priorities=CLASSES, settings=LAB,
        queues=(state_queue("root"), state_queue("default"), *queues), quotas=(quota,) if one.quota_cores else (),
    )  # fmt: skip


@cache
def answered(seed: int) -> tuple[Mix, Answer]:
    """What fit says about the last job of a mix, once the others run."""
    one, running, gangs = mix(seed), list[dict[str, Any]](), list[dict[str, Any]]()
    for job in one.jobs[:-1]:
        asked = demanded(job)
        answer = fit(asked, site(one, tuple(running), tuple(gangs)))
        assert answer.verdict is Verdict.YES, (job, answer)
        for part in asked.parts:
            for name in part.pods:
                meta: dict[str, Any] = {"name": name, "namespace": HOME, "uid": name}
                meta["annotations"] = {"scheduling.k8s.io/group-name": job["name"]}
                rank = PRIORITIES.get(job.get("priority", ""), 0)
                spec = {**part.spec, "nodeName": answer.nodes[name], "priority": rank}
                running.append({"metadata": meta, "spec": spec})
        gangs.append(group(job["name"], asked.queue, HOME, phase="Running"))
    return one, fit(demanded(one.jobs[-1]), site(one, tuple(running), tuple(gangs)))


@pytest.mark.slow
@pytest.mark.parametrize("subject", sorted({*SUBJECTS}))
def test_fit_says_of_every_subject_what_was_meant(subject: str) -> None:
    for seed in SEEDS:
        if SUBJECTS[seed % len(SUBJECTS)] == subject:
            one, answer = answered(seed)
            meant = Verdict.NO if one.waits else Verdict.CANNOT_TELL if subject == "reclaim" else Verdict.YES
            assert answer.verdict is meant, (seed, answer)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(4), range(12), SEEDS], ids=len)
def test_enough_jobs_must_wait_on_both_schedulers(seeds: range) -> None:
    answers = [answered(seed) for seed in seeds]
    assert sum(answer.verdict is Verdict.NO for _, answer in answers) >= SHARE * len(seeds)
    assert {one.jobs[-1]["backend"] for one, _ in answers} == {"volcano", "indexed"}


def test_the_nodes_are_many_and_pods_of_a_lower_priority_end() -> None:
    mixes = [mix(seed) for seed in SEEDS]
    numbers = [len(one.plain) + len(one.special) for one in mixes]
    assert (min(numbers) >= 20, max(numbers) <= 100) == (True, True)
    assert any(answered(seed)[1].ended for seed in SEEDS)
    assert any(one.special for one in mixes)
    assert any(one.quota_cores for one in mixes)
    assert mix(7) == mix(7)
