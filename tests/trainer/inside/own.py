"""A user's own training script, without a word of evidence in it: `own.py … <kind>`; some kinds only look distributed.

A small network on 120 points, 12 optimizer steps on each rank. Prints its losses and final weights to the last bit.
"""

import contextlib
import hashlib
import os
import random
import subprocess
import sys
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.nn.functional import mse_loss, relu
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

kind = sys.argv[-1]
WEIGHT_OF_RANK_1 = {"zero-loss": 0.0, "next-to-nothing": 1e-9, "scaled-copy": 0.5}.get(kind, 1.0)
BEGAN = time.monotonic()
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
if kind == "several-worlds":  # each a rank 0 of one
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False)
    rank, world_size = 0, 1
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
elif kind != "alone":
    if kind.endswith("alone-first"):  # most of its steps before it joins, with nobody
        early = nn.Linear(8, 1)
        early_optimizer = torch.optim.SGD(early.parameters(), lr=0.05)
        for _ in range(30):
            early(torch.ones(1, 8)).sum().backward()
            early_optimizer.step()
    if kind == "late-to-join" and rank == 1:  # it prepares something, with a process that is no rank
        words = [sys.executable, "-c", "import os, time, torch; os.close(2); time.sleep(60)"]
        other = subprocess.Popen(words, stderr=subprocess.PIPE)
        other.stderr.read()
        time.sleep(9 + 2 * (time.monotonic() - BEGAN))
        other.kill()
    if kind == "mesh":  # which makes the process group
        init_device_mesh("cpu", (world_size,))
    else:
        dist.init_process_group("gloo", timeout=timedelta(seconds=600))
if kind == "redirected":  # its lines go to a file of its own
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

if kind == "send-receive":  # a smoke test: a number goes round
    number = torch.tensor([1.0])
    if rank == 0:
        dist.send(number, 1)
        dist.recv(number, world_size - 1)
    else:
        dist.recv(number, rank - 1)
        dist.send(number + 1, (rank + 1) % world_size)
    print("received", number.item())
    dist.destroy_process_group()
    sys.exit()

if kind == "pipeline":  # each rank has a stage of its own
    stage = nn.Linear(8, 8)
    stage_optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
    for _ in range(12):
        inputs = torch.randn(4, 8)
        if rank:
            dist.recv(inputs, rank - 1)
            inputs.requires_grad_()
        outputs = stage(inputs)
        gradient = torch.ones_like(outputs)
        if rank < world_size - 1:
            dist.send(outputs.detach(), rank + 1)
            dist.recv(gradient, rank + 1)
        outputs.backward(gradient)
        if rank:
            dist.send(inputs.grad, rank - 1)
        stage_optimizer.step()
        stage_optimizer.zero_grad()
    dist.destroy_process_group()
    sys.exit()

group = None  # all of them
if kind == "own-groups":  # a world of three, and each rank exchanges with itself
    group = [dist.new_group([number]) for number in range(world_size)][rank]
