"""The least that trains the trainer's network on a GPU: batches, forward, backward, step; no DDP, evidence or waiting.

    bare.py TRAINER_FOLDER IMAGES PRECISION BATCH_SIZE EPOCHS

Prints JSON: samples per second of each epoch but the first, which warms up. tools/gpu_check.py asks for it.
"""

import contextlib
import json
import sys
import time

import torch
from torch.nn.functional import cross_entropy

sys.path.insert(0, sys.argv[1])
from data import load
from model import Net

images, precision, batch_size, epochs = sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
arithmetic = "tf32" if precision == "tf32" else "ieee"
torch.backends.cuda.matmul.fp32_precision = arithmetic
torch.backends.cudnn.conv.fp32_precision = arithmetic
device = torch.device("cuda", 0)
data = load(f"mnist:{images}", 1)
x, y = data.train_x.to(device), data.train_y.to(device)
torch.manual_seed(1)
net = Net("huge", data.classes, 0.0).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
rates = []
for _ in range(epochs):
    torch.cuda.synchronize()
    began = time.perf_counter()
    for ids in torch.randperm(len(y), device=device).split(batch_size):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
            scores = net(x[ids])
        cross_entropy(scores.float(), y[ids]).backward()
        optimizer.step()
    torch.cuda.synchronize()
    rates.append(len(y) / (time.perf_counter() - began))
print(json.dumps({"samples_per_second": rates[1:]}))
