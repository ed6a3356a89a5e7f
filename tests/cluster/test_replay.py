"""Evidence that a job did not earn is rejected on the live cluster, on every back-end, with the reason (E1, E2).

With GANGPLANK_KUBECONFIG, during development, on an existing cluster with every operator.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.cluster.progress import phase
from gangplank.proof.claims import CLOCK_TOLERANCE_S
from tests.cluster.conftest import ROOT, Lab
from tests.cluster.differential.live import SHARED_CLAIM, Cluster, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]
NAME = "digits"
TRAINER = "/opt/gangplank/trainer"
DESCRIPTION: Json = {
    "name": NAME,
    "image": "gangplank.dev/trainer:0.1.0",
    "workers": 2,
    "resources": {"cpu": "50m", "memory": "256Mi"},
    "volumes": [{"claim": "shared", "mount": "/data", "access": "ReadWriteMany"}],
}
HONEST: Json = {
    "script": f"{TRAINER}/train.py",
    "output": "/data/out",
    "hyperparameters": {"epochs": 2, "batch_size": 32, "seed": 1},
}
SILENT = "silent.py"  # the same output, and no evidence of its own
WAITS = "waits.py"
SCRIPTS = {
    SILENT: "print('nothing to show')\n",
    WAITS: "import pathlib, time\nwhile not pathlib.Path('/data/out/result.json').exists():\n    time.sleep(0.2)\n",
}
ONE_POD = f"""[ "${{PET_NODE_RANK:-$RANK}}" = 0 ] || exit 0
PET_NPROC_PER_NODE=3 exec python3 {TRAINER}/start.py --standalone --epochs 2"""


class Jobs:
    """Jobs in a namespace of their own, as their owner sees them."""

    def __init__(self, cluster: Cluster, config: str, folder: Path) -> None:
        self.cluster, self.config, self.folder = cluster, config, folder
        for name, text in SCRIPTS.items():
            (folder / name).write_text(text)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run gangplank."""
        line = [sys.executable, "-m", "gangplank", *words, "-n", self.cluster.namespace]
        environment = {**os.environ, "KUBECONFIG": self.config, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            line, cwd=self.folder, capture_output=True, text=True, check=False, timeout=400, env=environment
        )

    def submit(self, backend: str, **fields: object) -> Json:
        """Submit a job; its description."""
        job = {**DESCRIPTION, "backend": backend, "namespace": self.cluster.namespace, **fields}
        (self.folder / "job.yml").write_text(yaml.safe_dump({"training_job": job}))
        done = self.command("submit", "job.yml")
        assert done.returncode == 0, done.stdout + done.stderr
        return job

    def end(self, job: Json) -> None:
        """Wait until a job has ended well."""
        backend = BACKENDS[job["backend"]]

        def ended() -> Any:
            live = self.cluster.kube.find(self.cluster.namespace, job["name"], [(backend.api_version, backend.kind)])
            state = phase(live or {"metadata": {}})
            return state.ended and state

        state = Lab().wait(f"the end of {job['name']}", ended, 600)
        assert state.succeeded, state

    def delete(self, job: Json) -> None:
        """Remove a job with its pods."""
        assert self.command("delete", job["name"]).returncode == 0
        Lab().wait("its pods are gone", lambda: not self.cluster.items("Pod"), 180)

    def proof(self, name: str) -> tuple[int, str]:
        """The exit status and the verdict."""
        done = self.command("proof", name)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def jobs(full_kubeconfig: str, tmp_path: Path) -> Iterator[Jobs]:
    with opened(full_kubeconfig, "replay") as cluster:
        cluster.create(SHARED_CLAIM)
        yield Jobs(cluster, full_kubeconfig, tmp_path)


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_e1_a_second_job_of_the_name_does_not_show_the_evidence_of_the_first(jobs: Jobs, backend: str) -> None:
    first = jobs.submit(backend, **HONEST)
    jobs.end(first)
    code, text = jobs.proof(NAME)
    assert (code, text.splitlines()[-1].startswith("PROVEN: ")) == (0, True), text
    jobs.delete(first)
    time.sleep(CLOCK_TOLERANCE_S)  # a second job that is submitted sooner is refused by its pods alone
    jobs.end(jobs.submit(backend, script=SILENT, output=HONEST["output"]))
    code, text = jobs.proof(NAME)
    assert code == 1, text
    assert "NOT PROVEN" in text
    assert "FAILED  pods are the job's: " in text
    assert "s older than the job (a replay, or a checkpoint of an earlier job of this name)" in text


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_e1_a_job_does_not_show_the_evidence_of_another_that_ran_beside_it(jobs: Jobs, backend: str) -> None:
    other = jobs.submit(backend, name="other", script=WAITS, output=HONEST["output"])
    jobs.end(jobs.submit("indexed" if backend == "volcano" else "volcano", **HONEST))
    jobs.end(other)
    code, text = jobs.proof("other")
    assert code == 1, text
    assert "FAILED  pods are the job's: rank 0 ran in pod " in text
    assert "which is not a pod of this job" in text


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_e2_three_ranks_in_one_pod_are_not_a_world_of_three_pods(jobs: Jobs, backend: str) -> None:
    job = jobs.submit(backend, command=["sh", "-c", ONE_POD])
    jobs.end(job)
    code, text = jobs.proof(NAME)
    assert code == 1, text
    assert "FAILED  more than one rank: all 3 ranks ran in one pod, which no job asked for" in text
    assert "3 ranks ran in pod " in text