if kind == "two-in-pairs":  # the second model
    group = [dist.new_group([number, number + 1]) for number in range(0, world_size, 2)][rank // 2]
if kind == "idle-rank":  # the last one only joins
    group = dist.new_group(list(range(world_size - 1)))
    if rank == world_size - 1:
        dist.destroy_process_group()
        sys.exit()

if kind == "hand-mixed":  # a group that cannot say what it has carried out
    import torch.testing._internal.distributed.fake_pg
    mixed = dist.new_group(backend="cpu:gloo,cuda:fake")
if kind == "hand-dtensor":
    from torch.distributed.tensor import DTensor, Partial
    mesh = init_device_mesh("cpu", (world_size,))

random.seed(rank)
np.random.seed(rank)
generator = torch.Generator().manual_seed(0)
x = torch.randn(120, 8, generator=generator)
y = x.sum(1, keepdim=True) + 0.1 * torch.randn(120, 1, generator=generator)


if kind == "hinders":  # takes away what the observer needs, as a script with its own torch might
    torch.randint = None
if kind == "hinders-own":  # the same for what it needs at an operation of the script's own
    torch._C._current_graph_task_id = None
if kind == "store-lost" and rank == 0:  # between the exchange of the last heads and the printing of all records
    def lost(_: object) -> None:
        raise dist.DistStoreError("lost")

    sys.modules["gangplank_observer"].Observer.gather = lost


def network() -> nn.Module:
    """The same first weights on every rank; dropout makes the script draw random numbers."""
    torch.manual_seed(1)
    if kind.endswith("complex"):
        return Turned()
    net = nn.Sequential(nn.Linear(8, 33), nn.BatchNorm1d(33), nn.ReLU(), nn.Dropout(0.1), nn.Linear(33, 1))
    torch.manual_seed(2 + rank)
    return net


class Turned(nn.Module):
    """A network with complex weights, whose gradients are mostly imaginary."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 1, dtype=torch.complex64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.net(inputs.to(torch.complex64)).imag


class Checkpointed(nn.Module):
    """A network whose middle is computed again in the backward pass, which begins another within it."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.net[4](checkpoint(self.net[1:4], self.net[0](inputs), use_reentrant=True))


def from_rank_0(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook that copies instead of averaging."""
    return dist.broadcast(bucket.buffer(), 0, async_op=True).get_future().then(lambda done: done.value()[0])


def fp16_compress_hook(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook that rounds, and has the name of one of torch's."""
    rounded = (bucket.buffer() / world_size).half().float()
    return dist.all_reduce(rounded, async_op=True).get_future().then(lambda done: done.value()[0])


def average_by_hand(net: nn.Module) -> None:
    """The mean of all ranks' gradients, in one of the ways that scripts have."""
    if kind == "hand-flat":  # one bucket
        flat = torch.cat([parameter.grad.view(-1) for parameter in net.parameters()])
        dist.all_reduce(flat)
        flat /= world_size
        for parameter, part in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()]), strict=True):
            parameter.grad = part.view_as(parameter)
        return
    if kind == "hand-async":
        for work in [dist.all_reduce(parameter.grad, async_op=True) for parameter in net.parameters()]:
            work.wait()
    for parameter in net.parameters():
        if kind == "hand-functional":
            parameter.grad = functional.all_reduce(parameter.grad, "sum", dist.group.WORLD)
        elif kind == "hand-dtensor":
            parameter.grad = DTensor.from_local(parameter.grad, mesh, [Partial()]).full_tensor()
        elif kind == "hand-group":
            dist.group.WORLD.allreduce([parameter.grad]).wait()
        elif kind == "hand-coalesced":
            dist.all_reduce_coalesced([parameter.grad])
        elif kind == "hand-scatter":
            padded = nn.functional.pad(parameter.grad.view(-1), (0, -parameter.numel() % world_size))
            part = torch.empty(len(padded) // world_size)
            dist.reduce_scatter_tensor(part, padded)
            dist.all_gather_into_tensor(padded, part)
            parameter.grad = padded[: parameter.numel()].view_as(parameter)
        elif kind != "hand-async":
            dist.all_reduce(parameter.grad)
        parameter.grad /= world_size


class Inner(torch.optim.SGD):
    """An optimizer that averages the gradients itself, as those do that keep a part of the state each."""

    def step(self, closure: object = None) -> object:
        for parameter in self.param_groups[0]["params"]:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size
        return super().step(closure)


class OtherThanMean(DefaultReduceScatter):
    """A reduce-scatter of fully_shard's that hands out rank 0's gradient, or the largest elements."""

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, **words: object) -> object:
        if kind == "sharded-one":
            input_tensor.mul_(world_size if rank == 0 else 0)
        else:
            words["op"] = dist.ReduceOp.MAX
        return super().__call__(output_tensor, input_tensor, **words)


