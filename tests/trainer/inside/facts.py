"""Facts about the trainer's modules, as one JSON object, from the image's Python."""

import gzip
import itertools
import json
import struct
import sys
import tempfile
from pathlib import Path

import torch
from torch.nn.functional import adaptive_max_pool2d
from torch.utils.data.distributed import DistributedSampler

sys.path.insert(0, "/opt/gangplank/trainer")
import checkpoint
import data
import evidence
import gradients
from config import Config
from model import learning_rate, pool_window_by_window
from run import identity


def digits() -> dict[str, object]:
    """Our reading of the digits beside scikit-learn's."""
    from sklearn.datasets import load_digits

    theirs = load_digits()
    (x, y), (test_x, test_y) = data.digits()
    order = torch.randperm(len(theirs.target), generator=torch.Generator().manual_seed(0))
    images = torch.from_numpy(theirs.images).float()[order].unsqueeze(1) / 16 - 0.3
    return {"same_images": torch.allclose(torch.cat([x, test_x]), images), "sizes": [len(x), len(test_x)],
            "same_labels": torch.cat([y, test_y]).tolist() == torch.from_numpy(theirs.target)[order].tolist()}


def shards() -> list[str]:
    """Where our shards differ from DistributedSampler's, over sizes that worlds do and do not divide."""
    wrong = []
    for size, world in [(12, 3), (13, 3), (100, 7), (5, 4), (2, 5), (1000, 3)]:
        for epoch in (0, 1):
            for rank in range(world):
                sampler = DistributedSampler(range(size), num_replicas=world, rank=rank, seed=9)
                sampler.set_epoch(epoch)
                if list(sampler) != data.shard(size, 9, epoch, 0, rank, world).tolist():
                    wrong.append(f"size {size} world {world} epoch {epoch} rank {rank}")
    return wrong


def continued() -> bool:
    """3 ranks for 30 samples, then 2 ranks for the rest: the epoch's shuffle, each sample once."""
    ids = [i for rank in range(3) for i in data.shard(101, 1, 4, 0, rank, 3)[:10].tolist()]
    ids += [i for rank in range(2) for i in data.shard(101, 1, 4, 30, rank, 2).tolist()]
    return sorted(set(ids)) == list(range(101)) and len(ids) <= 102


def idx_file(shape: tuple[int, ...], values: bytes, *, magic: bytes | None = None) -> bytes:
    """An idx file's bytes."""
    return (magic or bytes((0, 0, 8, len(shape)))) + struct.pack(f">{len(shape)}I", *shape) + values


def mnist() -> dict[str, object]:
    """Real idx files, good ones and bad ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = bytes(range(256)) * 12 + bytes(64)  # 4 images of 28 x 28 = 3136
        files = {"train-images-idx3-ubyte": idx_file((4, 28, 28), images),
                 "train-labels-idx1-ubyte": idx_file((4,), bytes((3, 1, 4, 1))),
                 "t10k-images-idx3-ubyte": idx_file((4, 28, 28), images),
                 "t10k-labels-idx1-ubyte": idx_file((4,), bytes((5, 9, 2, 6)))}

        def put(replaced: str = "", content: bytes | None = b"", ending: str = "") -> str:
            for file, raw in files.items():
                (folder / file).unlink(missing_ok=True)
                (folder / f"{file}.gz").unlink(missing_ok=True)
                if file != replaced:
                    (folder / f"{file}.gz").write_bytes(gzip.compress(raw))
                elif content is not None:
                    (folder / f"{file}{ending}").write_bytes(content)
            try:
                loaded = data.load(f"mnist:{folder}", 1)
            except data.DataError as error:
                return str(error).replace(str(folder), "DIR")
            pixel = loaded.train_x[0, 0, 0, 255 % 28].item()
            return json.dumps([list(loaded.train_x.shape), loaded.train_y.tolist(), loaded.test_y.tolist(),
                               round(pixel * 0.3081 + 0.1307, 4)])

        label, image = "train-labels-idx1-ubyte", "train-images-idx3-ubyte"
        return {
            "good": put(), "plain": put(label, files[label]),
            "missing": put(label, None), "empty": put(label, b""), "short": put(image, files[image][:-1]),
            "wrong_magic": put(image, idx_file((4, 28, 28), images, magic=bytes((0, 0, 13, 3)))),
            "count": put(label, idx_file((3,), bytes(3))), "label": put(label, idx_file((4,), bytes((3, 1, 4, 77)))),
            "broken": put(image, gzip.compress(b"")[:10] + bytes((255,)) * 20, ".gz"),
        }


def bitmaps() -> list[object]:
    """Packed ids, for the proof to unpack."""
    return [evidence.pack_ids([torch.tensor(ids, dtype=torch.int64)]) for ids in ([], [0], [7, 8, 3], [5, 5, 5, 900])]


def rates() -> dict[str, list[float]]:
    """The learning rate of each schedule at the start, the warm-up's end, the middle and the end."""
    configs = [Config(schedule=schedule, epochs=5, warmup_epochs=1.0, learning_rate=1.0)
               for schedule in ("constant", "cosine", "linear")]
    return {config.schedule: [round(learning_rate(config, at), 6) for at in (0.0, 0.5, 1.0, 3.0, 5.0)]
            for config in configs}


