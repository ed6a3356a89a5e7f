"""Real samples as tensors in memory, and which rank sees which of them in which order.

A split is one tensor, so a batch is one indexing operation: no loader processes, no per-sample work.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch


class DataError(ValueError):
    """The data cannot be read: which file, what is wrong, and the fix."""


@dataclass(frozen=True)
class Data:
    """Both splits: images [samples, 1, height, width] float32 around 0, labels [samples] int64."""

    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor
    classes: int
    digest: str
    """sha256 of the training split, so that a checkpoint of other data is noticed."""


def load(name: str, seed: int, train_samples: int = 0) -> Data:
    """The data set of a `--data` value, at most `train_samples` long (0: all)."""
    if name == "digits":
        train, test = digits()
    elif name == "synthetic":
        train, test = synthetic(seed)
    else:
        train, test = mnist(Path(name.removeprefix("mnist:")))
    if train_samples > len(train[0]):
        raise DataError(f"--train-samples {train_samples}: {name} has {len(train[0])} training samples. "
                        "Fix: ask for fewer")
    x, y = (t[:train_samples] if train_samples else t for t in train)
    digest = hashlib.sha256(x.numpy().tobytes() + y.numpy().tobytes()).hexdigest()
    return Data(x, y, *test, classes=10, digest=digest)


Split = tuple[torch.Tensor, torch.Tensor]


def digits() -> tuple[Split, Split]:
    """scikit-learn's 1797 handwritten digits, 8 x 8, split 1536 + 261.

    The file inside the package is read directly: importing sklearn.datasets would cost each rank over a second.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataError("--data digits needs scikit-learn. Fix: install it, or use --data synthetic")
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)  # [1797, 65]: 64 pixels from 0 to 16, then the label
    x = torch.from_numpy((table[:, :64] / 16 - 0.3).reshape(-1, 1, 8, 8).copy())  # mean of all pixels is 0.305
    y = torch.from_numpy(table[:, 64].astype(np.int64))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))  # the file is sorted by writer
    train, test = order[:1536], order[1536:]  # 1536 = 48 batches of 32, also for 2, 3 and 4 ranks
    return (x[train], y[train]), (x[test], y[test])


def synthetic(seed: int) -> tuple[Split, Split]:
    """4096 + 512 noisy copies of ten random 8 x 8 patterns: data of any machine, for measuring and tests."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(10, 1, 8, 8, generator=generator)
    y = torch.randint(10, (4096 + 512,), generator=generator)
    x = patterns[y] + torch.randn(len(y), 1, 8, 8, generator=generator)
    return (x[:4096], y[:4096]), (x[4096:], y[4096:])


def mnist(folder: Path) -> tuple[Split, Split]:
    """The four idx files of MNIST (or of a data set in its shape), plain or gzipped."""
    def split(prefix: str) -> Split:
        images = read_idx(_find(folder, f"{prefix}-images-idx3-ubyte"), dimensions=3)
        labels = read_idx(_find(folder, f"{prefix}-labels-idx1-ubyte"), dimensions=1)
        if len(images) != len(labels) or len(images) == 0:
            raise DataError(f"{folder}: {prefix} has {len(images)} images and {len(labels)} labels, expected as many. "
                            "Fix: fetch all four files again")
        if labels.max() > 9:
            raise DataError(f"{folder}: {prefix} has label {labels.max()}, expected 0 to 9. Fix: fetch the files again")
        x = torch.from_numpy((images.astype(np.float32) / 255 - 0.1307) / 0.3081).unsqueeze(1)  # [n, 1, h, w]
        return x, torch.from_numpy(labels.astype(np.int64))

    return split("train"), split("t10k")


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise DataError(f"{folder}/{name}[.gz] does not exist. Fix: put the four MNIST idx files into that folder")


def read_idx(path: Path, dimensions: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """One idx file of unsigned bytes: 2 zero bytes, type 8, rank, then each size as big-endian u32, then the bytes."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}). Fix: fetch it again") from error
    header = 4 + 4 * dimensions
    if len(raw) < header or raw[:4] != bytes((0, 0, 8, dimensions)):
        raise DataError(f"{path}: starts with {raw[:4].hex() or 'nothing'}, expected 000008{dimensions:02x} "
                        f"(idx, unsigned bytes, {dimensions} dimensions). Fix: fetch it again")
    shape = struct.unpack(f">{dimensions}I", raw[4:header])
    expected = int(np.prod(shape, dtype=np.int64))
    if len(raw) - header != expected:
        raise DataError(f"{path}: holds {len(raw) - header} bytes of data, its header says {expected}. "
                        "Fix: fetch it again")
    return np.frombuffer(raw, dtype=np.uint8, offset=header).reshape(shape)


def shard(samples: int, seed: int, epoch: int, position: int, rank: int, world_size: int) -> torch.Tensor:
    """The ids that `rank` still sees in `epoch` after `position` samples were seen by all ranks together.

    At position 0 this is DistributedSampler's order: shuffle, repeat the head until `world_size` divides it, deal out
    like cards. A run that resumes with another number of ranks deals out the rest of the same shuffle.
    """
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed + epoch))
    rest = order[min(position, samples):]
    short = -len(rest) % world_size
    if short:  # at most world_size - 1 repeats; a tiny data set may have to go round more than once
        rest = torch.cat([rest, order.repeat(-(-short // samples))[:short]])
    return rest[rank::world_size]
