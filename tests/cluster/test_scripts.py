"""Anybody's script on the live lab: gangplank run follows its ranks, says where the result is, and exits as it does."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
import subprocess
import threading
import uuid
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS, code_pieces
from gangplank.backends.pod_template import JOB_LABEL
from tests.cluster.conftest import ROOT
from tests.support.sweeps import FULL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.conftest import Lab

NAMESPACE = "scripts"
EVERY = list(BACKENDS) if FULL else ["volcano"]
TRAIN = """
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[2]))
for step in range(4):
    if step == 2:
        print(f"rank {rank} of {size} waits with {sys.argv[1:]}", flush=True)
        while not Path("/tmp/go").exists():
            time.sleep(0.2)
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
print(f"rank {rank} of {size} has finished", flush=True)
dist.destroy_process_group()
"""
FAILS = """
import sys

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    print("the data set is empty", file=sys.stderr, flush=True)
    sys.exit(7)
dist.barrier()
"""
CRASHES = """
import sys
import time
from pathlib import Path

import torch.distributed as dist

dist.init_process_group("gloo")
tried = Path("/dev/shm/tried")
if dist.get_rank() == 1 and not tried.exists():
    tried.touch()
    print("the first attempt crashes", flush=True)
    sys.exit(7)
dist.barrier()
print("the second attempt trains", flush=True)
while not Path("/dev/shm/go").exists():
    time.sleep(0.2)
"""
CRASHES_ON_DEMAND = """
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("it trains", flush=True)
crash, go = False, False
while not go:
    wishes = torch.tensor([float(Path("/dev/shm", name).exists()) for name in ("crash", "go")])
    dist.all_reduce(wishes)
    crash, go = wishes.tolist()
    if crash and dist.get_rank() == 1:
        print("it crashes", flush=True)
        sys.exit(7)
    time.sleep(0.2)
"""
IMPORTS = """
import hashlib
from pathlib import Path

import torch.distributed as dist

import lib
from lib.answer import ANSWER

dist.init_process_group("gloo")
folder = Path(lib.__file__).parent
words = (folder / "deep/ü b.txt").read_text()
digest = hashlib.sha256((folder / "table.bin").read_bytes()).hexdigest()
print(f"{ANSWER} {words} {digest} of {dist.get_world_size()}", flush=True)
dist.barrier()
"""

REQUIRES = """
import hashlib
from pathlib import Path

import carried
import torch.distributed as dist

dist.init_process_group("gloo")
digest = hashlib.sha256(Path(__file__).with_name("table.bin").read_bytes()).hexdigest()
print(f"{carried.ANSWER} {digest} of {dist.get_world_size()}", flush=True)
dist.barrier()
"""
WHEEL = {
    "carried.py": b"ANSWER = 42\n",
    "carried-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n",
    "carried-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "carried-1.0.dist-info/RECORD": b"",
}

ALONE = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
print("it has trained", flush=True)
"""
HANGS = """
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    time.sleep(40)
dist.all_reduce(torch.ones(1))
"""
SAVES = """
import argparse
import hashlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--output", type=Path)
folder = parser.parse_args().output
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
if dist.get_rank() == 0:
    folder.mkdir(parents=True)
    torch.save(model.module.state_dict(), folder / "weights.pt")
    print("saved", hashlib.sha256((folder / "weights.pt").read_bytes()).hexdigest(), flush=True)
dist.barrier()
"""
READ_ONLY = """
from pathlib import Path

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    Path(__file__).with_name("model.pt").write_bytes(b"weights")
dist.barrier()
"""


