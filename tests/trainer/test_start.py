"""The image's entry point understands every back-end's wiring, and never trains alone by mistake."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gangplank.backends.wiring import RENDEZVOUS_S, launch
from gangplank.spec import Elastic, JobSpec, Script

if TYPE_CHECKING:
    from tests.trainer.harness import Root

START = Path(__file__).parents[2] / "trainer/start.py"
_spec = importlib.util.spec_from_file_location("trainer_start", START)
assert _spec is not None
assert _spec.loader is not None
start = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(start)

TRAIN, TORCHRUN = str(START.with_name("train.py")), str(START.with_name("torchrun.py"))
VOLCANO = {"MASTER_ADDR": "demo-master-0.demo", "MASTER_PORT": "23456", "WORLD_SIZE": "3", "RANK": "2"}
OPERATOR = {"MASTER_ADDR": "demo-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "6", "RANK": "1", "PET_NNODES": "3",
            "PET_MASTER_ADDR": "demo-master-0", "PET_MASTER_PORT": "23456", "PET_NODE_RANK": "1",
            "PET_NPROC_PER_NODE": "2"}
TRAINER = {"PET_NNODES": "3", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "demo-node-0-0.demo", "PET_MASTER_PORT": "29500",
           "PET_NPROC_PER_NODE": "auto"}


@pytest.mark.parametrize(("env", "where"), [
    (VOLCANO, ["--nnodes=3", "--node-rank=2", "--master-addr=demo-master-0.demo", "--master-port=23456",
               "--rdzv-conf=timeout=120", "--nproc-per-node=1"]),
    (OPERATOR, ["--nnodes=3", "--node-rank=1", "--master-addr=demo-master-0", "--master-port=23456",
                "--rdzv-conf=timeout=120", "--nproc-per-node=2"]),
    (TRAINER, ["--nnodes=3", "--node-rank=0", "--master-addr=demo-node-0-0.demo", "--master-port=29500",
               "--rdzv-conf=timeout=120", "--nproc-per-node=1"]),
], ids=["Volcano", "training operator", "Trainer v2"])
def test_the_vsphere_documents_args_work_under_every_back_end(env: dict[str, str], where: list[str]) -> None:
    assert start.command(env, ["--backend", "nccl"]) == [
        "python3", TORCHRUN, *where, TRAIN, "--backend", "nccl"]


def test_a_script_of_your_own() -> None:
    words = start.command(VOLCANO, ["/workspace/a.py", "--x"])
    assert (words[:3], words[-2:]) == (["python3", "-m", "torch.distributed.run"], ["/workspace/a.py", "--x"])


def test_one_pod_alone_has_to_be_asked_for() -> None:
    assert start.command({}, ["--standalone", "--epochs", "6"]) == [
        "python3", TORCHRUN, "--nnodes=1", "--node-rank=0", "--master-addr=127.0.0.1",
        "--master-port=29500", "--nproc-per-node=1", TRAIN, "--epochs", "6"]
    for env in ({}, {key: value for key, value in VOLCANO.items() if key != "RANK"}):
        with pytest.raises(start.StartError, match=r"no wiring in the environment \(.*RANK.* not set\)"):
            start.command(env, [])


def test_an_elastic_range_is_refused() -> None:
    with pytest.raises(start.StartError, match="elastic range"):
        start.command({**TRAINER, "PET_NNODES": "1:3"}, [])


def test_the_refusal_is_one_line_and_status_2() -> None:
    done = subprocess.run([sys.executable, str(START)], env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("start.py: no wiring in the environment (WORLD_SIZE, RANK, MASTER_ADDR, MASTER_PORT")


def test_waits_as_long_as_the_librarys_own_launch_line() -> None:
    assert start.RENDEZVOUS_S == RENDEZVOUS_S
    fixed = JobSpec("digits", "img", backend="volcano", script=Script("/a.py"))
    assert f"--rdzv-conf=timeout={RENDEZVOUS_S}" in launch(fixed)
    elastic = JobSpec("e", "img", script=Script("/a.py"), backend="pytorchjob", elastic=Elastic(1, 2))
    assert f"--rdzv-conf=join_timeout={RENDEZVOUS_S}" in launch(elastic)


@pytest.mark.parametrize("rank", [0, 1])
def test_torchrun_gives_up_when_the_other_node_never_comes(root: Root, rank: int) -> None:
    """The launch line of a job as Kubernetes would fill it in, with 3 s instead of 120."""
    spec = JobSpec("digits", "img", backend="volcano", script=Script("/opt/gangplank/trainer/train.py"), workers=1)
    values = {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(root.free_port())}
    line = [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], word) for word in launch(spec)]
    assert any(f"timeout={RENDEZVOUS_S}" in word for word in line)
    line = [word.replace(f"timeout={RENDEZVOUS_S}", "timeout=3") for word in line]
    done = subprocess.run(root.command(line), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert re.search(r"timed out|Timed out", done.stderr)
