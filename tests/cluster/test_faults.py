"""Whatever happens to a training job on a real cluster, it ends once, with the exact weights or with one clear error.

Each job has a story, told by a thread, so that waiting for one is not waiting for all. The weights of the job that
nobody disturbs are what the others have to end with.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.jobs import DESCRIPTION, NAMESPACE, Job
from tests.support.sweeps import FULL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.conftest import Lab

Json = dict[str, Any]
KILLS = 20 if FULL else 3
EPOCHS = 300 if FULL else 60  # long enough for all kills
LIMIT_S = 900.0  # of one story; none waits for a time-out of more than two minutes
BACK_S = 300.0  # from a kill to a new generation of ranks
STOPPED_S = 60.0
AT_ONCE = 3  # stories
SMALL = {"path": "/var/lib/gangplank-small-claim", "size": "900k", "node": "node-1"}


def job(lab: Lab, name: str, claim: str = "", **change: object) -> Job:
    """A job of this file."""
    parameters = {**DESCRIPTION["hyperparameters"], "epochs": EPOCHS}
    return Job(lab, name, {"hyperparameters": parameters, **change}, claim)


def submitted(one: Job) -> Job:
    """The job, and a claim of its own."""
    one.submit(one.claimed())
    return one


def underway(one: Job) -> None:
    """Wait until rank 0 is past its second checkpoint."""
    one.lab.wait(f"{one.name} trains", lambda: one.trains(beyond=40), LIMIT_S)


def calm(lab: Lab) -> Job:
    return submitted(job(lab, "calm"))


def worker_killed(lab: Lab) -> Job:
    """SIGKILL to the worker at random instants of a generation (import, rendezvous, steps) while the master lives."""
    one, chance, last = submitted(job(lab, "worker-killed", max_retries=KILLS + 1)), random.Random(4), 0
    for kill in range(KILLS):
        lab.wait(f"generation {kill + 1}", lambda: one.trainer("worker") not in (None, last), BACK_S)  # noqa: B023  # used at once
        lab.wait("the master runs", lambda: one.pod("master")["status"]["phase"] == "Running")
        time.sleep(chance.uniform(0, 6))  # nothing is waited for: this chooses the instant
        last = one.send(signal.SIGKILL, "worker")
    return one


def master_killed(lab: Lab) -> Job:
    one = submitted(job(lab, "master-killed"))
    underway(one)
    one.send(signal.SIGKILL, "master")
    return one


def master_deleted(lab: Lab) -> Job:
    one = submitted(job(lab, "master-deleted"))
    underway(one)
    lab.kubectl("delete", "pod", f"{one.name}-master-0", "-n", NAMESPACE)
    return one


def rank_stopped(lab: Lab) -> Job:
    """A rank that neither works nor dies: the others give it up, and its pod goes with theirs."""
    one = submitted(job(lab, "rank-stopped"))
    underway(one)
    pid = one.send(signal.SIGSTOP, "worker")
    time.sleep(STOPPED_S)
    if one.trainer("worker") == pid:
        os.kill(pid, signal.SIGCONT)
    return one


def short_of_memory(lab: Lab) -> Job:
    memory = {"request": "64Mi", "limit": "64Mi"}
    return submitted(job(lab, "short-of-memory", resources={"cpu": "50m", "memory": memory}, max_retries=1))


def full_claim(lab: Lab) -> Job:
    """A volume that takes two checkpoints and not the results too; with more room the next job continues."""
    lab.inside(SMALL["node"], "mkdir", "-p", SMALL["path"])
    lab.inside(SMALL["node"], "mount", "-t", "tmpfs", "-o", f"mode=777,size={SMALL['size']}", "small", SMALL["path"])
    where = {"key": "kubernetes.io/hostname", "operator": "In", "values": [SMALL["node"]]}
    volume: Json = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "small"}, "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "small",
            "hostPath": {"path": SMALL["path"]}, "persistentVolumeReclaimPolicy": "Retain",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}}}  # fmt: skip
    one = job(lab, "full-claim", max_retries=0)
    room = {"requests": {"storage": "1Mi"}}
    one.submit(volume, one.claimed(storageClassName="small", volumeName="small", resources=room))
    lab.wait(f"{one.name} says why", lambda: one.says("cannot be written"), LIMIT_S)
    return one


STORIES = (calm, worker_killed, rank_stopped, full_claim, master_killed, master_deleted, short_of_memory)


@pytest.fixture(scope="module")
def site(lab: Lab) -> Iterator[Lab]:
    """The lab with Volcano, storage, and a namespace for the stories."""
    lab.playbook("playbooks/site.yml")
    lab.kubectl("create", "namespace", NAMESPACE)
    yield lab
    lab.kubectl("delete", "namespace", NAMESPACE, "--timeout=600s")
    lab.kubectl("delete", "persistentvolume", "small", "--ignore-not-found")
    lab.inside(SMALL["node"], "sh", "-c", f"umount {SMALL['path']}; rmdir {SMALL['path']}")


@pytest.fixture(scope="module")
def stories(site: Lab) -> Iterator[dict[str, Future[Job]]]:
    """All stories, some at a time, each until its job has ended."""

    def tell(story: Any) -> Job:
        told: Job = story(site)
        told.end(LIMIT_S)
        return told

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {story.__name__: pool.submit(tell, story) for story in STORIES}


@pytest.fixture(scope="module")
def weights(stories: dict[str, Future[Job]]) -> str:
    """Those of the job that nobody disturbed."""
    return stories["calm"].result().weights()


def proven(one: Job) -> str:
    """What gangplank proof prints of a job that is."""
    done = one.command("proof")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("story", "restarts"), [
    ("calm", 0), ("worker_killed", KILLS), ("master_killed", 1), ("master_deleted", 1), ("rank_stopped", 1),
])  # fmt: skip
def test_ends_once_with_the_exact_weights(
    stories: dict[str, Future[Job]], weights: str, story: str, restarts: int
) -> None:
    one = stories[story].result()
    assert one.phase() == "Completed", one.log()[-2000:]
    assert one.live()["status"].get("retryCount", 0) == restarts, "one restart of the gang for each fault"
    assert one.weights() == weights
    assert "0 to 1, each once" in proven(one)


def test_too_little_memory_is_one_clear_error(stories: dict[str, Future[Job]]) -> None:
    one = stories["short_of_memory"].result()
    assert one.phase() == "Failed"
    assert "OOMKilled" in one.command("status").stdout
    proof = one.command("proof")
    assert (proof.returncode, proof.stderr.count("\n")) == (1, 1)
    assert "not proven: no evidence" in proof.stderr


def test_a_full_claim_costs_no_good_checkpoint(site: Lab, stories: dict[str, Future[Job]], weights: str) -> None:
    one = stories["full_claim"].result()
    assert one.phase() == "Failed"
    assert "No space left" in one.events("checkpoint_failed", one.said)[0]["reason"]
    said = re.findall(r"^train\.py: .*", one.said, re.MULTILINE)
    assert len(said) == 1
    assert "cannot be written (No space left on device); the last checkpoint is kept. Fix: free space" in said[0]
    site.inside(SMALL["node"], "mount", "-o", "remount,size=20m", SMALL["path"])
    again = job(site, "room-again", one.claim, args=[*DESCRIPTION["args"], "--resume", "must"])
    again.submit()
    assert again.end(LIMIT_S) == "Completed", again.log()[-2000:]
    assert again.events("resume")[0]["step"] > 0
    assert again.weights() == weights
