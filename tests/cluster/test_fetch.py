"""gangplank fetch on the live lab, by a member of a team: whole files, also after a SIGKILL, and clear refusals."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from gangplank.cluster.landing import PARTS, RECORD
from tests.cluster.conftest import ROOT
from tests.support.teams_live import gangplank, team_of, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gangplank.cluster.client import Kube

TEAM, NAME = "fetch", "leaves"
SIZE = {"cpu": {"request": "100m", "limit": "500m"}, "memory": {"request": "256Mi", "limit": "512Mi"}}
PODS = f"/api/v1/namespaces/{TEAM}/pods"
LEAVES = """
import hashlib
import os
import random
import shutil
import sys
from pathlib import Path

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    folder = Path(sys.argv[sys.argv.index("--output") + 1])
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "a/b").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(random.Random(1).randbytes(40 * 2**20 + 5))
    (folder / "a/b/$(HOME) $$.txt").write_text("odd")
    (folder / "empty").touch()
    (folder / "latest").symlink_to("a/b")
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "latest" not in path.parts:
            name = str(path.relative_to(folder))
            print("leaves", hashlib.sha256(path.read_bytes()).hexdigest(), name, flush=True)
dist.barrier()
"""


@pytest.fixture(scope="module")
def member(kubeconfig: str, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """The kubeconfig of a member of the team, which exists as long as this module runs."""
    members = [{"user": "bob", "role": "trainer"}, {"user": "eve", "role": "viewer"}]
    cap = {"cpu": "1", "memory": "2Gi", "ephemeral_storage": "20Gi"}
    fields = {"members": members, "cap": cap, "claims": [{"name": "data", "size": "1Gi"}]}
    with team_of(TEAM, fields, kubeconfig, kube, tmp_path_factory.mktemp("team")) as config:
        try:
            yield config
        finally:
            gangplank("delete", NAME, "-n", TEAM, kubeconfig=kubeconfig)


@pytest.fixture(scope="module")
def hashes(member: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that a member's job has left, with their hashes as its rank 0 prints them."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "leaves.py").write_text(LEAVES)
    job = {
        "name": NAME, "team": TEAM, "image": "gangplank.dev/trainer:0.1.0", "script": str(folder / "leaves.py"),
        "workers": 1, "max_retries": 0, "resources": SIZE, "output": "/data/out",
        "volumes": [{"claim": "data", "mount": "/data", "on": "master"}],
    }  # fmt: skip
    job["script"] = os.path.relpath(folder / "leaves.py", ROOT)
    (folder / "job.yml").write_text(yaml.safe_dump({"training_job": job}))
    config = member("bob")
    done = gangplank("submit", str(folder / "job.yml"), kubeconfig=config)
    assert done.returncode == 0, done.stderr
    ended = ("Completed", "Failed", "Aborted", "Terminated")
    until(lambda: gangplank("status", NAME, "-n", TEAM, kubeconfig=config).stdout.split("\n")[0].endswith(ended),
          "the job has ended", 600)
    assert "Completed" in gangplank("status", NAME, "-n", TEAM, kubeconfig=config).stdout
    log = gangplank("logs", NAME, "-n", TEAM, "--rank", "0", kubeconfig=config).stdout
    return {name: sha256 for sha256, name in re.findall(r"leaves (\w{64}) (.*)", log)}


def contents(folder: Path) -> dict[str, str]:
    """The files of a folder with their hashes."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*") if path.is_file() and PARTS not in path.parts}


def readers(kube: Kube) -> dict[str, str]:
    """The pods that read for this command, with their phases."""
    pods = kube.call("GET", PODS)["items"]
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods if "-fetch-" in pod["metadata"]["name"]}


