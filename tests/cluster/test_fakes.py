"""The corpus of fakes of the proof as real jobs, by the launcher: none is proven, and the claim that fails says why.

`make test` has a few of them, `make test-full` all. test_replay.py has what needs two jobs, or a command of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gangplank.backends import BACKENDS
from tests.cluster.conftest import ROOT, backends_installed
from tests.support.fakes import ALONE, INSIDE, OBSERVED, TOOK_PART, WRITTEN
from tests.support.sweeps import FULL
from tests.unit.proof.fakes import Fake, fakes
from tests.unit.proof.test_claims import EXPECTED, World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.cluster.conftest import Lab
    from tests.support.fakes import Observed, Written

NAMESPACE = "fakes"
KEEP_PODS = [name for name in BACKENDS if name != "volcano"]  # it removes workers, and their logs, at its end
HERE = ["volcano", "indexed"]  # back-ends that `make test` has
OBSERVED_HERE = {"zero-loss"}
WRITTEN_HERE = {"no-sampler"}
# What a job cannot be: a file without one, a job whose pods were removed.
NO_JOB = {"E2: a world of one, for a file", "E2: three ranks in one pod, for a file",
          "E1: one pod is left of the job, and it wrote nothing"}
FORGED = [fake for fake in fakes() if fake.name not in NO_JOB]
FORGED_HERE = {"E1: evidence that other pods wrote"}


@pytest.fixture(scope="module")
def namespace(lab: Lab) -> Iterator[str]:
    """A namespace on a lab that has the back-ends of this run."""
    with backends_installed(lab, NAMESPACE):
        yield NAMESPACE


class Job:
    """A folder of code as a job, from `run` to `delete`."""

    def __init__(self, kubeconfig: str, folder: Path, backend: str, workers: int = 2) -> None:
        self.folder, self.name = folder, f"fake-{uuid.uuid4().hex[:6]}"
        self.where = ["-n", NAMESPACE, "--kubeconfig", kubeconfig]
        self.words = ["--name", self.name, "--backend", backend, "--workers", str(workers)]

    def gangplank(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command, as a user of that folder runs it."""
        line = [str(ROOT / ".venv/bin/gangplank"), words[0], *words[1:2], *self.where, *words[2:]]
        return subprocess.run(line, cwd=self.folder, capture_output=True, text=True, check=False, timeout=1800)

    def verdict(self, script: str, *arguments: str) -> str:
        """What `run` says of a training that ends well, and is not proven; `proof` exits with 1."""
        try:
            run = self.gangplank("run", script, "--code", ".", *self.words, *(["--", *arguments] if arguments else []))
            assert run.returncode == 0, run.stdout + run.stderr
            proof = self.gangplank("proof", self.name)
            assert proof.returncode == 1, proof.stdout + run.stderr
            assert not proof.stdout.splitlines()[-1].startswith("PROVEN"), proof.stdout
            return run.stderr
        finally:
            self.gangplank("delete", self.name)


def some(names: Sequence[str], here: set[str], backends: Sequence[str]) -> list[tuple[int, str]]:
    """Which of them run here, by number, each on one of the back-ends."""
    assert here <= {*names}, "a fake that does not exist"
    if FULL:
        return [(number, backends[number % len(backends)]) for number in range(len(names))]
    chosen = [name for name in backends if name in HERE]
    mine = [number for number, name in enumerate(names) if name in here]
    return [(number, chosen[turn % len(chosen)]) for turn, number in enumerate(mine)]


def cases(fakes: Sequence[Observed] | Sequence[Written] | Sequence[Fake], names: Sequence[str], here: set[str],
          backends: Sequence[str]) -> list[object]:
    """Parameters of a test: a fake and a back-end."""
    return [pytest.param(fakes[number], backend, id=f"{names[number]}, {backend}")
            for number, backend in some(names, here, backends)]


def failed(said: str, claim: str) -> str:
    """Why a claim failed, by what `run` said; "" if it did not."""
    start = f"FAILED  {claim}: "
    return next((line.removeprefix(start) for line in said.splitlines() if line.startswith(start)), "")


