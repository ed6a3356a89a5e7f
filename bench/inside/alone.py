"""What a start and a save are made of, each measured alone: `alone.py {memcpy|start} SMALL_OR_LARGE`; prints JSON.

memcpy: seconds to copy a checkpoint's tensors (weights and momenta) once into memory that exists already, between two
training steps, as a save has to: what a step has pushed out of the caches is slower to copy. By the same means, one
call of torch for all tensors.
start: seconds of the import of torch, to connect to a store, to load the data and to make and wrap a network, and of
its first step, all in one process; and the time of the machine's clock at the end of each.
"""

import json
import statistics
import sys
import time
from datetime import timedelta

BEGAN = time.perf_counter()
import torch
import torch.distributed as dist

IMPORT_S, IMPORTED = time.perf_counter() - BEGAN, time.time()
sys.path.insert(0, "/opt/gangplank/trainer")
from config import Config
from data import load
from model import Net, Trainee, make_optimizer
from run import checkpoint_tensors
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
what, size = sys.argv[1:3]
if what == "memcpy":
    net = Net(size, 10, 0.0)
    optimizer = make_optimizer(Config(), net)
    samples = 64 if size == "large" else 48
    x, y = torch.randn(samples, 1, 8, 8), torch.randint(10, (samples,))
    times = []
    tensors: list[torch.Tensor] = []
    for _ in range(30):
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        optimizer.step()
        if not tensors:
            tensors = list(checkpoint_tensors(net, optimizer).values())
            copies = [torch.zeros_like(tensor) for tensor in tensors]
        began = time.perf_counter()
        torch._foreach_copy_(copies, tensors)
        times.append(time.perf_counter() - began)
    print(json.dumps({"event": "alone", "memcpy": statistics.median(times)}))
else:
    began = time.perf_counter()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False,
                          timeout=timedelta(seconds=20))
    dist.TCPStore("127.0.0.1", store.port, is_master=False, use_libuv=False, timeout=timedelta(seconds=20))
    connect, connected = time.perf_counter() - began, time.time()
    dist.init_process_group("gloo", store=dist.PrefixStore("x", store), rank=0, world_size=1)
    began = time.perf_counter()
    data = load("digits", 1)
    net = Net(size, data.classes, 0.0)
    ddp = DistributedDataParallel(Trainee(net))
    optimizer = make_optimizer(Config(), net)
    ready, loaded = time.perf_counter(), time.time()
    ddp(data.train_x[:32], data.train_y[:32], 32, False).backward()
    optimizer.step()
    seconds = {"import": IMPORT_S, "connect": connect, "data": ready - began, "step": time.perf_counter() - ready}
    ends = {"import": IMPORTED, "connect": connected, "data": loaded, "step": time.time()}
    print(json.dumps({"event": "alone", **seconds, "ends": ends}))
    dist.destroy_process_group()