def test_a_member_fetches_every_file_as_it_is_and_evidence(
        kube: Kube, member: Callable[[str], str], hashes: dict[str, str], tmp_path: Path) -> None:
    assert set(hashes) == {"weights.bin", "a/b/$(HOME) $$.txt", "empty"}
    here, words = tmp_path / "here", ("fetch", NAME, "-n", TEAM, "-o", str(tmp_path / "here"))
    done = gangplank(*words, kubeconfig=member("bob"))
    assert done.returncode == 0, done.stderr
    got = contents(here)
    assert got.pop("evidence.jsonl"), "a script that was observed has it in the logs of its ranks alone"
    assert got == hashes
    proof = gangplank("proof", "--file", str(here), kubeconfig=member("bob")).stdout
    assert "ok      every rank took part: 0 to 1, each once, in 2 pods" in proof, proof
    assert "left out, links to files of the output: latest" in done.stderr
    assert "leaves: fetches: " in done.stderr, "it says how far it is"
    assert not (here / "latest").exists()
    until(lambda: readers(kube) == {}, "its pods are removed")
    done = gangplank(*words, kubeconfig=member("bob"))
    assert (done.returncode, "0 of them fetched now" in done.stdout) == (0, True), "what is there is not sent again"
    (here / "weights.bin").write_text("mine")
    done = gangplank(*words, kubeconfig=member("bob"))
    assert (done.returncode, (here / "weights.bin").read_text()) == (1, "mine")
    assert "that changed since: weights.bin, expected none that it would replace. Fix: " in done.stderr
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "evidence.jsonl").write_text("mine")
    done = gangplank(*words[:-1], str(taken), kubeconfig=member("bob"))
    assert (done.returncode, (taken / "evidence.jsonl").read_text()) == (1, "mine")
    assert "evidence.jsonl: another one is here. Fix: " in done.stderr
    done = gangplank(*words[:-1], str(taken), "--replace", "evidence.jsonl", kubeconfig=member("bob"))
    assert (done.returncode, (taken / "evidence.jsonl").read_bytes()) == (0, (here / "evidence.jsonl").read_bytes())
    (path,) = (name for name in hashes if name.startswith("a/"))
    for select in ("a/b", path, "latest"):
        place = tmp_path / f"part-{len(select)}"
        done = gangplank("fetch", NAME, select, "-n", TEAM, "-o", str(place), kubeconfig=member("bob"))
        assert (done.returncode, contents(place)) == (0, {path: hashes[path]}), done.stderr


def test_a_fetch_that_is_killed_continues_and_its_pod_goes(
        kube: Kube, member: Callable[[str], str], hashes: dict[str, str], tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    command = [str(ROOT / ".venv/bin/gangplank"), "fetch", NAME, "-n", TEAM, "--kubeconfig", member("bob")]

    def killed(number: signal.Signals, folder: Path) -> bool:
        """End a command as soon as its first piece has arrived, of seven; whether it had not ended by itself."""
        if folder.exists():  # an attempt that ended by itself
            shutil.rmtree(folder)
        parts = folder / PARTS
        process = subprocess.Popen([*command, "-o", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 600
        while process.poll() is None and not sum(path.stat().st_size for path in parts.glob("*")):
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(number)
        process.communicate(timeout=60)
        return process.returncode != 0

    def kill(number: signal.Signals, folder: Path) -> None:
        """End a command before its end; on a busy machine the signal may come too late."""
        assert any(killed(number, folder) for _ in range(5)), "it was killed before its end"
        parts = folder / PARTS
        assert 0 < sum(path.stat().st_size for path in parts.glob("*")) < 40 * 2**20
        assert "weights.bin" not in contents(folder), "a part is not taken for the file"

    kill(signal.SIGKILL, here)
    until(lambda: set(readers(kube).values()) <= {"Succeeded"}, "the pod ends without its command")
    kill(signal.SIGTERM, there)
    until(lambda: readers(kube) == {}, "SIGTERM removes the command's pod, and its start removed the one before")
    for folder in (here, there):
        done = gangplank(*command[1:], "-o", str(folder), kubeconfig=member("bob"))
        assert done.returncode == 0, done.stderr
        assert {name: contents(folder)[name] for name in hashes} == hashes
        assert [path.name for path in (folder / PARTS).iterdir()] == [RECORD]


def test_what_cannot_be_fetched_is_said_in_one_message(
        kube: Kube, member: Callable[[str], str], hashes: dict[str, str], tmp_path: Path) -> None:
    def refused(*words: str, user: str = "bob") -> tuple[int, str]:
        done = gangplank("fetch", *words, "-n", TEAM, "-o", str(tmp_path / "here"), kubeconfig=member(user))
        return done.returncode, done.stderr.splitlines()[-1]

    assert hashes
    code, message = refused("nobody")
    assert "job nobody: got nothing in namespace fetch, expected a job of this name" in message
    assert code == 4
    code, message = refused(NAME, "b")
    assert "got no b, expected a file or a folder of the output" in message
    assert code == 1
    code, message = refused(NAME, "../..")
    assert "leads out of the output" in message
    assert code == 1
    code, message = refused(NAME, user="eve")
    assert 'cannot create resource "pods"' in message
    assert code == 4, "a viewer starts no pods"
    kube.call("DELETE", f"/api/v1/namespaces/{TEAM}/persistentvolumeclaims/data")
    gone = f"/api/v1/namespaces/{TEAM}/persistentvolumeclaims/data"
    for pod in kube.call("GET", PODS)["items"]:
        kube.delete({"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]})
    until(lambda: kube.get(gone) is None, "the claim is gone")
    code, message = refused(NAME)
    assert "claim fetch/data: got nothing, expected the claim of this job's output" in message
    assert code == 4
    assert contents(tmp_path / "here") == {}
