"""All ranks restart together: whichever dies, whenever, the run ends once and with the same weights."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gangplank.proof.verdict import Expected, prove, read_records
from tests.support.processes import descendants
from tests.trainer.harness import LIMIT_S

if TYPE_CHECKING:
    import random

    from tests.trainer.harness import Root

FLAGS = ["--epochs", "3", "--batch-size", "32", "--train-samples", "600", "--checkpoint-interval", "4",
         "--dropout", "0.1", "--rendezvous-timeout", "20", "--collective-timeout", "5"]


def digest(root: Root, out: str) -> str:
    parameters: str = json.loads((root.host(out) / "result.json").read_text())["parameters"]
    return parameters


def test_ranks_killed_at_random_instants_again_and_again(root: Root, full: bool, chance: random.Random) -> None:
    """Every generation has its own store, as with a restarted master; a kill comes within 0.6 s of the start."""
    whole, out = root.new(), root.new()
    goal, epochs = (20, 200) if full else (3, 40)
    flags = [*FLAGS, "--epochs", str(epochs), "--rendezvous-timeout", "5"]
    root.train(3, *flags, "--output", whole)
    logs, kills = [], 0
    for _ in range(60):
        store = root.store()
        running = root.start(range(3), 3, *flags, "--output", out, port=store["port"])
        limit_s = LIMIT_S
        if kills < goal:
            time.sleep(chance.uniform(0, 0.6))  # nothing is waited for: this chooses the instant
            running.kill(chance.randrange(3))
            kills, limit_s = kills + 1, 50.0  # survivors leave within the time-outs
        ranks = running.wait(limit_s)
        root.close_store(store)
        logs += [rank.text for rank in ranks]
        if {rank.code for rank in ranks} == {0}:
            break
    assert kills == goal, "the run was long enough for all kills"
    assert digest(root, out) == digest(root, whole)
    for evidence in ((root.host(out) / "evidence.jsonl").read_text(), "\n".join(logs)):
        verdict = prove(read_records(evidence), Expected(3, epochs=epochs, global_batch=96, job_uid="job-1"))
        assert verdict.passed, verdict.text()


@pytest.mark.parametrize("group", [1, 2, 3], ids=["to prepare", "to wait for rank 0", "for checkpoints"])
def test_a_rank_that_is_killed_between_two_process_groups_ends_the_others_soon(root: Root, group: int) -> None:
    """They waited half an hour, torch's default, for a rank that could not come."""
    ranks = root.train(3, str(group), *FLAGS, "--output", root.new(), script="/tests/inside/lost.py")
    assert [rank.code for rank in ranks] == [1, -signal.SIGKILL, 1]
    for rank in (ranks[0], ranks[2]):
        assert "lost the others" in rank.text


def test_two_pods_under_torchrun_restart_in_place_and_meet_no_stale_keys(
    root: Root, full: bool, chance: random.Random
) -> None:
    """Two pods of two processes, restarted as OnFailure does; in full, a worker is killed while the master lives."""
    whole, out = root.new(), root.new()
    root.train(4, *FLAGS, "--output", whole)
    port = root.free_port()
    container = f'for attempt in $(seq {200 if full else 1}); do "$@" && exit 0; done; exit 1'
    logs = [root.out / f"pod-{pod}" for pod in range(2)]
    pods = []
    for pod, log in enumerate(logs):
        command = ["sh", "-c", container, "sh", "python3", "/opt/gangplank/trainer/start.py", *FLAGS]
        wiring = {"WORLD_SIZE": "2", "RANK": str(pod), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                  "PET_NPROC_PER_NODE": "2"}  # Volcano's variables, and two processes in each pod
        with log.open("w") as file:
            pods.append(subprocess.Popen(
                root.command([*command, "--output", out],
                             {**wiring, "GANGPLANK_POD": f"pod-{pod}", "GANGPLANK_JOB_UID": "job-7"}),
                stdout=file, stderr=subprocess.STDOUT))
    for kill in range(20 if full else 0):
        root.wait_for(lambda: logs[1].read_text().count('"event":"start"') > kill * 2, f"start {kill + 1}")  # noqa: B023  # used at once
        time.sleep(chance.uniform(0, 0.3))  # nothing is waited for: this chooses the instant
        for pid in descendants(pods[1].pid):
            if _name(pid).startswith("rank-"):  # not its torchrun
                subprocess.run(["kill", f"-{signal.SIGKILL:d}", str(pid)], check=False)  # it may have ended by itself
                break
    assert [pod.wait(200) for pod in pods] == [0, 0], logs[1].read_text()
    assert digest(root, out) == digest(root, whole)
    result = json.loads((root.host(out) / "result.json").read_text())
    assert [(row["rank"], row["pod"], row["world_size"], row["steps"]) for row in result["ranks"]] == [
        (rank, f"pod-{rank // 2}", 4, 15) for rank in range(4)]
    verdict = prove(read_records((root.host(out) / "evidence.jsonl").read_text()),
                    Expected(4, epochs=3, global_batch=128, job_uid="job-7", processes_per_pod=2))
    assert verdict.passed, verdict.text()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""
