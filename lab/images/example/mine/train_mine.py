"""A training of your own: logistic regression on scikit-learn's digits, each rank on its share of them."""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")  # rank, world size and the master's address come from the environment
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)

digits = load_digits()
x = torch.tensor(digits.data[rank::world_size], dtype=torch.float32) / 16  # (1797 / world size, 64), pixels in 0..1
y = torch.tensor(digits.target[rank::world_size])

model = DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(200):
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()  # averages the gradients over all ranks
    optimizer.step()

print(f"rank {rank} of {world_size}: {len(x)} digits, loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
