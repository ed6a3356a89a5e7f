#!/usr/bin/env python3
"""Train a small network with DistributedDataParallel; every rank says what it does, one JSON object a line.

    torchrun --standalone --nproc-per-node=2 train.py --epochs 3 --output out
    torchrun --nnodes=3 --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT \\
        --nproc-per-node=1 train.py --epochs 3 --batch-size 64 --output out

Exit status: 0 trained, 1 stopped by an error of the run, 2 refused (flags, wiring, data).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from config import Config, ConfigError, parse_args
from data import Data, DataError, load, shard
from launch import Wiring, WiringError, join, read_wiring
from log import say
from model import Net, Trainee, learning_rate, make_optimizer


class NotFinite(RuntimeError):
    """The mean loss of a step is not a number; every rank sees the same and stops."""


def evaluate(net: Net, data: Data, config: Config, wiring: Wiring, device: torch.device) -> tuple[float, float]:
    """(mean loss, accuracy) on the whole held-out split; each rank takes every world_size-th sample, none twice."""
    net.eval()
    mine = torch.arange(wiring.rank, len(data.test_y), wiring.world_size)
    sums = torch.zeros(2, dtype=torch.float64)  # loss, correct
    with torch.no_grad(), autocast(config, device):
        for ids in mine.split(config.test_batch_size):
            scores = net(data.test_x[ids].to(device)).float()
            y = data.test_y[ids].to(device)
            sums += torch.stack([cross_entropy(scores, y, reduction="sum"), (scores.argmax(1) == y).sum()]).cpu()
    net.train()
    dist.all_reduce(sums)
    loss, correct = (sums / len(data.test_y)).tolist()
    return loss, correct


def autocast(config: Config, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """The arithmetic of forward passes."""
    if config.precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)  # type: ignore[no-any-return,unused-ignore]
    return contextlib.nullcontext()


def train(config: Config, wiring: Wiring) -> None:
    """One run from joining the others to the written result."""
    began = time.monotonic()
    device = torch.device("cuda", wiring.local_rank) if config.backend == "nccl" else torch.device("cpu")
    say("start", rank=wiring.rank, world_size=wiring.world_size, host=wiring.host, pod=wiring.pod, node=wiring.node,
        job_uid=wiring.job_uid, pod_uid=wiring.pod_uid)

    data = load(config.data, config.seed, config.train_samples)
    samples = len(data.train_y)
    torch.manual_seed(config.seed)
    net = Net(config.model, data.classes, config.dropout).to(device)
    ddp = DistributedDataParallel(Trainee(net), device_ids=[wiring.local_rank] if config.backend == "nccl" else None,
                                  gradient_as_bucket_view=True)
    optimizer = make_optimizer(config, net)
    torch.manual_seed(config.seed + wiring.rank)  # dropout differs between ranks

    per_step = config.batch_size * config.accumulate  # samples of one rank in one optimizer step
    steps_per_epoch = -(-len(shard(samples, config.seed, 0, 0, wiring.rank, wiring.world_size)) // per_step)
    steps_total = steps_per_epoch * config.epochs
    step = seen = 0
    accuracies: list[float] = []
    loss = accuracy = float("nan")

    for epoch in range(config.epochs):
        ids = shard(samples, config.seed, epoch, 0, wiring.rank, wiring.world_size)
        loss_sum = 0.0
        for batch in ids.split(per_step):
            done = epoch + (step % steps_per_epoch + 0.5) / steps_per_epoch
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, done)
            optimizer.zero_grad()
            ddp.module.passengers.grad = None
            own_loss = torch.zeros((), device=device)
            micro_batches = batch.split(config.batch_size)
            for number, micro in enumerate(micro_batches, start=1):
                last = number == len(micro_batches)
                with contextlib.nullcontext() if last else ddp.no_sync(), autocast(config, device):
                    part = ddp(data.train_x[micro].to(device), data.train_y[micro].to(device), len(batch), False)
                    part.backward()
                own_loss += part.detach()
            mean_loss, _ = ddp.module.passengers.grad.tolist()  # a CPU-GPU sync point
            if mean_loss != mean_loss or abs(mean_loss) == float("inf"):
                raise NotFinite(f"loss {mean_loss} at step {step + 1}: lower --learning-rate or add --warmup-epochs")
            optimizer.step()
            step += 1
            seen += len(batch)
            loss_sum += own_loss.item() * len(batch)
            if config.log_interval and step % config.log_interval == 0:
                say("step", rank=wiring.rank, epoch=epoch + 1, step=step, steps_total=steps_total,
                    loss=own_loss.item(), mean_loss=mean_loss)
        loss = loss_sum / len(ids)
        _, accuracy = evaluate(net, data, config, wiring, device)
        accuracies.append(accuracy)
        say("epoch", rank=wiring.rank, epoch=epoch + 1, epochs=config.epochs, steps=steps_per_epoch, samples=len(ids),
            loss=loss, accuracy=accuracy)

    say("end", rank=wiring.rank, world_size=wiring.world_size, steps=step, samples=seen, loss=loss, accuracy=accuracy,
        seconds=round(time.monotonic() - began, 3))
    rows = gather_rows({"rank": wiring.rank, "pod": wiring.pod, "node": wiring.node, "world_size": wiring.world_size,
                        "steps": step, "samples": seen, "loss": loss, "accuracy": accuracy}, wiring)
    if wiring.rank == 0 and config.output:
        write_results(Path(config.output), config, net, {
            "epoch_accuracies": accuracies, "accuracy": accuracy, "loss": loss, "world_size": wiring.world_size,
            "model_state": "model.safetensors", "ranks": rows})
    dist.barrier()


def gather_rows(row: dict[str, object], wiring: Wiring) -> list[dict[str, object]]:
    """Every rank's row, in rank order, on rank 0 (elsewhere empty); they travel as bytes of JSON."""
    raw = torch.frombuffer(bytearray(json.dumps(row).encode()), dtype=torch.uint8)
    sizes = torch.zeros(wiring.world_size, dtype=torch.int64)
    sizes[wiring.rank] = len(raw)
    dist.all_reduce(sizes)
    padded = torch.zeros(int(sizes.max()), dtype=torch.uint8)
    padded[: len(raw)] = raw
    parts = [torch.empty_like(padded) for _ in range(wiring.world_size)] if wiring.rank == 0 else None
    dist.gather(padded, parts)
    return [json.loads(bytes(p[:n].tolist())) for p, n in zip(parts or [], sizes.tolist())]


def write_results(folder: Path, config: Config, net: Net, result: dict[str, object]) -> None:
    """config.json, result.json and model.safetensors."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config.as_json(), indent=2) + "\n")
    save_file({k: v.detach().cpu().contiguous() for k, v in net.state_dict().items()}, folder / "model.safetensors")
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")


def main(argv: list[str]) -> int:
    """Read, refuse or run."""
    try:
        config = parse_args(argv)
        wiring = read_wiring(os.environ)
        torch.set_num_threads(config.threads)
        join(wiring, config.backend, config.rendezvous_timeout, config.collective_timeout)
        train(config, wiring)
    except (ConfigError, WiringError, DataError) as error:
        print(f"train.py: {error}", file=sys.stderr, flush=True)
        return 2
    except NotFinite as error:
        print(f"train.py: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
