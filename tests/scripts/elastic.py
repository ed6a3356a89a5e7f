"""A script for torchrun's elastic rendezvous: it has its place from torchrun, and continues from a snapshot."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 12
SNAPSHOT = Path(os.environ.get("SNAPSHOT", "/tmp/snapshot.pt"))


def main():
    dist.init_process_group("gloo")
    run, restarts = os.environ["TORCHELASTIC_RUN_ID"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}, run {run}, restart {restarts}", flush=True)
    model = nn.Linear(6, 2)
    first = 0
    if SNAPSHOT.exists():
        snapshot = torch.load(SNAPSHOT)
        model.load_state_dict(snapshot["model"])
        first = snapshot["step"]
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(first, STEPS):
        torch.manual_seed(1000 * step + dist.get_rank())
        inputs = torch.randn(16, 6)
        loss = nn.functional.mse_loss(model(inputs), inputs[:, :2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if int(os.environ["LOCAL_RANK"]) == 0 and step % 4 == 3:
            torch.save({"model": model.module.state_dict(), "step": step + 1}, SNAPSHOT)
    print(f"rank {dist.get_rank()} has finished {STEPS} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
