"""Where this process stands among the others: read, checked, joined.

torchrun gives RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT one meaning under every back-end (processes,
not pods); so a process that torchrun did not start is refused instead of trusted or trained alone.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


PATIENT_S = 3600  # for the slowest rank to get its files, and for rank 0 to read and write on a slow volume


class WiringError(RuntimeError):
    """The wiring is missing or wrong: what, and the fix, in one line."""


@dataclass(frozen=True)
class Wiring:
    """One process among `world_size`; the last six say where it runs; None is unknown."""

    rank: int
    local_rank: int
    world_size: int
    master_addr: str
    master_port: int
    restart: int
    host: str
    pod: str
    node: str
    pod_uid: str | None
    job_uid: str | None
    visible_devices: str | None


def launch_command(env: Mapping[str, str]) -> str:
    """The torchrun line for what the environment already holds about the job."""
    if env.get("MASTER_ADDR") and env.get("RANK") and env.get("WORLD_SIZE"):
        where = "--nnodes=$WORLD_SIZE --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"
    elif env.get("PET_MASTER_ADDR"):
        where = "(it reads PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT by itself)"
    else:
        where = "--standalone"
    return f"torchrun {where} --nproc-per-node=1 train.py ..."


def _integer(env: Mapping[str, str], name: str, low: int, high: int) -> int:
    text = env[name]
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise WiringError(f"{name}: got {text!r}, expected an integer from {low} to {high}. "
                          "Fix: check the launcher's --nnodes, --node-rank and --master-port")
    return int(text)


def read_wiring(env: Mapping[str, str]) -> Wiring:
    """Read this process's place; raises WiringError with the fix."""
    if "TORCHELASTIC_RUN_ID" not in env:
        raise WiringError("not started by torchrun, so this process cannot know its place. "
                          f"Fix: use `{launch_command(env)}`")
    missing = [n for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if not env.get(n)]
    if missing:
        raise WiringError(f"{', '.join(missing)} not set although torchrun sets them: something removed them. "
                          "Fix: start train.py directly under torchrun")
    world_size = _integer(env, "WORLD_SIZE", 1, 1_000_000)
    rank = _integer(env, "RANK", 0, 1_000_000)
    if rank >= world_size:
        raise WiringError(f"RANK {rank} does not exist in a world of {world_size} (0 to {world_size - 1}). "
                          "Fix: set --nnodes to the number of pods and --node-rank to less than it")
    host = socket.gethostname()
    return Wiring(
        rank=rank,
        local_rank=_integer(env, "LOCAL_RANK", 0, world_size - 1),
        world_size=world_size,
        master_addr=env["MASTER_ADDR"],
        master_port=_integer(env, "MASTER_PORT", 1, 65535),
        restart=_integer(env, "TORCHELASTIC_RESTART_COUNT", 0, 1_000_000) if "TORCHELASTIC_RESTART_COUNT" in env else 0,
        host=host,
        pod=env.get("GANGPLANK_POD") or host,
        node=env.get("GANGPLANK_NODE") or host,
        pod_uid=env.get("GANGPLANK_POD_UID") or None,
        job_uid=env.get("GANGPLANK_JOB_UID") or None,
        visible_devices=env.get("NVIDIA_VISIBLE_DEVICES") or None,  # what a device plugin gave the pod
    )


def _await_all(store: dist.Store, wiring: Wiring, timeout: timedelta) -> None:
    """Return when every rank has joined; the error names those that have not."""
    try:
        store.wait([f"joined/{rank}" for rank in range(wiring.world_size)], timeout)
    except RuntimeError as error:
        absent = [str(rank) for rank in range(wiring.world_size) if not store.check([f"joined/{rank}"])]
        raise RuntimeError(f"rank {', '.join(absent)} did not join") from error


def choose_device(wiring: Wiring, backend: str, on_gpu: bool) -> torch.device:
    """The CPU, or this process's GPU: those of a pod are dealt out by local rank; only gloo's ranks may share one."""
    if not on_gpu:
        return torch.device("cpu")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not gpus:
        raise WiringError(f"{'--backend nccl' if backend == 'nccl' else '--device cuda'} needs a GPU and this process "
                          "sees none. Fix: request one (nvidia.com/gpu), or use --backend gloo on the CPU")
    if backend == "nccl" and wiring.local_rank >= gpus:
        raise WiringError(f"--backend nccl needs a GPU for each rank: got {gpus} in this pod, expected at least "
                          f"{wiring.local_rank + 1}. Fix: request as many GPUs as processes, or share one with "
                          "--backend gloo --device cuda")
    device = torch.device("cuda", wiring.local_rank % gpus)
    torch.cuda.set_device(device)
    return device


def join(wiring: Wiring, backend: str, rendezvous_timeout: int, collective_timeout: int) -> None:
    """Meet the other ranks and form the process group, both within their time-outs (seconds)."""
    try:
        # The torchrun of node 0 serves the store, every rank is its client (Debian's torch is built without libuv). For
        # an elastic job torchrun says that it does not: then rank 0 serves one, a new one each time they meet.
        shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "False"
        store: dist.Store = dist.TCPStore(
            wiring.master_addr, wiring.master_port, is_master=not shared and wiring.rank == 0, wait_for_workers=False,
            timeout=timedelta(seconds=rendezvous_timeout), use_libuv=os.environ.get("USE_LIBUV", "0") == "1")
        # A restarted rank must not read the keys that its predecessor left in a store that is still alive. Nodes of an
        # elastic job count restarts each for itself: https://github.com/pytorch/pytorch/issues/135712
        store = dist.PrefixStore(f"gangplank/{wiring.restart if shared else 0}", store)
        if store.add(f"joined/{wiring.rank}", 1) > 1:
            raise WiringError(f"rank {wiring.rank} has already joined this rendezvous: either two processes were given "
                              "the same rank (two masters?), or this one restarted while the others kept running. "
                              "Fix: restart all ranks together")
        _await_all(store, wiring, timedelta(seconds=rendezvous_timeout))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if backend == "nccl" else "gloo",  # bytes and counts always travel by gloo
            store=store, rank=wiring.rank, world_size=wiring.world_size, timeout=timedelta(seconds=collective_timeout))
    except (dist.DistError, RuntimeError, ValueError) as error:
        if isinstance(error, WiringError):
            raise
        raise WiringError(f"rank {wiring.rank} of {wiring.world_size} could not meet the others at "
                          f"{wiring.master_addr}:{wiring.master_port} within {rendezvous_timeout} s: are all pods "
                          f"running, and is that address the master's? ({str(error).splitlines()[0]})") from error


def patient_group(collective_timeout: int) -> dist.ProcessGroup:
    """All ranks, which wait long for each other there; a rank that ends still ends the others' wait at once.

    They meet within `collective_timeout` (seconds): a rank that is lost before is not seen to end, and torch's own
    default is half an hour.
    """
    group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=timedelta(seconds=collective_timeout))
    c10d = dist.distributed_c10d
    set_timeout = getattr(c10d, "set_timeout", None) or c10d._set_pg_timeout  # as it was called before torch 2.14
    set_timeout(timedelta(seconds=PATIENT_S), group)
    return group


def prepare_together(prepare: Callable[[], None], collective_timeout: int) -> None:
    """Prepare this rank and return when all are prepared."""
    group = patient_group(collective_timeout)
    prepare()
    dist.barrier(group)
