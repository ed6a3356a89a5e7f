"""DataLoader with worker processes: each rank forks two that prepare its batches."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Squares(Dataset):
    """Numbers and their squares; an item says which process made it."""

    def __len__(self):
        return 240

    def __getitem__(self, index):
        x = torch.tensor([index / 240])
        return x, x * x, os.getpid()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    numbers = Squares()
    sampler = DistributedSampler(numbers)
    loader = DataLoader(numbers, batch_size=12, sampler=sampler, num_workers=2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    makers = set()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets, processes in loader:
            makers.update(processes.tolist())
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert os.getpid() not in makers
    print(f"rank {dist.get_rank()}: {len(makers)} processes made its batches, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
