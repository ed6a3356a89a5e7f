"""`gangplank fit` computes, `--exact` asks a copy, and the live scheduler decides: one answer on random mixes.

A mix is 20 to 100 simulated nodes, queues with caps, jobs that run, and then one job more. About every second such job
must wait. The answers of fit and of --exact come before the job is submitted; the live one is whether all of its pods
that must start together get nodes. GANGPLANK_KUBECONFIG names an existing cluster.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job
from lab.simulated import TOLERATION, kwok, nodes
from tests.support.sweeps import FULL, sweeping
from tests.support.teams_live import gangplank, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gangplank.cluster.client import Kube
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
SEEDS = range(300) if sweeping("fit-mixes") else range(12) if FULL else range(4)
HOME = "fit-mixes"
PODS = f"/api/v1/namespaces/{HOME}/pods"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
WORDS = {0: "yes", 5: "no", 6: "cannot tell"}
STEADY_S = 12  # without a change of the pods: several sessions of the scheduler; longer if it has not spoken
LIMIT_S = 180


@pytest.fixture(scope="module", autouse=True)
def _simulated(kubeconfig: str, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
    try:
        with kwok(kubeconfig, tmp_path_factory.mktemp("kwok")):
            yield
    finally:
        kube.call("DELETE", f"/api/v1/namespaces/{HOME}")
        until(lambda: kube.get(f"/api/v1/namespaces/{HOME}") is None, "the namespace is gone", 180)


def described(name: str, dice: random.Random, label: str, queue: str, pods: int, cores: int) -> Json:
    """A job on the nodes of a mix."""
    backend = dice.choice(["volcano", "volcano", "indexed"])
    job = {
        "name": name, "namespace": HOME, "backend": backend, "image": "a.example/b:1", "command": ["true"],
        "workers": pods - 1, "resources": {"cpu": str(cores), "memory": f"{cores}Gi"},
        "tolerations": [TOLERATION], "node_selector": {"mix": label},
    }  # fmt: skip
    return job | ({"queue": queue} if backend == "volcano" else {})


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
    """Whether the scheduler has said why pods have no node."""
    if job["backend"] == "volcano":
        query = {"fieldSelector": "involvedObject.kind=PodGroup,reason=Unschedulable"}
        events = kube.call("GET", f"/api/v1/namespaces/{HOME}/events", query=query)["items"]
        return any(one["involvedObject"]["name"].startswith(f"{job['name']}-") for one in events)
    conditions = [one for pod in pods for one in (pod.get("status") or {}).get("conditions") or ()]
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


@pytest.mark.parametrize("seed", SEEDS)
def test_fit_the_copy_and_the_live_scheduler_agree(
    lab: Lab, kube: Kube, kubeconfig: str, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    label, jobs = f"mix-{seed}", list[Json]()
    sizes = [dice.choice([2, 4, 8]) for _ in range(dice.randint(20, 100))]
    total = sum(sizes)
    cap = dice.randint(total // 4, total)
    spec = {"weight": 1, "reclaimable": False, "capability": {"cpu": str(cap)}}
    kube.call("POST", QUEUES, {"apiVersion": QUEUES.removeprefix("/apis/").rpartition("/")[0], "kind": "Queue",
                               "metadata": {"name": label}, "spec": spec})  # fmt: skip
    try:
        room = [{"cpu": str(cores), "memory": f"{4 * cores}Gi"} for cores in sizes]
        with nodes(kube, label, room, {"mix": label}):
            until(lambda: state(kube, label) == "Open", "the queue is open")
            for number in range(dice.randint(1, 4)):
                cores = dice.choice([1, 2, 3])
                job = described(f"{label}-{number}", dice, label, label, dice.randint(1, max(1, total // 8)), cores)
                submit(kube, job)
                jobs.append(job)
                decided(kube, job)
            cores = dice.choice([1, 2, 3, 4])
            most = max(2, (3 * total) // (4 * cores) if dice.random() < 0.7 else total // (8 * cores))
            last = described(f"{label}-last", dice, label, label, dice.randint(max(1, most // 2), most), cores)
            file = tmp_path / "job.yml"
            file.write_text(json.dumps(last))
            computed = gangplank("fit", str(file), kubeconfig=kubeconfig)
            copied = gangplank("fit", "--exact", str(file), kubeconfig=kubeconfig)
            jobs.append(last)
            submit(kube, last)
            live = decided(kube, last)
            answers = WORDS.get(computed.returncode), WORDS.get(copied.returncode), live
            print(f"seed {seed}: fit {answers[0]}, copy {answers[1]}, live {live}")
            said = computed.stdout + computed.stderr + copied.stdout + copied.stderr
            assert answers[1] == live, f"{said}{json.dumps(jobs)}"
            assert answers[0] == live, f"{said}{json.dumps(jobs)}"
    finally:
        for job in jobs:
            lab.kubectl("delete", "-n", HOME, "vcjob,job", job["name"], "--ignore-not-found", "--wait=false")
        until(lambda: not kube.call("GET", PODS)["items"], "the pods are gone", 120)
        kube.call("DELETE", f"{QUEUES}/{label}")


def state(kube: Kube, queue: str) -> str:
    """The state of a queue."""
    return str((kube.call("GET", f"{QUEUES}/{queue}").get("status") or {}).get("state"))