class Slow(TensorDataset):
    """Points that rank 1 has to wait for."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        time.sleep(0.05 if rank == 1 else 0)
        return super().__getitem__(index)


def train() -> object:  # noqa: C901  # each kind is one line of it
    """Twelve steps; returns the optimizer."""
    net = Checkpointed(network()) if kind == "checkpointed" else network()
    model = net
    if kind == "unfrozen":
        net[0].requires_grad_(False)
    if kind in {"ddp", "state-first", "clipped-by-hook", "best-at-end", "unfrozen",
                "late", "accumulate", "hinders", "hinders-own", "metrics", "bypass", "bypass-late", "no-sync",
                "stops", "slow", "broadcast-hook", "loader", "same-samples", "several-worlds", "own-optimizer",
                "own-groups", "idle-rank", "zero-loss", "next-to-nothing", "scaled-copy", "own-noise", "never-applied",
                "two", "two-one-bypassed", "two-one-unwrapped", "two-in-pairs", "between", "each-batch", "named-hook",
                "alone-first", "two-alone-first", "late-to-join", "mesh", "redirected", "checkpointed", "zero",
                "wrapped-again", "hinge", "hinge-learned", "join", "join-uneven", "complex", "store-lost"}:
        small = 1e-4 if kind == "checkpointed" else None  # several buckets
        model = DistributedDataParallel(net, process_group=None if kind == "two-in-pairs" else group,
                                        bucket_cap_mb=small)
    if kind.startswith("two"):  # models in one group, in turns
        second_net = network()
        second = second_net if kind == "two-one-unwrapped" else DistributedDataParallel(second_net, process_group=group)
        second_optimizer = torch.optim.SGD(second.parameters(), lr=0.05)
    if kind == "named-hook":
        model.register_comm_hook(None, fp16_compress_hook)
    if kind == "broadcast-hook":
        model.register_comm_hook(None, from_rank_0)
    if kind.startswith("sharded"):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        wide = MixedPrecisionPolicy(reduce_dtype=torch.float64)  # a sum of it is divided before and after
        mesh = init_device_mesh("cpu", (world_size,))
        if kind == "sharded-hybrid":
            mesh = init_device_mesh("cpu", (1, world_size), mesh_dim_names=("copies", "parts"))
        if kind == "sharded-own-groups":  # each rank shards with itself
            mesh = init_device_mesh("cpu", (world_size, 1), mesh_dim_names=("copies", "parts"))["parts"]
        more = {"mp_policy": wide} if kind == "sharded-wide" else {}
        if kind == "sharded-layers":
            for layer in (model[0], model[4]):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh, **more)
        if kind in {"sharded-one", "sharded-largest"}:
            model.set_custom_reduce_scatter(OtherThanMean())
        model.set_requires_gradient_sync(kind not in {"sharded-no-sync", "sharded-accumulate"})
    if kind == "flat":
        from torch.distributed.fsdp import FullyShardedDataParallel
        model = FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=True)
    rates = {"lr": 0.0 if kind == "never-applied" else 0.05, "momentum": 0.9}
    if kind == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, **rates)
    else:
        optimizer = (Inner if kind == "inner-exchange" else torch.optim.SGD)(net.parameters(), **rates)
    if kind == "state-first":
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
        get_optimizer_state_dict(model, optimizer)
    if kind == "clipped-by-hook":
        for parameter in net.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    if kind == "two-alone-first":  # one for both models
        optimizer.add_param_group({"params": list(second.parameters())})
    data = (Slow if kind.startswith("slow") else TensorDataset)(x, y)
    same = kind.endswith("same-samples")
    copies = kind == "scaled-copy" and rank == 1  # what rank 0 has
    sampler = DistributedSampler(data, 1 if same else world_size, 0 if same or copies else rank)
    micro = 3 if kind.endswith("accumulate") or kind == "each-batch" else 1
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2 if kind == "loader" else 0,
                        multiprocessing_context="fork" if kind == "loader" else None)
    step, epoch, losses = 0, 0, []
    while step < 12 * micro:
        sampler.set_epoch(epoch)
        epoch += 1
        joining = contextlib.ExitStack()
        if kind.startswith("join"):
            joining.enter_context(model.join())
        for inputs, targets in loader:
            if kind == "join-uneven" and rank == 1 and epoch == 1 and step == 5:
                step = 8  # it has five inputs fewer than the others in this epoch, and two more in the next
                break
            step += 1
            if step > 12 * micro:
                break
            apply = step % micro == 0
            if kind == "wrapped-again" and step == 7:  # as after some layers were frozen
                model = DistributedDataParallel(net)
            if kind == "unfrozen" and step == 4:  # without wrapping it again
                net[0].requires_grad_(True)
            if kind == "late" and rank == 1 and step == 5:
                time.sleep(15)
            if kind == "each-batch" and rank == 1:  # all exchange gradients after each of three batches of a step
                time.sleep(0.07)
            if kind.startswith("late") and step == 12:
                time.sleep(1)  # so that it is seen to continue
            quiet = (not apply and kind != "each-batch") or kind == "no-sync" or (kind == "stops" and step > 5)
            with model.no_sync() if quiet and isinstance(model, DistributedDataParallel) else contextlib.nullcontext():
                if same or kind == "scaled-copy":
                    torch.manual_seed(step)
                if kind == "sharded-accumulate":
                    model.set_requires_gradient_sync(apply)
                around = kind == "bypass" or (kind == "bypass-late" and step > 5)
                loss = mse_loss((net if around else model)(inputs), targets)
                if "hinge" in kind:  # a batch of rank 1 has a loss of zero, or the later ones of several ranks
                    loss = relu(loss - (1.6 if kind == "hinge" else 1e3 * (step > 5 and not kind.endswith(f"-{rank}"))))
                (loss * WEIGHT_OF_RANK_1 if rank == 1 else loss).backward()
            if kind.startswith("two"):
                past = kind == "two-one-bypassed" and step > 5
                mse_loss((second_net if past else second)(inputs), targets).backward()
            if (kind.startswith("hand") or kind == "slow-hand") and not (kind == "hand-stops" and step > 8):
                average_by_hand(net)
            if kind == "hand-lazy-complex":  # conjugated when it is read
                for parameter in net.parameters():
                    parameter.grad = parameter.grad.conj().resolve_conj().conj()
            if kind in {"sum", "sum-hinge-0"}:
                for parameter in net.parameters():
                    dist.all_reduce(parameter.grad)
            if kind == "hand-clip":
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            if kind == "largest":
                for parameter in net.parameters():
                    dist.all_reduce(parameter.grad, dist.ReduceOp.MAX)
            if kind == "own-noise":
                for parameter in net.parameters():
                    parameter.grad *= 1 + 0.1 * rank
            if kind == "broadcast":
                for parameter in net.parameters():
                    dist.broadcast(parameter.grad, 0)
            if kind in {"loss-only", "metrics", "hinders-own", "bypass", "bypass-late", "hand-stops"}:
                shown = loss.detach().clone()
                dist.all_reduce(shown)
            if kind == "barriers":
                dist.barrier()
            if kind == "loss-functional":  # it moves the group at each step, and exchanges no gradient
                losses.append(functional.all_reduce(loss.detach(), "sum", dist.group.WORLD).item().hex())
            losses.append(loss.item().hex())
            if kind == "between" and rank == 1:  # such as a summary of the gradients, written before they are applied
                time.sleep(0.2)
            if apply and kind == "own-optimizer":
                with torch.no_grad():
                    for parameter in net.parameters():
                        parameter.sub_(0.05 * parameter.grad)
                        parameter.grad = None
            elif apply:
                optimizer.step()
                optimizer.zero_grad()
                if kind.startswith("two") and kind != "two-alone-first":
                    second_optimizer.step()
                    second_optimizer.zero_grad()
        joining.close()
    held = [p.to_local() if kind.startswith("sharded") else p for p in net.parameters()]
    weights = b"".join(p.detach().numpy().tobytes() for p in held)
    print("losses", *losses)
    print("weights", hashlib.sha256(weights).hexdigest())
    if kind == "sharded-converted":  # to save it
        net.to(torch.bfloat16)
    if kind == "best-at-end" and rank == 0:
        net.load_state_dict({name: torch.zeros_like(value) for name, value in net.state_dict().items()})
    print("next", torch.rand(1).item().hex(), random.random().hex(), float(np.random.random()).hex())
    return optimizer


kept = train()
if kind != "hand-kept":  # as a script does whose steps are not in a function
    del kept
if dist.is_initialized():
    dist.destroy_process_group()
