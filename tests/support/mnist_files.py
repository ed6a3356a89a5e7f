"""Files in MNIST's own format and size: what no test can download. The row of an image's bright bar is its label."""

from __future__ import annotations

import gzip
import random
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SIDE = 28  # pixels


def write_mnist(folder: Path, train: int, test: int) -> None:
    """The four files, the images packed; each split has so many."""
    for prefix, count in (("train", train), ("t10k", test)):
        chance = random.Random(prefix)
        labels = bytes(chance.randrange(10) for _ in range(count))
        images = b"".join(
            bytes(200 + chance.randrange(56) if row // 2 - 4 == label else chance.randrange(60)
                  for row in range(SIDE) for _ in range(SIDE)) for label in labels
        )
        head = struct.pack(">4I", 0x0803, count, SIDE, SIDE)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + images, mtime=0))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x0801, count) + labels)
