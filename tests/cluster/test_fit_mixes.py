"""`gangplank fit` computes, `--exact` asks a copy, and the live scheduler decides: one answer on random mixes.

A mix is 20 to 100 simulated nodes, queues, jobs that run, and then one job more: tests/support/fit_mixes.py makes them.
About every second such job must wait. The answers of fit and of --exact come before the job is submitted; the live one
is whether all of its pods that must start together get nodes. A sweep keeps all answers in tests/sweeps/fit-mixes.json;
tools/fit_figures.py has their sums. GANGPLANK_KUBECONFIG names an existing cluster.
"""

from __future__ import annotations

import contextlib
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job
from lab.simulated import kwok, nodes
from tests.support.fit_mixes import HOME, PRIORITIES, SPECIAL, Mix, mix
from tests.support.sweeps import FULL, sweeping
from tests.support.teams_live import gangplank, until, until_gone
from tools.fit_figures import UNSURE, Compared, keep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gangplank.cluster.client import Kube
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
SEEDS = range(300) if sweeping("fit-mixes") else range(12) if FULL else range(4)
SPACE = f"/api/v1/namespaces/{HOME}"
PODS, QUOTAS = f"{SPACE}/pods", f"{SPACE}/resourcequotas"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
WORDS = {0: "yes", 5: "no", 6: UNSURE}
STEADY_S = 12  # without a change of the pods: several sessions of the scheduler; longer if it has not spoken
LIMIT_S = 600


@pytest.fixture(scope="module", autouse=True)
def _simulated(kubeconfig: str, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
    try:
        for name, value in PRIORITIES.items():
            kube.call("POST", CLASSES, {"metadata": {"name": name}, "value": value})
        with kwok(kubeconfig, tmp_path_factory.mktemp("kwok")):
            yield
    finally:
        for name in PRIORITIES:
            gone(kube, f"{CLASSES}/{name}")
        gone(kube, SPACE)


def gone(kube: Kube, where: str) -> None:
    """Delete an object if it is there, and wait until it is not."""
    if kube.get(where):
        kube.call("DELETE", where)
        until_gone(kube, where, 180)


def own(kube: Kube, job: Json) -> list[Json]:
    """The pods of a job."""
    query = {"labelSelector": f"gangplank.dev/job={job['name']}"}
    return list(kube.call("GET", PODS, query=query)["items"])


def submit(kube: Kube, job: Json) -> None:
    """Submit a job as the command does."""
    for item in BACKENDS[job["backend"]].manifests(parse_job(job)):
        item["metadata"].setdefault("namespace", HOME)
        kube.create(item)


def decided(kube: Kube, job: Json) -> str:
    """What the live scheduler did: all pods have nodes, or nothing has changed for a while after it refused."""
    before: Any = None
    since = start = time.monotonic()
    while time.monotonic() < start + LIMIT_S:
        pods = own(kube, job)
        placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        if placed == job["workers"] + 1:
            return "yes"
        if (placed, len(pods)) != before:
            before, since = (placed, len(pods)), time.monotonic()
        if time.monotonic() > since + STEADY_S and spoken(kube, job, pods):
            return "no"
        time.sleep(0.5)
    return f"neither within {LIMIT_S} s"


def spoken(kube: Kube, job: Json, pods: list[Json]) -> bool:
    """Whether a scheduler has said why pods have no node, or a controller why it makes no more of them."""
    kind, reason = ("PodGroup", "Unschedulable") if job["backend"] == "volcano" else ("Job", "FailedCreate")
    query = {"fieldSelector": f"involvedObject.kind={kind},reason={reason}"}
    events = kube.call("GET", f"{SPACE}/events", query=query)["items"]
    if any(f"{one['involvedObject']['name']}-".startswith(f"{job['name']}-") for one in events):
        return True
    statuses = [pod.get("status") or {} for pod in pods]
    if any(status.get("nominatedNodeName") for status in statuses) or ending(kube):
        return False  # the scheduler ends others for them
    conditions = [one for status in statuses for one in status.get("conditions") or ()]
    refused = any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)
    return refused and job["backend"] != "volcano"


def ending(kube: Kube) -> bool:
    """Whether pods of any job of the mix are being removed."""
    return any(pod["metadata"].get("deletionTimestamp") for pod in kube.call("GET", PODS)["items"])


def is_open(kube: Kube, queue: str) -> bool:
    """Whether a queue takes jobs."""
    return (kube.call("GET", f"{QUEUES}/{queue}").get("status") or {}).get("state") == "Open"


@contextlib.contextmanager
def site(kube: Kube, one: Mix) -> Iterator[None]:
    """The queues, the quota and the nodes of a mix."""
    labels = {"mix": one.label}
    version = QUEUES.removeprefix("/apis/").rpartition("/")[0]
    names = [item["metadata"]["name"] for item in one.queues]
    try:
        for item, name in zip(one.queues, names, strict=True):
            kube.call("POST", QUEUES, {"apiVersion": version, "kind": "Queue", **item})
            until(partial(is_open, kube, name), f"queue {name} is open")
        if one.quota_cores:
            hard = {"requests.cpu": str(one.quota_cores)}
            kube.call("POST", QUOTAS, {"metadata": {"name": one.label}, "spec": {"hard": hard}})
            where = f"{QUOTAS}/{one.label}"
            until(lambda: (kube.call("GET", where).get("status") or {}).get("hard") == hard, "the quota counts")
        with (
            nodes(kube, one.label, one.plain, labels),
            nodes(kube, f"{one.label}-special", one.special, labels, [SPECIAL]),
        ):
            yield
    finally:
        gone(kube, f"{QUOTAS}/{one.label}")
        for name in reversed(names):
            gone(kube, f"{QUEUES}/{name}")


@pytest.mark.parametrize("seed", SEEDS)
def test_fit_the_copy_and_the_live_scheduler_agree(
    lab: Lab, kube: Kube, kubeconfig: str, tmp_path: Path, seed: int
) -> None:
    one = mix(seed)
    *before, last = one.jobs
    with site(kube, one):
        try:
            for job in before:
                submit(kube, job)
                assert decided(kube, job) == "yes", job
            file = tmp_path / "job.yml"
            file.write_text(json.dumps(last))
            computed = gangplank("fit", str(file), kubeconfig=kubeconfig)
            copied = gangplank("fit", "--exact", str(file), kubeconfig=kubeconfig)
            submit(kube, last)
            live = decided(kube, last)
        finally:
            for job in one.jobs:
                lab.kubectl("delete", "-n", HOME, "vcjob,job", job["name"], "--ignore-not-found", "--wait=false")
            until(lambda: not kube.call("GET", PODS)["items"], "the pods are gone", 600)
    fit, copy = (WORDS.get(done.returncode, f"status {done.returncode}") for done in (computed, copied))
    reason = "" if fit == "yes" else computed.stdout.strip()
    answer = Compared(seed, one.subject, fit, copy, live, reason)
    print(f"seed {seed}: fit {fit}, copy {copy}, live {live}")
    if sweeping("fit-mixes"):
        keep(answer)
    said = computed.stdout + computed.stderr + copied.stdout + copied.stderr
    assert answer.difference in ("", "fit cannot tell"), f"{answer.difference}\n{said}{json.dumps(one.jobs)}"
    assert fit != UNSURE or one.subject == "reclaim", said  # what Volcano takes back is not computed
