"""The network, the optimizer and the learning rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # its usual name

if TYPE_CHECKING:
    from config import Config

# channels of both convolutions, hidden units
WIDTHS = {"small": (16, 32, 64), "large": (64, 128, 512), "huge": (256, 512, 4096)}


def pool_to_4(x: torch.Tensor) -> torch.Tensor:
    """The largest values of [n, c, h, w] in 4 x 4 windows: [n, c, 4, 4], whatever the size."""
    height, width = x.shape[-2:]
    if height == width and width % 4 == 0:  # five times as fast
        return F.max_pool2d(x, width // 4)
    return pool_window_by_window(x) if x.is_cuda else F.adaptive_max_pool2d(x, 4)


def pool_window_by_window(x: torch.Tensor) -> torch.Tensor:
    """What adaptive_max_pool2d(x, 4) gives; where its windows overlap, a GPU would add up gradients in any order."""
    for dim in (-2, -1):
        size = x.shape[dim]
        starts, ends = zip(*((i * size // 4, -(-(i + 1) * size // 4)) for i in range(4)), strict=True)
        x = torch.cat([x.narrow(dim, start, end - start).amax(dim, keepdim=True)
                       for start, end in zip(starts, ends, strict=True)], dim)
    return x


class Net(nn.Module):
    """Two convolutions and two linear layers: images [n, 1, h, w] to scores [n, classes].

    Groups are normalised, not batches: batch statistics would tie a rank's result to its share of the batch and add
    state to agree on. With this initialization, 24 steps of 192 digits reach an accuracy of about 0.95.
    """

    def __init__(self, width: str, classes: int, dropout: float) -> None:
        super().__init__()
        first, second, hidden = WIDTHS[width]
        self.conv1 = nn.Conv2d(1, first, 3, padding=1)
        self.norm1 = nn.GroupNorm(4, first)
        self.conv2 = nn.Conv2d(first, second, 3, padding=1)
        self.norm2 = nn.GroupNorm(4, second)
        self.fc1 = nn.Linear(second * 4 * 4, hidden)
        self.fc2 = nn.Linear(hidden, classes)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.conv1, self.conv2, self.fc1, self.fc2):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.fc2.weight *= 0.3  # first scores near 0: the first loss is near ln(classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of a batch."""
        x = F.relu(self.norm1(self.conv1(x)))  # [n, first, h, w]
        if x.shape[-1] > 16:
            x = F.max_pool2d(x, 2)  # 28 x 28 -> 14 x 14; 8 x 8 stays
        x = F.relu(self.norm2(self.conv2(x)))
        x = self.dropout(F.relu(self.fc1(pool_to_4(x).flatten(1))))
        scores: torch.Tensor = self.fc2(x)
        return scores


STOP, WAIT = 1.0, 2.0**-40  # wishes: that all ranks stop, or wait until the last checkpoint is written


def wish_of(mean: float, world_size: int) -> float:
    """The greatest wish of any rank, of their mean; each micro-batch of a step adds its rank's.

    >>> wish_of(STOP / 512, 512), wish_of(9 * WAIT / 512, 512), wish_of(0.0, 512)
    (1.0, 9.094947017729282e-13, 0.0)
    """
    return STOP if mean > STOP / 2 / world_size else WAIT if mean > 0 else 0.0


class Trainee(nn.Module):
    """The network with its loss, plus two passengers that ride along in the gradients' all-reduce.

    `passengers` is not a weight: its gradient is set to (loss, wish). DDP's average gives every rank the mean loss and
    whether any rank has a wish, at the same step, without a collective operation of its own.
    """

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net
        self.passengers = nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor, y: torch.Tensor, samples: int, wish: float) -> torch.Tensor:
        """A micro-batch's part of the mean loss over the `samples` of one optimizer step on this rank."""
        loss = F.cross_entropy(self.net(x).float(), y, reduction="sum") / samples
        ride = torch.stack([loss.detach(), torch.full_like(loss, wish)])
        return loss + (self.passengers * ride).sum()  # the value of the sum is 0, its gradient is `ride`


def make_optimizer(config: Config, net: Net) -> torch.optim.Optimizer:
    """The optimizer over the network's weights (not over the passengers)."""
    if config.optimizer == "adamw":
        return torch.optim.AdamW(net.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    return torch.optim.SGD(net.parameters(), lr=config.learning_rate, momentum=config.sgd_momentum,
                           weight_decay=config.weight_decay)


def learning_rate(config: Config, epochs_done: float) -> float:
    """The rate after `epochs_done` (fractional) epochs; counted in samples, so the number of ranks does not change it.

    >>> from config import Config
    >>> learning_rate(Config(schedule="linear", epochs=2, learning_rate=0.5), 1.0)
    0.25
    """
    if epochs_done < config.warmup_epochs:
        return config.learning_rate * epochs_done / config.warmup_epochs
    progress = (epochs_done - config.warmup_epochs) / (config.epochs - config.warmup_epochs)
    if config.schedule == "cosine":
        return config.learning_rate * (1 + math.cos(math.pi * progress)) / 2
    if config.schedule == "linear":
        return config.learning_rate * (1 - progress)
    return config.learning_rate
