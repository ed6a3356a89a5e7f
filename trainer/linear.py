#!/usr/bin/env python3
"""A line through 100 noisy points, learned by all ranks together: the smallest job that shows the wiring.

The job of a widely used study of Volcano's pytorch plugin, in our words: y = 2x plus noise, DistributedSampler, DDP
on gloo, 5 epochs, batches of 10. It prints the wiring it was given, rank 0 the mean loss per epoch and the final
parameters. One file without siblings, so that a ConfigMap can carry it; runs under torchrun, and directly where RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS, POINTS, BATCH_SIZE, LEARNING_RATE = 5, 100, 10, 0.01
NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def report(text: str) -> None:
    """Print at once: a pod's log is read while it runs."""
    print(text, flush=True)


def points() -> TensorDataset:
    """X and 2x + noise, the same 100 on every rank: the sampler deals out ids, so all must mean the same points."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(POINTS, 1, generator=generator)
    return TensorDataset(x, 2 * x + 0.1 * torch.randn(POINTS, 1, generator=generator))


def train(rank: int, world_size: int) -> None:
    """Five epochs; every rank ends with the same line."""
    data = points()
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    loader = DataLoader(data, batch_size=BATCH_SIZE, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    report(f"[Rank {rank}] training starts: {EPOCHS} epochs")
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # another shuffle each epoch, the same one on every rank
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            report(f"Epoch [{epoch + 1}/{EPOCHS}], Average Loss: {total / len(loader):.4f}")
    report(f"[Rank {rank}] training finished")
    if rank == 0:
        report("Final parameters:")
        for name, value in model.module.named_parameters():
            report(f"  {name}: {value.data}")


def main() -> int:
    """Join the others, train, leave."""
    missing = [name for name in NAMES if not os.environ.get(name)]
    if missing:
        print(f"linear.py: {', '.join(missing)} not set. Fix: run "
              "`torchrun --standalone --nproc-per-node=3 linear.py`, "
              "or a job whose back-end sets them", file=sys.stderr)
        return 2
    os.environ.setdefault("USE_LIBUV", "0")  # Debian's torch is built without libuv
    torch.set_num_threads(1)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    report("Distributed PyTorch: linear regression")
    report(f"[Init] RANK={rank}, WORLD_SIZE={world_size}")
    report(f"[Init] MASTER_ADDR={os.environ['MASTER_ADDR']}")
    report(f"[Init] MASTER_PORT={os.environ['MASTER_PORT']}")
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    report("[Init] process group ready")
    train(rank, world_size)
    dist.destroy_process_group()
    report(f"[Rank {rank}] process group destroyed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
