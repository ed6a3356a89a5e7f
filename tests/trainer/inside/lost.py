"""The trainer, whose rank 1 is killed just before it makes its Nth process group: `lost.py N FLAG …`.

A kill from outside meets these few milliseconds once in hundreds of runs.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from typing import Any

import torch.distributed as dist

sys.path.insert(0, "/opt/gangplank/trainer")

import train

last, groups = int(sys.argv[1]), itertools.count(1)
new_group = dist.new_group


def counting(*args: Any, **words: Any) -> Any:
    """The process group, or the end."""
    if next(groups) == last and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return new_group(*args, **words)


dist.new_group = counting

if __name__ == "__main__":
    sys.exit(train.main(sys.argv[2:], lambda: None))
