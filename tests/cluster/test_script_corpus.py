"""Scripts that nobody here wrote, unedited, on every back-end: they train, and what can be seen of them is claimed."""

from __future__ import annotations

import json
import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest
import yaml

from gangplank.backends import BACKENDS, submitted_kinds
from gangplank.cluster import progress
from gangplank.cluster.client import Kube
from tests.cluster.conftest import ROOT, STATE, backends_installed
from tests.support import script_corpus
from tests.support.sweeps import FULL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gangplank.spec import Json
    from tests.cluster.conftest import Lab
    from tests.support.script_corpus import UserScript

NAMESPACE = f"corpus-{uuid.uuid4().hex[:6]}"
CORPUS = script_corpus.corpus()
CASES = [(name, backend, processes) for name in CORPUS for backend in BACKENDS for processes in (1, 2)]
SLICE = [("classifier", "volcano", 1), ("sharded", "indexed", 2)]  # of `make test`


@pytest.fixture(scope="module")
def site(lab: Lab) -> Iterator[Lab]:
    """The lab with what the cases of this run need."""
    with backends_installed(lab, NAMESPACE):
        yield lab


@pytest.fixture(scope="module")
def mnist(site: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The image of mnist.py, on every node."""
    archive = script_corpus.mnist_image(tmp_path_factory.mktemp("image"))
    try:
        site.playbook("playbooks/lab-load.yml", "-e", json.dumps({"lab_cluster_load": str(archive)}))
    finally:
        archive.unlink()


def gangplank(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, as a user of that folder runs it."""
    where = ["-n", NAMESPACE, "--kubeconfig", f"{STATE}/admin.kubeconfig"]
    command = [str(ROOT / ".venv/bin/gangplank"), *words[:2], *where, *words[2:]]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)


def by_file(lab: Lab, folder: Path, script: UserScript, backend: str, processes: int, name: str) -> str:
    """Run one by a job file that names it; what its ranks print."""
    (folder / script.file).write_text(script.text())
    job = {"name": name, "namespace": NAMESPACE, "backend": backend, "workers": 1, "processes_per_node": processes,
           "image": script_corpus.IMAGES[script.image], "script": script.file, "args": list(script.args)}
    return submitted(lab, folder, job)


def carried(folder: Path, script: UserScript, backend: str, processes: int, name: str) -> str:
    """Run a script as `gangplank run` does; what it prints."""
    (folder / script.file).write_text(script.text())
    done = gangplank(folder, "run", script.file, "--name", name, "--backend", backend, "--workers", "1",
                     "--processes-per-node", str(processes), "--image", script_corpus.IMAGES[script.image],
                     *(["--", *script.args] if script.args else []))
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout + done.stderr


def by_hand(lab: Lab, folder: Path, script: UserScript, backend: str, processes: int, name: str) -> str:
    """Run one as a user does who starts torchrun alone: only the address of the first pod is the back-end's."""
    job = {"name": name, "namespace": NAMESPACE, "backend": backend, "workers": 1, "processes_per_node": processes,
           "image": script_corpus.IMAGES[script.image], "command": [
               "torchrun", "--nnodes=2", f"--nproc-per-node={processes}", f"--rdzv-backend={script.rendezvous}",
               f"--rdzv-endpoint=$({BACKENDS[backend].wiring.addr}):29400", f"--rdzv-id={name}",
               f"{script_corpus.PLACE}/{script.file}"]}
    return submitted(lab, folder, job)


def submitted(lab: Lab, folder: Path, job: Json) -> str:
    """Submit a job's file and wait for its success; what its ranks printed."""
    name = job["name"]
    (folder / "job.yml").write_text(yaml.safe_dump({"training_job": job}))
    done = gangplank(folder, "submit", "job.yml")
    assert done.returncode == 0, done.stderr
    kube = Kube(f"{STATE}/admin.kubeconfig")
    live: Json = lab.wait("the job has ended", lambda: ended(kube, name), 300)
    logs = gangplank(folder, "logs", name)
    assert progress.phase(live).succeeded, logs.stdout
    return logs.stdout


def ended(kube: Kube, name: str) -> Json | None:
    """The job, once it has ended."""
    live = kube.find(NAMESPACE, name, list(submitted_kinds()))
    return live if live and progress.phase(live).ended else None


@pytest.mark.parametrize(("name", "backend", "processes"), CASES if FULL else SLICE)
def test_it_trains_unedited_and_is_claimed_as_the_table_says(
        site: Lab, request: pytest.FixtureRequest, tmp_path: Path, name: str, backend: str, processes: int) -> None:
    script, job = CORPUS[name], f"{name}-{uuid.uuid4().hex[:6]}"
    if script.image:
        request.getfixturevalue(script.image)
    followed = False
    try:
        if name == "pytorch-demo" and processes == 2:
            said = by_file(site, tmp_path, script, backend, processes, job)
        elif script.rendezvous:
            said = by_hand(site, tmp_path, script, backend, processes, job)
        else:
            said, followed = carried(tmp_path, script, backend, processes, job), True
        proof = gangplank(tmp_path, "proof", job).stdout
        assert f"\n{script.verdict}: " in proof, proof + said
        claims = {line[8:].partition(":")[0]: line for line in proof.splitlines()[:-1]}
        unclaimed = {claim for claim, line in claims.items() if line.startswith("skipped")}
        if backend == "volcano" and "pods of the job are gone" in claims["pods are the job's"]:
            unclaimed.remove("pods are the job's")  # it removes its workers; a run that watched them has this claim
            assert not followed or f"{script.verdict}: " in said, said
        assert unclaimed == script_corpus.NEVER_CLAIMED | {*script.not_claimed}, proof
        assert script.why in "".join(claims[claim] for claim in script.not_claimed), proof
        assert f"0 to {2 * processes - 1}, each once, in 2 pods" in claims["every rank took part"], proof
    finally:
        gangplank(tmp_path, "delete", job)
