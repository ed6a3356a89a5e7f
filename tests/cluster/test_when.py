"""`gangplank when` on a live cluster: trainings queued behind one another, and how often its intervals were right.

Each training has one rank and takes one of three lengths. A queue runs a few at a time. Every few seconds, `when` is
asked about every job that waits or runs; the first answers for each job count. `make sweep NAME=when` has five such
queues of ten, each a case of its own: one that fails or is killed leaves the answers of the others.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.when import answer
from gangplank.jobs.parse import parse_job
from tests.support.sweeps import sweeping
from tests.support.teams_live import gangplank
from tests.support.why_stories import IMAGE, SMALL, queue
from tools import when_figures
from tools.when_figures import FIGURES, Guess, lengths, load, summary

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
KIND = ("batch.volcano.sh/v1alpha1", "Job")
WHOLE = (5, when_figures.JOBS, 4, when_figures.EPOCHS)
ROUNDS, JOBS, SLOTS, EPOCHS = WHOLE if sweeping("when") else (1, 6, 2, (16, 32))
LIMIT_S = 700  # of a round: all of them within an hour
PAUSE_S = 4  # between two times of asking, which takes time from the trainings
# As torchrun sets it for one rank: without torchrun itself, a training begins in half the time
ALONE = (
    "TORCHELASTIC_RUN_ID=when RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=0 GROUP_WORLD_SIZE=1"
    " MASTER_ADDR=127.0.0.1 MASTER_PORT=29400 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_USE_AGENT_STORE=False"
)


def training(home: str, number: int, epochs: int) -> list[Json]:
    """What is submitted for one training."""
    run = f"exec env {ALONE} python3 /opt/gangplank/trainer/train.py --epochs {epochs} --log-interval 5 --threads 1"
    described: Json = {"name": f"{home}-{number:02}", "namespace": home, "image": IMAGE, "command": ["sh", "-c", run]}
    described |= {"workers": 0, "resources": SMALL, "queue": home, "backend": "volcano", "max_retries": 0}
    return BACKENDS["volcano"].manifests(parse_job(described))


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


class Watched:
    """What became of the jobs, and what was said of them."""

    def __init__(self, kube: Kube, home: str) -> None:
        self.kube, self.home = kube, home
        self.starts: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        self.said: list[tuple[str, str, float, Any]] = []  # job, start or end, when, interval
        self.silent: set[tuple[str, str]] = set()
        self.failed: dict[str, int] = {}  # exit codes

    def look(self) -> None:
        """Which pods run, and which have ended."""
        for pod in self.kube.items("v1", "Pod", self.home):
            name = pod["metadata"]["labels"]["gangplank.dev/job"]
            for status in (pod.get("status") or {}).get("containerStatuses") or ():
                state = status["state"]
                if began := (state.get("running") or state.get("terminated") or {}).get("startedAt"):
                    self.starts.setdefault(name, seconds(began))
                if "terminated" in state:
                    self.ends.setdefault(name, seconds(state["terminated"]["finishedAt"]))
                    if code := state["terminated"]["exitCode"]:
                        self.failed[name] = code

    def ask(self) -> None:
        """What `when` says of every job that has not ended, and of which it has not yet said the next."""
        done = {(name, kind) for name, kind, _, _ in self.said}
        names = ((job["metadata"]["name"], job) for job in self.kube.listed(self.home, [KIND]))
        live = [job for name, job in names
                if name not in self.ends and (name, "end" if name in self.starts else "start") not in done]  # fmt: skip
        with ThreadPoolExecutor(4) as pool:
            for name, asked, said in pool.map(self.one, live):
                kind = "end" if said.running else "start"
                interval = said.outlook.end if said.running else said.outlook.start
                if interval is None:
                    self.silent.add((name, kind))
                else:
                    self.said.append((name, kind, asked, interval))

    def one(self, job: Json) -> tuple[str, float, Any]:
        return job["metadata"]["name"], time.time(), answer(self.kube, job, live=True)

    def guesses(self) -> list[Guess]:
        """The first known answer about the start, and about the end, of each job that has come so far."""
        first: dict[tuple[str, str], Guess] = {}
        for name, kind, asked, interval in self.said:
            real = (self.starts if kind == "start" else self.ends).get(name, 0.0) - asked
            low, likely, high = interval.cases
            if real > 0 and name not in self.failed:  # it has come, but not while it was asked about
                first.setdefault((name, kind), Guess(name, kind, low, likely, high, real))
        return list(first.values())


def keep(home: str, guesses: list[Guess]) -> None:
    """Write the answers of a round beside those of the others."""
    others = [one for one in load() if one.job.startswith("when-") and not one.job.startswith(f"{home}-")]
    rows = sorted([*others, *guesses], key=lambda one: (one.job, one.kind))
    FIGURES.write_text(json.dumps([vars(one) for one in rows], indent=1) + "\n")


@pytest.mark.parametrize("number", range(ROUNDS))
def test_jobs_start_and_end_when_it_is_said(lab: Lab, kube: Kube, kubeconfig: str, number: int) -> None:
    home = f"when-{number}"
    sets = [training(home, job, epochs) for job, epochs in enumerate(lengths(number, JOBS, EPOCHS))]
    watched = Watched(kube, home)
    lab.kubectl("create", "namespace", home)
    share = queue(home, capability={"cpu": f"{10 * SLOTS}m"})
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(share))
    try:
        assert kube.accepts(sets[0][-1], 60) == ""  # the webhook may learn of the queue a little later
        for items in sets:
            for item in items:
                kube.create(item)
        until = time.monotonic() + LIMIT_S
        while len(watched.ends) < JOBS and time.monotonic() < until:
            watched.look()
            watched.ask()
            time.sleep(PAUSE_S)
        last = sets[-1][-1]["metadata"]["name"]
        done = gangplank("when", last, "-n", home, kubeconfig=kubeconfig)
    finally:
        if sweeping("when"):
            keep(home, watched.guesses())
        lab.kubectl("delete", "namespace", home, "--timeout=110s", check=False)
        lab.kubectl("delete", "queues.scheduling.volcano.sh", home, "--ignore-not-found", check=False)
    guesses = watched.guesses()
    print(json.dumps(summary(guesses)))
    assert not watched.failed
    assert len(watched.ends) == JOBS, watched.ends
    assert (done.returncode, done.stdout) == (0, f"{last}: it has ended: Completed\n"), done.stderr
    assert {one.job for one in guesses if one.kind == "end"}, watched.silent
    starts = [one for one in guesses if one.kind == "start"]
    assert len(starts) >= JOBS // 3, (starts, watched.silent)
