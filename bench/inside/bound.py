"""The least that a step of these ranks takes, and a plain one: `bound.py FLAGS…`, with the trainer's flags.

Prints milliseconds.

Each step starts a bare exchange and computes beside it, on the same cores. The exchange is an all_reduce in the ranks'
group of as many bytes as DDP would send, in buckets of the same sizes. The computing is that of the trainer's network
on its own samples: forward, backward, optimizer. The step ends when both have ended. No exchange waits for a gradient,
and nothing else is done: no DDP, no check of the loss, no evidence. A plain step is that of a script with DDP and
nothing else. As in the figures beside it, the first epoch does not count.
"""

import json
import os
import sys
import time
from collections.abc import Callable

sys.path.insert(0, "/opt/gangplank/trainer")
import torch
import torch.distributed as dist
from config import Config, parse_args
from data import load, shard
from launch import join, read_wiring
from model import Net, Trainee, make_optimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def bucket_sizes(config: Config, x: torch.Tensor, y: torch.Tensor) -> list[int]:
    """Elements of each bucket of the trainer's DDP, in the order in which it sends them."""
    sizes: list[int] = []

    def note(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        sizes.append(bucket.buffer().numel())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    ddp = DistributedDataParallel(Trainee(Net(config.model, 10, 0.0)), gradient_as_bucket_view=True)
    ddp.register_comm_hook(None, note)
    for _ in range(2):  # after the first pass it makes its buckets again, in the order of the gradients
        sizes.clear()
        ddp(x, y, len(y), False).backward()
        ddp.zero_grad()
    return sizes


def main() -> None:
    """Both kinds of steps, one after the other."""
    config, wiring = parse_args(sys.argv[1:]), read_wiring(os.environ)
    torch.set_num_threads(config.threads)
    join(wiring, "gloo", 60, 60)
    data = load(config.data, config.seed, config.train_samples)
    x, y = data.train_x, data.train_y
    torch.manual_seed(config.seed)
    net = Net(config.model, data.classes, config.dropout)
    ddp = DistributedDataParallel(Net(config.model, data.classes, config.dropout), gradient_as_bucket_view=True)
    buffers = [torch.zeros(size) for size in bucket_sizes(config, x[: config.batch_size], y[: config.batch_size])]
    own, averaged = make_optimizer(config, net), make_optimizer(config, ddp.module)

    def bare(ids: torch.Tensor) -> None:
        exchanges = [dist.all_reduce(buffer, async_op=True) for buffer in buffers]
        own.zero_grad()
        cross_entropy(net(x[ids]), y[ids]).backward()
        for exchange in exchanges:
            exchange.wait()
        own.step()

    def plain(ids: torch.Tensor) -> None:
        averaged.zero_grad()
        cross_entropy(ddp(x[ids]), y[ids]).backward()
        averaged.step()

    def step_ms(step: Callable[[torch.Tensor], None]) -> float:
        seconds, steps = 0.0, 0
        for epoch in range(config.epochs):
            for ids in shard(len(y), config.seed, epoch, 0, wiring.rank, wiring.world_size).split(config.batch_size):
                began = time.perf_counter()
                step(ids)
                if epoch:
                    seconds, steps = seconds + time.perf_counter() - began, steps + 1
        return 1000 * seconds / steps

    mib = 4 * sum(map(len, buffers)) / 2**20
    print(json.dumps({"event": "bound", "step": step_ms(bare), "plain": step_ms(plain), "buckets": len(buffers),
                      "mib": mib}))  # fmt: skip
    dist.destroy_process_group()


main()
