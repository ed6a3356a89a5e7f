"""A user's own small training script with our evidence in it, correct or with one mistake: `broken.py <mistake>`.

Two epochs of a linear model on 100 points, batches of 10. The mistakes are those that look fine from outside: every pod
runs, every log shows a falling loss.
"""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

sys.path.insert(0, "/opt/gangplank/trainer")
from evidence import Evidence, parameter_hash, parameter_sample
from exchange import broadcast_bytes
from gradients import GradientWatch
from launch import join, read_wiring

mistake = sys.argv[1]
START = "a1"  # looks at steps 1 and 5, samples steps 1, 4 and 7
PARTLY = {"checked-only", "no-sync", "one-in-two"}  # mistakes that show at some steps alone
wiring = read_wiring(os.environ)
join(wiring, "gloo", 20, 20)
rank, world_size = wiring.rank, wiring.world_size

generator = torch.Generator().manual_seed(0)
x = torch.randn(100, 4, generator=generator)
y = x.sum(1, keepdim=True)
torch.manual_seed(1)
net = nn.Linear(4, 1)
distributed = mistake != "no-ddp"
model: nn.Module = DistributedDataParallel(net) if distributed else net


def from_rank_0(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook that copies instead of averaging."""
    scaled = bucket.buffer().div_(world_size)
    return dist.broadcast(scaled, 0, async_op=True).get_future().then(lambda done: done.value()[0])


if mistake == "broadcast":
    model.register_comm_hook(None, from_rank_0)  # type: ignore[operator]  # a method of DDP
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
sampler = DistributedSampler(range(100), num_replicas=1 if mistake == "no-sampler" else world_size,
                             rank=0 if mistake == "no-sampler" else rank)
token = START if mistake in PARTLY else broadcast_bytes(os.urandom(8)).hex()
evidence = Evidence(rank, {
    "world_size": world_size, "host": wiring.host, "pod": wiring.pod, "node": wiring.node, "pod_uid": wiring.pod_uid,
    "job_uid": wiring.job_uid, "attempt": token, "epochs": 2, "batch_size": 10,
    "accumulate": 1, "dataset": "points", "dataset_samples": 100, "settings": "broken.py",
    "parameters": parameter_sample(net)})
watch = GradientWatch(model, evidence) if isinstance(model, DistributedDataParallel) else None
idle = mistake == "idle-rank" and rank == world_size - 1
step = 0
for epoch in (1, 2):
    sampler.set_epoch(epoch)
    steps = samples = 0
    for number, batch in enumerate(torch.tensor(list(sampler)).split(10)):
        optimizer.zero_grad()
        alone = isinstance(model, DistributedDataParallel) and (
            (mistake == "no-sync" and number > 0) or (mistake == "one-in-two" and number % 2 == 0)
            or (mistake == "checked-only" and watch is not None and not (watch.look or watch.sampling)))
        copied = mistake == "scaled-copy" and rank < 2
        ids = torch.arange(10) + 10 * number if copied else batch  # these two say other samples than they train on
        with model.no_sync() if alone else contextlib.nullcontext():  # type: ignore[operator]  # a method of DDP
            loss = nn.functional.mse_loss(model(x[ids]), y[ids])
            weight = 0.0 if idle or (mistake == "zero-loss" and rank == 1) else 1.0
            weight *= {"next-to-nothing": 1e-9, "scaled-copy": 0.5}.get(mistake, 1.0) if rank == 1 else 1.0
            (weight * loss).backward()  # a rank without weight joins the collectives and adds nothing
        if mistake != "never-applied":
            optimizer.step()
        step += 1
        if alone and mistake != "no-sync":
            dist.all_reduce(torch.zeros(1))  # so that the number of operations is right
        if not idle:
            evidence.saw(batch)
            steps, samples = steps + 1, samples + len(batch)
        if watch:
            watch.stepped(epoch)
    if mistake in PARTLY:  # the ranks drift apart, and agree at the end of an epoch
        for weights in net.parameters():
            dist.broadcast(weights.data, 0)
    evidence.samples(epoch)
    evidence.add("epoch", epoch=epoch, steps=steps, samples=samples, loss=loss.item(), accuracy=0.0,
                 exchanges=(steps if mistake in PARTLY - {"no-sync"} else watch.take_exchanges())
                 if watch else 0, parameters=parameter_sample(net))
    evidence.exchange_heads(epoch)
evidence.add("end", steps=step, samples=samples, loss=loss.item(), accuracy=0.0, seconds=0.0,
             parameters=parameter_hash(net))
evidence.exchange_heads(None)
dist.barrier()
dist.destroy_process_group()
