"""A model sharded over all ranks with fully_shard (FSDP2): each layer is a unit of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))
torch.manual_seed(3)
model = nn.Sequential(*(nn.Sequential(nn.Linear(24, 24), nn.GELU()) for _ in range(3)), nn.Linear(24, 1))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(100 + rank)
for step in range(10):
    inputs = torch.randn(32, 24, generator=data)
    loss = nn.functional.mse_loss(model(inputs), inputs.mean(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step}: loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
