"""A script of 40 steps that counts how many functions evidence calls at each, its own and those of torch.

`work.py` is observed; `work.py evidence` writes its own.
"""

import itertools
import json
import os
import sys
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, calls = int(os.environ["RANK"]), [0]
own = sys.argv[1:] == ["evidence"]
WATCHERS = ("/gradients.py", "/evidence.py") if own else ("/observe.py",)


def count(frame: FrameType, event: str, _: object) -> None:
    """A call of a function in the file of who watches, or from there."""
    if event in {"call", "c_call"} and frame.f_code.co_filename.endswith(WATCHERS):
        calls[-1] += 1


torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(8, 33), nn.ReLU(), nn.Linear(33, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
x = torch.randn(40, 4, 8, generator=torch.Generator().manual_seed(rank))
watch, busy = None, list[int]()
if own:
    sys.path.insert(0, "/opt/gangplank/trainer")
    from evidence import Evidence
    from gradients import GradientWatch, due_steps, sampled_steps
    watch = GradientWatch(model, Evidence(rank, {"attempt": "a1"}))
    for steps in (due_steps("a1"), sampled_steps("a1")):
        busy += itertools.takewhile(lambda step: step <= len(x), steps)
sys.setprofile(count)
for batch in x:
    optimizer.zero_grad()
    (model(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    if watch:
        watch.stepped(1)
    calls.append(0)
sys.setprofile(None)
print(json.dumps({"calls": calls[:-1], "busy": busy}), flush=True)
dist.destroy_process_group()
