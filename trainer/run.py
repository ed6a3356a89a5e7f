"""What a run knows and saves: where it stands, and how that goes into a checkpoint and comes back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from checkpoint import Checkpoint, CheckpointError, VolumeError, find
from evidence import Evidence, canonical, parameter_sample, read_lines
from exchange import broadcast_bytes
from log import say

if TYPE_CHECKING:
    from config import Config
    from data import Data
    from launch import Wiring
    from torch import nn
    from torch.distributed import ProcessGroup

# These flags do not change what is computed. All others must be equal for an automatic resume.
INDIFFERENT = {"output", "dir", "resume", "log_interval", "checkpoint_interval", "keep_checkpoints", "threads",
               "test_batch_size", "rendezvous_timeout", "collective_timeout"}
# These can never change: the weights, or what has been seen of the data, would mean something else.
FIXED = {"dataset", "model", "optimizer", "seed"}


@dataclass
class Own:
    """One rank's own counters; losses are sums over samples."""

    steps: int = 0
    samples: int = 0
    epoch_steps: int = 0
    epoch_samples: int = 0
    epoch_exchanges: int = 0
    epoch_loss_sum: float = 0.0
    epoch_losses: list[list[float]] = field(default_factory=list)
    """[step, loss] every --log-interval steps of this epoch."""
    loss: float = 0.0
    """Mean training loss of the last finished epoch."""


@dataclass
class Progress:
    """Where the run stands: `position` samples of epoch `epoch` (from 0) have been dealt out to all ranks together."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    accuracies: list[float] = field(default_factory=list)
    own: Own = field(default_factory=Own)


def identity(config: Config, data: Data) -> dict[str, object]:
    """What two runs must share for one to continue from the other's checkpoint."""
    same = {key: value for key, value in config.as_json().items() if key not in INDIFFERENT}
    if config.schedule == "constant":
        del same["epochs"]  # the run so far does not depend on where it ends: more epochs may follow
    if config.on_gpu and config.backend == "gloo":
        same["backend"] = "gloo on cuda"  # the backend alone says the device of all others
    del same["device"], same["data"]  # of the data, `dataset` has the content; a bucket's are in a folder of each rank
    return {**same, "dataset": data.digest}


def device_id(device: torch.device) -> str:
    """What a rank trains on: cpu, or the GPU's UUID as nvidia-smi prints it."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else "cpu"


def facts(config: Config, data: Data, wiring: Wiring, device: torch.device) -> dict[str, object]:
    """What a chain of evidence begins with."""
    token = broadcast_bytes(os.urandom(8))
    return {"world_size": wiring.world_size, "host": wiring.host, "pod": wiring.pod, "node": wiring.node,
            "pod_uid": wiring.pod_uid, "job_uid": wiring.job_uid, "pid": os.getpid(), "attempt": token.hex(),
            "local_rank": wiring.local_rank, "master": f"{wiring.master_addr}:{wiring.master_port}",
            "device": device_id(device), "visible_devices": wiring.visible_devices,
            "epochs": config.epochs, "batch_size": config.batch_size, "accumulate": config.accumulate,
            "dataset": data.digest, "dataset_samples": len(data.train_y),
            "settings": hashlib.sha256(canonical(identity(config, data))).hexdigest()}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimizer's state under flat names."""
    return {f"optimizer.{index}.{key}": value for index, values in optimizer.state_dict()["state"].items()
            for key, value in values.items() if isinstance(value, torch.Tensor)}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """The reverse of `optimizer_tensors`; rates and momenta stay as the flags say."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """The rank's random state."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def as_text(states: dict[str, torch.Tensor]) -> dict[str, str]:
    """Random states for `random_tensors`, on another rank."""
    return {kind: state.numpy().tobytes().hex() for kind, state in states.items()}


def random_tensors(states: list[dict[str, str]]) -> dict[str, torch.Tensor]:
    """All ranks' random states: random.<kind> [ranks, bytes]."""
    return {f"random.{kind}": torch.stack([torch.frombuffer(bytearray.fromhex(s[kind]), dtype=torch.uint8)
                                           for s in states]) for kind in states[0]}


def restore_random(tensors: dict[str, torch.Tensor], rank: int, device: torch.device) -> None:
    """Continue with this rank's random state (a copy: torch 2.14 crashes on a row of a larger tensor)."""
    torch.set_rng_state(tensors["random.cpu"][rank].clone())
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"][rank].clone(), device)