@pytest.fixture(scope="module")
def namespace(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for scripts, for as long as this module runs; the kubeconfig of its cluster."""
    kubeconfig = request.getfixturevalue("full_kubeconfig" if FULL else "kubeconfig")
    lab.kubectl("create", "namespace", NAMESPACE)
    try:
        yield kubeconfig
    finally:
        lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def start(folder: Path, kubeconfig: str, *words: str) -> subprocess.Popen[str]:
    """The command, as a user of that folder runs it."""
    command = [str(ROOT / ".venv/bin/gangplank"), *words[:2], "-n", NAMESPACE, "--kubeconfig", kubeconfig, *words[2:]]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str], timeout_s: float = 300) -> tuple[int, str, str]:
    """Its exit status, and the rest of what it prints."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return process.returncode, out, err


def described(purpose: str, backend: str) -> dict[str, Any]:
    """A job of two ranks that run crashes.py, and that may start again."""
    return {"name": f"{purpose}-{uuid.uuid4().hex[:6]}", "namespace": NAMESPACE, "backend": backend, "workers": 1,
            "max_retries": 3, "image": "gangplank.dev/trainer:0.1.0", "script": "crashes.py",
            "shm_size": "16Mi"}  # fmt: skip


def pods_of(lab: Lab, job: dict[str, Any]) -> list[dict[str, Any]]:
    """A job's pods."""
    pods: list[dict[str, Any]] = lab.get("pods", "-n", NAMESPACE, "-l", f"{JOB_LABEL}={job['name']}")
    return pods


def touch(lab: Lab, pod: dict[str, Any], name: str) -> None:
    """Make a file that the script waits for."""
    lab.kubectl("exec", "-n", NAMESPACE, pod["metadata"]["name"], "--", "touch", f"/dev/shm/{name}")


def test_a_plain_script_is_followed_live_and_its_description_can_be_submitted(
        lab: Lab, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    name = f"train-{uuid.uuid4().hex[:6]}"
    words = ("--workers", "3", "--name", name, "--save", "job.yml", "--", "--lr", "0.1")
    process = start(tmp_path, namespace, "run", "train.py", *words)
    assert process.stdout
    watchdog = threading.Timer(300, process.kill)
    watchdog.start()
    waiting = set()
    for line in process.stdout:
        if match := re.match(r"\[rank (\d)\] rank (\d) of 4 waits with \['--lr', '0.1'\]", line):
            assert match[1] == match[2], "each line has the rank that printed it"
            waiting.add(match[1])
        if len(waiting) == 4:
            break
    assert waiting == set("0123"), "all ranks are shown while they train"
    assert process.poll() is None
    pods = lab.get("pods", "-n", NAMESPACE, "-l", f"{JOB_LABEL}={name}")
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    for pod in pods:
        lab.kubectl("exec", "-n", NAMESPACE, pod["metadata"]["name"], "--", "touch", "/tmp/go")
    code, out, err = end(process)
    watchdog.cancel()
    assert code == 0, err
    assert set(re.findall(r"^\[rank (\d)\] rank \1 of 4 has finished$", out, re.MULTILINE)) == set("0123")
    assert f"{name}: Completed" in err
    assert f"result: only in the logs, as the job has no --output; gangplank logs {name} -n {NAMESPACE}" in err

    # What was kept is the same job: it is submitted once that one is gone.
    assert "already exists" in end(start(tmp_path, namespace, "submit", "job.yml"))[2]
    assert end(start(tmp_path, namespace, "delete", name))[0] == 0
    lab.wait("the job is gone", lambda: "NotFound" in lab.kubectl("get", "vcjob", "-n", NAMESPACE, name, check=False))
    code, out, err = end(start(tmp_path, namespace, "submit", "job.yml"))
    assert (code, f"next: gangplank logs {name} -n {NAMESPACE} -f" in out) == (0, True), err
    (job,) = lab.get("vcjob", "-n", NAMESPACE)
    containers = [task["template"]["spec"]["containers"][0] for task in job["spec"]["tasks"]]
    assert [container["args"] for container in containers] == [["--lr", "0.1"]] * 2
    assert sum(task["replicas"] for task in job["spec"]["tasks"]) == 4
    assert end(start(tmp_path, namespace, "delete", "job.yml"))[0] == 0


@pytest.mark.parametrize(("backend", "processes"), [
    (backend, processes) for backend in BACKENDS for processes in (1, 2) if FULL or backend == "volcano"])
def test_a_rank_that_fails_is_named_with_its_last_lines_and_its_exit_code_is_the_command_s(
        namespace: str, tmp_path: Path, backend: str, processes: int) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    name = f"fails-{uuid.uuid4().hex[:6]}"
    words = ("--workers", str(4 // processes - 1), "--processes-per-node", str(processes), "--backend", backend)
    code, out, err = end(start(tmp_path, namespace, "run", "fails.py", *words, "--name", name))
    assert code == 7, err
    assert f"{name}: Failed" in err
    says = re.search(rf"rank 1 \(({name}-\S+)\) failed first \(exit code 7\); its last lines:\n", err)
    assert says, err
    if backend == "volcano":
        assert says[1] == f"{name}-{'worker' if processes == 1 else 'master'}-0"
    last = err[says.end():].partition("event ")[0].splitlines()
    assert last[-1] == "  the data set is empty", "the script's own last line, and nothing of torchrun's"
    if backend != "trainjob":  # how often it restarts, its runtime says
        assert out.count("the data set is empty") == 1, "it is not run again unless --max-retries asks"
    assert end(start(tmp_path, namespace, "delete", name))[0] == 0


@pytest.mark.parametrize("backend", BACKENDS if FULL else ["indexed", "volcano"])
def test_previous_logs_show_the_attempt_that_crashed_and_an_edit_meanwhile_changes_nothing(
        lab: Lab, namespace: str, tmp_path: Path, backend: str) -> None:
    (tmp_path / "crashes.py").write_text(CRASHES)
    job = described("crashes", backend)
    if backend == "volcano":
        job["volcano"] = {"restart_policy": "OnFailure"}  # in place, as the others do by default
    if backend == "trainjob":
        del job["max_retries"]  # its runtime's
    (tmp_path / "job.yml").write_text(yaml.safe_dump({"training_job": job}))
    code, _, err = end(start(tmp_path, namespace, "submit", "job.yml"))
    assert code == 0, err
    (tmp_path / "crashes.py").write_text("print('an edit, which no attempt runs')\n")

    def logs(*words: str) -> tuple[list[str], str]:
        _, out, err = end(start(tmp_path, namespace, "logs", job["name"], *words))
        err += out
        return [line for line in out.splitlines() if "the first attempt" in line or "the second attempt" in line], err

    lab.wait("both ranks train", lambda: len(logs()[0]) == 2, 240)
    assert sorted(logs()[0]) == [f"[rank {rank}] the second attempt trains" for rank in (0, 1)]
    lines, err = logs("--previous")
    assert "[rank 1, attempt 1] the first attempt crashes" in lines, err
    trains = [line for line in lines if "the second attempt trains" in line]
    assert [line.partition(",")[0] for line in trains] == ["[rank 0", "[rank 1"]
    assert not [line for line in trains if "attempt 1]" in line]
    assert "an edit" not in err
    assert "already exists" in end(start(tmp_path, namespace, "submit", "job.yml"))[2], "and would be another job"
    for pod in pods_of(lab, job):
        touch(lab, pod, "go")
    assert end(start(tmp_path, namespace, "delete", "job.yml"))[0] == 0


def test_previous_logs_of_a_gang_in_new_pods_say_that_those_of_the_crash_are_gone(
        lab: Lab, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "crashes.py").write_text(CRASHES_ON_DEMAND)
    job = described("replaced", "volcano")
    (tmp_path / "job.yml").write_text(yaml.safe_dump({"training_job": job}))
    code, _, err = end(start(tmp_path, namespace, "submit", "job.yml"))
    assert code == 0, err

    def logs(*words: str) -> tuple[list[str], str]:
        _, out, err = end(start(tmp_path, namespace, "logs", job["name"], *words))
        return [line for line in out.splitlines() if line.endswith(("] it trains", "] it crashes"))], err

    lab.wait("both ranks train", lambda: len(logs()[0]) == 2, 240)
    first = {pod["metadata"]["uid"] for pod in pods_of(lab, job)}
    lines, err = logs("--previous")
    assert lines == [f"[rank {rank}, attempt 1] it trains" for rank in (0, 1)]
    assert "removed by the cluster" not in err
    touch(lab, next(pod for pod in pods_of(lab, job) if "worker" in pod["metadata"]["name"]), "crash")
    lab.wait("both pods are new", lambda: len({pod["metadata"]["uid"] for pod in pods_of(lab, job)} - first) == 2, 240)
    lab.wait("both ranks train again", lambda: len(logs()[0]) == 2, 240)
    lines, err = logs("--previous")
    assert lines == [f"[rank {rank}, attempt 2] it trains" for rank in (0, 1)]
    assert "removed by the cluster, with their pods or containers: rank 0: attempt 1, rank 1: attempt 1" in err
    for pod in pods_of(lab, job):
        touch(lab, pod, "go")
    assert end(start(tmp_path, namespace, "delete", "job.yml"))[0] == 0


@pytest.mark.parametrize("backend", ["volcano", "indexed"])
def test_a_folder_of_code_lies_in_the_pods_as_it_lay_here(namespace: str, tmp_path: Path, backend: str) -> None:
    (tmp_path / "project/tools").mkdir(parents=True)
    (tmp_path / "project/lib/deep").mkdir(parents=True)
    (tmp_path / "project/tools/train.py").write_text(IMPORTS)
    (tmp_path / "project/lib/__init__.py").write_text("")
    (tmp_path / "project/lib/deep/ü b.txt").write_text("words")
    (tmp_path / "project/lib/table.bin").write_bytes(bytes(range(256)))
    (tmp_path / "project/lib/answer.py").write_text("ANSWER = 42\n")
    name = f"folder-{uuid.uuid4().hex[:6]}"
    words = ("project/tools/train.py", "--code", "project", "--workers", "1", "--backend", backend, "--name", name)
    code, out, err = end(start(tmp_path, namespace, "run", words[0], *words[1:]))
    assert code == 0, err
    digest = hashlib.sha256(bytes(range(256))).hexdigest()
    for rank in (0, 1):
        assert f"[rank {rank}] 42 words {digest} of 2" in out
    assert end(start(tmp_path, namespace, "delete", name))[0] == 0


def test_code_of_several_configmaps_brings_its_packages_and_is_sent_once(
        lab: Lab, namespace: str, tmp_path: Path) -> None:
    project, wheels = tmp_path / "project", tmp_path / "project/wheels"
    wheels.mkdir(parents=True)
    (project / "table.bin").write_bytes(bytes(range(256)) * 8192)  # 2 MiB
    (project / "train.py").write_text(REQUIRES)
    digest = hashlib.sha256(packed(wheels / "carried-1.0-py3-none-any.whl", WHEEL).read_bytes()).hexdigest()
    pip = Path(str(importlib.util.find_spec("pip").origin)).parent  # type: ignore[union-attr]  # requirements.in has it
    packed(wheels / "pip-1-py3-none-any.whl",
           {f"pip/{path.relative_to(pip)}": path.read_bytes() for path in pip.rglob("*.p[ye]*") if path.is_file()})
    (project / "requirements.txt").write_text(f"carried==1.0 --hash=sha256:{digest}\n")
    table = hashlib.sha256((project / "table.bin").read_bytes()).hexdigest()

    words = ("run", "project", "--requirements", "requirements.txt", "--workers", "1")

    def run(backend: str) -> tuple[str, str]:
        """What the command prints on a back-end."""
        name = f"pieces-{uuid.uuid4().hex[:6]}"
        code, out, err = end(start(tmp_path, namespace, *words, "--backend", backend, "--name", name))
        assert code == 0, err + out
        for rank in (0, 1):
            assert f"[rank {rank}] 42 {table} of 2" in out
        assert end(start(tmp_path, namespace, "delete", name))[0] == 0
        return out, err

    sent = [re.search(r"code: (\d+) of (\d+) pieces sent", run(backend)[1]) for backend in BACKENDS]
    assert all(sent)
    counts = [(match[1], match[2]) for match in sent if match]
    assert counts[0][0] == counts[0][1] != "0"
    assert {count for count, _ in counts[1:]} == {"0"}, counts
    (project / "requirements.txt").write_text(f"carried==1.0 --hash=sha256:{64 * '0'}\n")
    name = f"pieces-{uuid.uuid4().hex[:6]}"
    code, out, err = end(start(tmp_path, namespace, *words, "--name", name))
    assert code != 0
    assert "gangplank: code: got requirements.txt, which pip could not install (" in out + err
    assert end(start(tmp_path, namespace, "delete", name))[0] == 0
    maps = [item["metadata"]["name"] for item in lab.get("configmaps", "-n", NAMESPACE, "-l", code_pieces.LABEL)]
    assert len(maps) >= int(counts[0][1]), "they stay for the next edit"


def packed(place: Path, files: dict[str, bytes]) -> Path:
    """A wheel of these files."""
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return place


@pytest.mark.parametrize("backend", EVERY)
def test_a_script_that_never_joins_is_said_to_have_trained_alone(namespace: str, tmp_path: Path, backend: str) -> None:
    (tmp_path / "alone.py").write_text(ALONE)
    name = f"alone-{uuid.uuid4().hex[:6]}"
    words = ("alone.py", "--workers", "1", "--backend", backend, "--name", name)
    code, out, err = end(start(tmp_path, namespace, "run", *words))
    assert (code, out.count("it has trained")) == (0, 2), err
    assert "\nNOT DISTRIBUTED: " in err
    says = "rank 0, 1 never joined a process group (the script does not call init_process_group), so each trained alone"
    assert err.count(f"{says}. Fix: call torch.distributed.init_process_group") == 1, err
    assert end(start(tmp_path, namespace, "delete", name))[0] == 0


def test_a_script_that_uses_the_group_before_it_joins_is_told_what_to_call(namespace: str, tmp_path: Path) -> None:
    lines = ["import torch", "import torch.distributed", "torch.distributed.all_reduce(torch.ones(1))"]
    (tmp_path / "early.py").write_text("\n".join(lines))
    name = f"early-{uuid.uuid4().hex[:6]}"
    code, _, err = end(start(tmp_path, namespace, "run", "early.py", "--workers", "1", "--name", name))
    assert code == 1, err
    assert err.count("the script does not call init_process_group. Fix: call torch.distributed.init_process_group") == 1
    assert end(start(tmp_path, namespace, "delete", name))[0] == 0


@pytest.mark.parametrize("backend", EVERY)
def test_ranks_that_hang_in_a_collective_are_told_of_in_one_message(
        namespace: str, tmp_path: Path, backend: str) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    name = f"hangs-{uuid.uuid4().hex[:6]}"
    soon = "GANGPLANK_STUCK_S=8"  # two minutes are long for a test
    words = ("hangs.py", "--workers", "2", "--backend", backend, "--env", soon, "--name", name)
    code, out, err = end(start(tmp_path, namespace, "run", *words))
    assert code == 0, err
    messages = [line for line in err.splitlines() if "no step and no exchange for" in line]
    assert 0 < len(messages) <= 3, f"after 8 s, 16 s and 32 s, and not for each rank: {err}"
    waiting = "ranks 0, 2 are at hangs.py:10, in <module>: dist.all_reduce(torch.ones(1))"
    assert any(waiting in line and "rank 1 is at hangs.py:9, in <module>: time.sleep(40)" in line
               for line in messages), err
    assert "gangplank: rank" not in out, "not once more for each rank"
    assert end(start(tmp_path, namespace, "delete", name))[0] == 0


@pytest.mark.parametrize("backend", EVERY)
def test_a_script_that_writes_to_a_read_only_folder_is_told_where_to_write(
        namespace: str, tmp_path: Path, backend: str) -> None:
    (tmp_path / "writes.py").write_text(READ_ONLY)
    name = f"writes-{uuid.uuid4().hex[:6]}"
    words = ("writes.py", "--workers", "1", "--backend", backend, "--name", name)
    code, _, err = end(start(tmp_path, namespace, "run", *words))
    assert code == 1, err
    says = r"\): /opt/gangplank/script/model.pt is on a read-only file system. Fix: write below"
    assert len(re.findall(rf"rank 0 \({name}-\S+{says}", err)) == 1, err
    assert end(start(tmp_path, namespace, "delete", name))[0] == 0


def test_a_script_with_a_claim_is_run_proven_and_its_result_brought_here(
        lab: Lab, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "saves.py").write_text(SAVES)
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "results"},
             "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}
    (tmp_path / "claim.yml").write_text(yaml.safe_dump(claim))
    lab.kubectl("apply", "-n", NAMESPACE, "-f", str(tmp_path / "claim.yml"))
    name = f"saves-{uuid.uuid4().hex[:6]}"
    words = ("saves.py", "--workers", "1", "--volume", "results:/results:master", "--output", "/results/out")
    code, out, err = end(start(tmp_path, namespace, "run", *words, "--name", name))
    assert code == 0, err
    assert "\nPROVEN: " in err
    where = f"{name} -n {NAMESPACE}"
    assert f"result: in /results/out: gangplank fetch {where}; gangplank logs {where}; " in err
    assert end(start(tmp_path, namespace, "fetch", name))[0] == 0
    digest = hashlib.sha256((tmp_path / name / "weights.pt").read_bytes()).hexdigest()
    assert f"[rank 0] saved {digest}" in out
    code, out, err = end(start(tmp_path, namespace, "delete", name))
    assert code == 0, err


def both_succeeded(lab: Lab, name: str) -> bool:
    return bool(lab.get("job", name, "-n", NAMESPACE)["status"]["succeeded"] == 2)


def test_a_script_computes_the_same_to_the_last_bit_whether_it_is_observed_or_not(
        lab: Lab, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text((ROOT / "tests/trainer/inside/own.py").read_text())
    printed = []
    for observe in (True, False):
        name = f"own-{uuid.uuid4().hex[:6]}"
        job = {"name": name, "namespace": NAMESPACE, "image": "gangplank.dev/trainer:0.1.0", "script": "own.py",
               "args": ["ddp"], "backend": "indexed", "workers": 1, "observe": observe}
        (tmp_path / "job.yml").write_text(yaml.safe_dump({"training_job": job}))
        assert end(start(tmp_path, namespace, "submit", "job.yml"))[0] == 0
        lab.wait("it has trained", functools.partial(both_succeeded, lab, name), 300)
        out = end(start(tmp_path, namespace, "logs", name))[1]
        printed.append(sorted(line for line in out.splitlines() if "] losses " in line or "] weights " in line))
        assert (end(start(tmp_path, namespace, "proof", name))[0] == 0) == observe, "without it there is no evidence"
        assert end(start(tmp_path, namespace, "delete", name))[0] == 0
    assert len(printed[0]) == 4, printed
    assert printed[0] == printed[1]
