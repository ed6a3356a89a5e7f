"""Gradient accumulation: four small batches make one step, and only the last of them exchanges gradients."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, ACCUMULATE = 8, 4

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # each rank makes its own data; DDP gives all the weights of rank 0
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(STEPS):
    optimizer.zero_grad()
    for micro in range(ACCUMULATE):
        inputs = torch.randn(16, 8)
        targets = inputs.sum(dim=1, keepdim=True)
        last = micro == ACCUMULATE - 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = nn.functional.mse_loss(model(inputs), targets) / ACCUMULATE
            loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"step {step}: loss {ACCUMULATE * loss.item():.4f}")
dist.destroy_process_group()
