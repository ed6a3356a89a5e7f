"""Trainings in the image's own Python, without a cluster: what the parts that measure the trainer share."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.figures import merged
from bench.part import ROOT, BenchError, shown
from tests.trainer.harness import Root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.part import Setting
    from tests.trainer.harness import Rank

QUIET = ["--log-interval", "0"]


@contextmanager
def training(setting: Setting) -> Iterator[Root]:
    """The trainer's root file system, with the scripts of bench/inside in /out."""
    root = Root(shown("roots.trainer"), setting.folder)
    try:
        for path in (ROOT / "bench/inside").glob("*.py"):
            shutil.copy(path, root.out)
        yield root
    finally:
        root.close()


def ok(ranks: Sequence[Rank]) -> Sequence[Rank]:
    """The ranks, all of which ended well."""
    for rank in ranks:
        if rank.code:
            raise BenchError(f"a rank: got exit status {rank.code}, expected 0. Fix: see\n{rank.text}")
    return ranks


def in_rounds(
    count: int, works: Sequence[Callable[[], dict[str, float]]], say: Callable[[str], None]
) -> dict[str, list[float]]:
    """All figures of all works, each done once per round."""
    rounds = []
    for number in range(count):
        rounds += [work() for work in works]
        say(f"round {number + 1} of {count}")
    return merged(rounds)
