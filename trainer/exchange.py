"""Bytes between ranks, as tensors: nothing is pickled, so a message cannot run code."""

from __future__ import annotations

import torch
import torch.distributed as dist


def _tensor(raw: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)


def gather_bytes(raw: bytes, group: dist.ProcessGroup | None = None) -> list[bytes]:
    """What every rank gave, in rank order, on rank 0; an empty list on the others. `group` holds all ranks."""
    sizes = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    sizes[dist.get_rank()] = len(raw)
    dist.all_reduce(sizes, group=group)
    padded = torch.zeros(int(sizes.max()), dtype=torch.uint8)
    padded[: len(raw)] = _tensor(raw)
    if dist.get_rank() != 0:
        dist.gather(padded, group=group)
        return []
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.gather(padded, parts, group=group)
    return [part[:size].numpy().tobytes() for part, size in zip(parts, sizes.tolist(), strict=True)]


def all_gather_bytes(raw: bytes) -> list[bytes]:
    """What every rank gave, in rank order, on every rank; all of one length."""
    everyone = torch.empty(dist.get_world_size() * len(raw), dtype=torch.uint8)
    dist.all_gather_into_tensor(everyone, _tensor(raw))
    together = everyone.numpy().tobytes()
    return [together[at : at + len(raw)] for at in range(0, len(together), len(raw))]


def broadcast_bytes(raw: bytes, group: dist.ProcessGroup | None = None) -> bytes:
    """What rank 0 gave, on every rank; the others' argument is not read. `group` holds all ranks."""
    size = torch.tensor([len(raw)])
    dist.broadcast(size, 0, group=group)
    data = _tensor(raw) if dist.get_rank() == 0 else torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(data, 0, group=group)
    return data.numpy().tobytes()
