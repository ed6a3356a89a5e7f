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
from evidence import Evidence, GradientWatch, parameter_hash
from exchange import broadcast_bytes
from launch import join, read_wiring

mistake = sys.argv[1]
wiring = read_wiring(os.environ)
join(wiring, "gloo", 20, 20)
rank, world_size = wiring.rank, wiring.world_size

generator = torch.Generator().manual_seed(0)
x = torch.randn(100, 4, generator=generator)
y = x.sum(1, keepdim=True)
torch.manual_seed(1)
net = nn.Linear(4, 1)
if mistake == "broadcast":  # the hook's all-reduce; what else is summed stays
    summed = dist.all_reduce
    dist.all_reduce = lambda tensor, **words: (  # type: ignore[assignment]  # of these two uses
        dist.broadcast(tensor, 0, **words) if words else summed(tensor))
distributed = mistake != "no-ddp"
model: nn.Module = DistributedDataParallel(net) if distributed else net
watch = GradientWatch(model) if isinstance(model, DistributedDataParallel) else None
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
sampler = DistributedSampler(range(100), num_replicas=1 if mistake == "no-sampler" else world_size,
                             rank=0 if mistake == "no-sampler" else rank)
evidence = Evidence(rank, {
    "world_size": world_size, "host": wiring.host, "pod": wiring.pod, "node": wiring.node, "pod_uid": wiring.pod_uid,
    "job_uid": wiring.job_uid, "attempt": broadcast_bytes(os.urandom(8)).hex(), "epochs": 2, "batch_size": 10,
    "accumulate": 1, "dataset": "points", "dataset_samples": 100, "settings": "broken.py"})
idle = mistake == "idle-rank" and rank == world_size - 1
step = 0
for epoch in (1, 2):
    sampler.set_epoch(epoch)
    steps = samples = 0
    if watch:
        watch.arm()
    for number, batch in enumerate(torch.tensor(list(sampler)).split(10)):
        optimizer.zero_grad()
        alone = mistake == "no-sync" and isinstance(model, DistributedDataParallel) and number > 0
        with model.no_sync() if alone else contextlib.nullcontext():  # type: ignore[operator]  # a method of DDP
            loss = nn.functional.mse_loss(model(x[batch]), y[batch])
            weight = 0 if idle or (mistake == "zero-loss" and rank == 1) else 1
            (weight * loss).backward()  # a rank without weight joins the collectives and adds nothing
        optimizer.step()
        step += 1
        if not idle:
            evidence.saw(batch)
            steps, samples = steps + 1, samples + len(batch)
        if watch and watch.armed:
            evidence.gradients(epoch, step, watch)
    if mistake == "no-sync":  # the ranks drift apart, and agree at the end of an epoch
        for weights in net.parameters():
            dist.broadcast(weights.data, 0)
    evidence.samples(epoch)
    evidence.add("epoch", epoch=epoch, steps=steps, samples=samples, loss=loss.item(), accuracy=0.0,
                 exchanges=watch.take_exchanges() if watch else 0, parameters=parameter_hash(net))
    evidence.exchange_heads(epoch)
evidence.add("end", steps=step, samples=samples, loss=loss.item(), accuracy=0.0, seconds=0.0)
evidence.exchange_heads(None)
dist.barrier()
dist.destroy_process_group()