def agree_on_checkpoint(config: Config, data: Data, wiring: Wiring, patient: ProcessGroup | None) -> Checkpoint | None:
    """Rank 0 looks for a checkpoint and gives it to all: the others need not reach the volume, which may be slow."""
    checkpoint, error, lost = None, "", ""
    if wiring.rank == 0 and config.output:
        settings = identity(config, data)
        try:
            checkpoint = find(Path(config.output) / "checkpoints", config.resume, wiring.job_uid, settings,
                              frozenset(settings) - FIXED)
        except CheckpointError as problem:
            error = str(problem)
        except OSError as problem:
            where = problem.filename or config.output
            lost = (f"{where} cannot be read ({problem.strerror}); the checkpoints are kept. "
                    "Fix: check the volume, or remove what cannot be read, and start again")
    name, meta = (checkpoint.name, checkpoint.meta) if checkpoint else ("", {})
    sent = {"error": error, "lost": lost, "name": name, "meta": meta}
    header = json.loads(broadcast_bytes(json.dumps(sent).encode(), patient))
    if header["lost"]:
        raise VolumeError(header["lost"])
    if header["error"]:
        raise CheckpointError(header["error"])
    if not header["name"]:
        return None
    return Checkpoint(header["name"], broadcast_bytes(checkpoint.state if checkpoint else b""), header["meta"],
                      broadcast_bytes(checkpoint.evidence if checkpoint else b""))


def begin(config: Config, data: Data, wiring: Wiring, net: nn.Module, optimizer: torch.optim.Optimizer,
          device: torch.device, patient: ProcessGroup | None) -> tuple[Progress, Evidence]:
    """Start at the beginning, or at the newest good checkpoint."""
    begin_facts = facts(config, data, wiring, device)
    checkpoint = agree_on_checkpoint(config, data, wiring, patient)
    # Dropout differs between ranks; also between ranks that join later and those before them.
    torch.manual_seed(config.seed + 1 + wiring.rank)
    if checkpoint is None:
        return Progress(), Evidence(wiring.rank, {**begin_facts, "parameters": parameter_sample(net)})
    meta, tensors = checkpoint.meta, checkpoint.tensors()
    step, epoch, position, before = (int(str(meta[key])) for key in ("step", "epoch", "position", "world_size"))
    net.load_state_dict({name.removeprefix("model."): value for name, value in tensors.items()
                         if name.startswith("model.")})
    restore_optimizer(optimizer, tensors)
    own = Own()
    if wiring.rank < before:
        restore_random(tensors, wiring.rank, device)
        own = Own(**meta["ranks"][wiring.rank])  # type: ignore[index]  # checksummed, and of our format
    progress = Progress(step, epoch, position, list(meta["accuracies"]), own)  # type: ignore[call-overload]  # as above
    chains = read_lines(checkpoint.evidence)
    heads = {str(rank): records[-1]["hash"] for rank, records in chains.items()}
    say("resume", rank=wiring.rank, checkpoint=checkpoint.name, step=step, epoch=epoch + 1, position=position,
        world_size_before=before)
    resumed = {"step": step, "epoch": epoch + 1, "position": position, "world_size": before, "heads": heads}
    return progress, Evidence(wiring.rank, {**begin_facts, "parameters": parameter_sample(net)}, chains, resumed)


def snapshot(progress: Progress) -> Progress:
    """A copy that stays as it is while the run continues."""
    own = dataclasses.replace(progress.own, epoch_losses=list(progress.own.epoch_losses))
    return dataclasses.replace(progress, accuracies=list(progress.accuracies), own=own)


def checkpoint_tensors(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint that rank 0 has itself."""
    weights = {f"model.{name}": value for name, value in net.state_dict().items()}
    return {**weights, **optimizer_tensors(optimizer)}


def checkpoint_meta(config: Config, data: Data, wiring: Wiring, progress: Progress) -> dict[str, object]:
    """What a checkpoint holds besides tensors and the ranks' own counters."""
    return {"step": progress.step, "epoch": progress.epoch, "position": progress.position,
            "accuracies": progress.accuracies, "world_size": wiring.world_size, "job_uid": wiring.job_uid,
            "identity": identity(config, data),
            "schedule": {"name": config.schedule, "epochs": config.epochs, "warmup_epochs": config.warmup_epochs}}


def own_json(progress: Progress) -> dict[str, object]:
    """The rank's counters."""
    return dataclasses.asdict(progress.own)