def tensors() -> bool:
    """Whether the safetensors library reads what we write: every type, scalars, empty ones, views."""
    from safetensors.torch import load

    kinds = [torch.ones(3, 2).to(dtype) for dtype in checkpoint.DTYPES]
    ours = {f"t{i}": t for i, t in enumerate([*kinds, torch.tensor(1.5), torch.empty(0, 3), torch.arange(9.0)[1::2],
                                               torch.arange(6).view(2, 3).T])}
    theirs = load(b"".join(checkpoint.safetensors(ours)))
    return set(ours) == set(theirs) and all(
        torch.equal(ours[k], theirs[k]) and ours[k].dtype == theirs[k].dtype for k in ours)


def pools() -> dict[str, list[int]]:
    """Sizes of images for which pooling window by window differs from adaptive pooling."""
    wrong: dict[str, list[int]] = {"largest": [], "gradients": []}
    for size in range(4, 31):
        image = torch.rand(2, 3, size, size + 1, generator=torch.Generator().manual_seed(size))
        ours, theirs = (image.clone().requires_grad_() for _ in range(2))
        largest, expected = pool_window_by_window(ours), adaptive_max_pool2d(theirs, 4)
        (largest * expected.detach()).sum().backward()
        (expected * expected.detach()).sum().backward()
        if not torch.equal(largest, expected):
            wrong["largest"].append(size)
        if not torch.allclose(ours.grad, theirs.grad):
            wrong["gradients"].append(size)
    return wrong


def periodic() -> float:
    """The smallest checksum of errors that repeat every BLOCK elements, in as many blocks, beside their size."""
    smallest = 1.0
    for blocks in range(2, 17):
        error = torch.sin(torch.arange(gradients.BLOCK, dtype=torch.float64)).repeat(1, blocks)
        for token in range(8):
            *sums, norm = gradients.Checksums(str(token), error.numel(), error.device)(error)[0].tolist()
            smallest = min(smallest, max(map(abs, sums)) / norm)
    return smallest


def identities() -> dict[str, dict[str, object]]:
    """What a checkpoint is compared by, for each way to choose a device."""
    flags = {"auto": {}, "cpu": {"device": "cpu"}, "shared": {"device": "cuda"}, "nccl": {"backend": "nccl"},
             "nccl on cuda": {"backend": "nccl", "device": "cuda"}}
    return {name: identity(Config(**chosen), data.Data(*[torch.zeros(1)] * 4, 10, "digest"))
            for name, chosen in flags.items()}


def checked() -> dict[str, dict[str, list[int]]]:
    """The first steps that the trainer looks at and that it samples, for some starts."""
    return {token: {"looks": [*itertools.islice(gradients.due_steps(token), 12)],
                    "samples": [*itertools.islice(gradients.sampled_steps(token), 40)]} for token in ("a1", "b2", "c3")}


facts = (checked, identities, periodic, pools, tensors, digits, shards, continued, mnist, bitmaps, rates)
print(json.dumps({fact.__name__: fact() for fact in facts}))