def plain(reason: str) -> str:
    """A reason without what another run has otherwise; where it names a pod, it is the first one."""
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "uid-0", re.sub(r"\d+ s older", "older", reason))


@pytest.mark.parametrize(("fake", "backend"), cases(
    OBSERVED, [fake.kind for fake in OBSERVED], OBSERVED_HERE, list(BACKENDS)))
def test_a_script_that_only_looks_distributed_is_rejected(
        namespace: str, kubeconfig: str, tmp_path: Path, fake: Observed, backend: str) -> None:
    (tmp_path / "own.py").write_text((INSIDE / "own.py").read_text())
    said = Job(kubeconfig, tmp_path, backend).verdict("own.py", fake.kind)
    assert f"\n{fake.word}: " in said, said
    assert fake.reason in failed(said, fake.claim), said
    assert namespace


@pytest.mark.parametrize("backend", list(BACKENDS) if FULL else HERE[1:])
def test_three_ranks_in_one_pod_are_rejected(namespace: str, kubeconfig: str, tmp_path: Path, backend: str) -> None:
    for name in ("own.py", "one_pod.py"):
        (tmp_path / name).write_text((INSIDE / name).read_text())
    said = Job(kubeconfig, tmp_path, backend).verdict("one_pod.py")
    assert "\nNOT DISTRIBUTED: " in said, said
    assert "all 3 ranks ran in one pod" in failed(said, ALONE), said
    assert namespace


@pytest.mark.parametrize(("fake", "backend"), cases(
    WRITTEN, [fake.mistake for fake in WRITTEN], WRITTEN_HERE, KEEP_PODS))
def test_a_script_whose_own_evidence_is_not_of_a_distributed_training_is_rejected(
        namespace: str, kubeconfig: str, tmp_path: Path, fake: Written, backend: str) -> None:
    (tmp_path / "broken.py").write_text((INSIDE / "broken.py").read_text())
    said = Job(kubeconfig, tmp_path, backend).verdict("broken.py", fake.mistake)
    assert "\nNOT PROVEN: " in said, said
    assert any(fake.reason in failed(said, claim) for claim in fake.claims), said
    assert namespace


def forged(folder: Path, fake: Fake) -> list[str]:
    """Put a script into a folder that prints the evidence of a fake; the arguments of the job that was asked for."""
    (folder / "forged.py").write_text((INSIDE / "forged.py").read_text())
    asked = fake.expected
    (folder / "forged.json").write_text(json.dumps({
        "records": fake.records, "created": EXPECTED.created if asked.created is None else asked.created,
        "knows_the_pods": asked.pods in (None, EXPECTED.pods)}))
    epochs, batch = asked.epochs, asked.global_batch
    return [*(["--epochs", str(epochs)] if epochs else []),
            *(["--batch-size", str(batch // asked.world_size)] if batch else [])]


@pytest.mark.parametrize(("fake", "backend"), cases(FORGED, [fake.name for fake in FORGED], FORGED_HERE, KEEP_PODS))
def test_evidence_that_a_script_prints_of_a_training_that_never_was_is_rejected(
        namespace: str, kubeconfig: str, tmp_path: Path, fake: Fake, backend: str) -> None:
    arguments = forged(tmp_path, fake)
    said = Job(kubeconfig, tmp_path, backend, fake.expected.world_size - 1).verdict("forged.py", *arguments)
    assert plain(fake.reason) in plain(failed(said, fake.claim)), said
    assert namespace


def test_sound_evidence_that_a_script_prints_contradicts_what_was_observed(
        namespace: str, kubeconfig: str, tmp_path: Path) -> None:
    """Every rank knows the others' pods and every hash is right; the observer saw ranks that never joined."""
    sound = Fake("sound", World().train(), replace(EXPECTED, created=World.clock), TOOK_PART, "rank 0 finished 2 times")
    said = Job(kubeconfig, tmp_path, "indexed").verdict("forged.py", "watched", *forged(tmp_path, sound))
    assert sound.reason in failed(said, sound.claim), said
    assert namespace
