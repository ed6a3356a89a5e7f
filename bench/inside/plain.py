"""The peer: DistributedDataParallel in the manner of pytorch/examples' mnist, as many people write it.

A Dataset with a transform per sample, a DataLoader, SGD, a test pass after each epoch. Network, data, split, seed and
batch sizes are the trainer's. The shape: https://github.com/pytorch/examples/blob/main/mnist/main.py

    plain.py EPOCHS BATCH_SIZE LEARNING_RATE MOMENTUM
"""

import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn import functional as F  # noqa: N812  # its usual name
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

sys.path.insert(0, "/opt/gangplank/trainer")
from data import digits
from model import Net


class Digits(Dataset[tuple[torch.Tensor, int]]):
    """Images as bytes, as image files give them; the transform makes each a normalised tensor."""

    def __init__(self, split: tuple[torch.Tensor, torch.Tensor]) -> None:
        x, y = split
        self.images = ((x + 0.3) * 16).round().to(torch.uint8).squeeze(1).numpy()  # [n, 8, 8], 0 to 16
        self.labels = y.tolist()

    def transform(self, image: np.ndarray) -> torch.Tensor:
        """ToTensor and Normalize."""
        tensor = torch.from_numpy(image).unsqueeze(0).contiguous().to(torch.float32).div(16)
        mean, std = torch.as_tensor([0.3]), torch.as_tensor([1.0])
        return tensor.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.images[index]), self.labels[index]


def train(model: nn.Module, loader: DataLoader, optimizer: optim.Optimizer, epoch: int) -> None:
    """One epoch."""
    model.train()
    for number, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"Train Epoch: {epoch} [{number}/{len(loader)}] Loss: {loss.item():.6f}", flush=True)


def test(model: nn.Module, loader: DataLoader) -> float:
    """Accuracy on the held-out split, which every rank reads whole."""
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            correct += model(data).argmax(dim=1).eq(target).sum().item()
    return correct / len(loader.dataset)  # type: ignore[arg-type]  # it has a length


def main() -> None:
    """Join, train, test."""
    epochs, batch_size = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    train_split, test_split = digits()
    data = Digits(train_split)
    sampler = DistributedSampler(data, world_size, rank)
    train_loader = DataLoader(data, batch_size=batch_size, sampler=sampler)
    test_loader = DataLoader(Digits(test_split), batch_size=512)
    model = DistributedDataParallel(Net("small", 10, 0.0))
    optimizer = optim.SGD(model.parameters(), lr=float(sys.argv[3]), momentum=float(sys.argv[4]))
    for epoch in range(1, epochs + 1):
        sampler.set_epoch(epoch)
        train(model, train_loader, optimizer, epoch)
        accuracy = test(model, test_loader)
        if rank == 0:
            print(f'{{"event":"epoch","epoch":{epoch},"accuracy":{accuracy}}}', flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), os.environ["OUT"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
