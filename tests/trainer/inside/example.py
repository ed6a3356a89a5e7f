"""Run the example in evidence.py's docstring, as it is printed there, with a small model of our own around it."""

import os
import sys
import textwrap

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, "/opt/gangplank/trainer")
import evidence
import gradients
from exchange import broadcast_bytes
from launch import join, read_wiring

wiring = read_wiring(os.environ)
join(wiring, "gloo", 20, 20)
x = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
y = x.sum(1, keepdim=True)
torch.manual_seed(1)
net = nn.Linear(4, 1)
ddp = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def batches(epoch: int) -> list[torch.Tensor]:
    """This rank's sample ids."""
    order = torch.randperm(90, generator=torch.Generator().manual_seed(epoch))
    return list(order[wiring.rank::wiring.world_size].split(10))


def learn(ids: torch.Tensor) -> float:
    """One step on a batch."""
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(ddp(x[ids]), y[ids])
    loss.backward()
    optimizer.step()
    return loss.item()


facts = {"world_size": wiring.world_size, "pod": wiring.pod, "pod_uid": wiring.pod_uid, "node": wiring.node,
         "job_uid": wiring.job_uid, "attempt": broadcast_bytes(os.urandom(8)).hex(), "settings": "example.py",
         "dataset": "points", "dataset_samples": 90, "batch_size": 10, "accumulate": 1,
         "parameters": evidence.parameter_sample(net)}
lines = [line for line in str(evidence.__doc__).splitlines() if line.startswith("    ")]
names = {"rank": wiring.rank, "facts": facts, "ddp": ddp, "net": net, "batches": batches, "learn": learn}
exec(textwrap.dedent("\n".join(lines)), {**vars(evidence), **vars(gradients), **names})  # noqa: S102  # our own text
dist.barrier()
dist.destroy_process_group()
