"""How many cases a test has: a sample in `make test`, more in `make test-full`, all of them in `make sweep NAME=…`."""

from __future__ import annotations

import os

FULL = os.environ.get("GANGPLANK_FULL") == "1"  # set by `make test-full`
SWEEP = os.environ.get("GANGPLANK_SWEEP", "")  # set by `make sweep`: the name of the sweep that runs


def sweeping(name: str) -> bool:
    """Whether `make sweep NAME=name` runs this."""
    return name == SWEEP


def examples(count: int) -> int:
    """How many random cases a test draws: all of them in `make test-full`, a third in `make check`."""
    return count if FULL else count // 3
