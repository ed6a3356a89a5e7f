"""Honest runs of every shape are proven: seeded, 4 in `make test`, 30 in `make test-full`, 300 by sweep."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gangplank.proof.verdict import Expected, prove, read_records
from tests.support.sweeps import FULL, sweeping

if TYPE_CHECKING:
    from tests.trainer.harness import Root

SAMPLE, SOME, ALL = 4, 30, 300
SEEDS = range(ALL if sweeping("honest") else SOME if FULL else SAMPLE)


@dataclass(frozen=True)
class Shape:
    """One run: the size of the world at each start, and what it does there."""

    sizes: tuple[int, ...]
    per_pod: int
    batch: int
    accumulate: int
    samples: int
    epochs: int
    ends: tuple[tuple[int, int], ...]
    """How each start but the last ends: after so many steps, by this signal."""

    @property
    def features(self) -> set[str]:
        """What is special about it."""
        return {name for name, has in {
            **{f"{size} ranks": size in self.sizes for size in range(1, 7)},
            "restarts": len(self.sizes) > 1, "elastic": len(set(self.sizes)) > 1, "accumulation": self.accumulate > 1,
            "uneven shards": self.samples % self.sizes[-1] > 0, "several processes a pod": self.per_pod > 1,
        }.items() if has}  # fmt: skip


def shape(seed: int) -> Shape:
    """The shape of a seed."""
    chance = random.Random(1000 + seed)
    per_pod = chance.choice([1, 1, 1, 1, 2, 3])
    sizes = [1, *(size for size in range(1, 7) if size % per_pod == 0)][per_pod > 1 :]
    starts = chance.choice([1, 2, 3])
    first = chance.choice(sizes)
    worlds = [first, *(chance.choice(sizes) for _ in range(starts - 1))] if chance.random() < 0.5 else [first] * starts
    return Shape(tuple(worlds), per_pod, chance.choice([4, 7, 16]), chance.choice([1, 1, 2, 3]),
                 chance.randrange(61, 300), chance.choice([2, 3, 4]), tuple(
                     (chance.randrange(1, 9), chance.choice([signal.SIGTERM, signal.SIGKILL])) for _ in worlds[1:]))


@pytest.mark.parametrize("count", [SOME, ALL])
def test_each_feature_is_in_a_tenth_of_the_shapes(count: int) -> None:
    features = [shape(seed).features for seed in range(count)]
    names = sorted(set().union(*features))
    assert len(names) == 11
    assert {name: sum(name in own for own in features) / count for name in names if sum(
        name in own for own in features) < count / 10} == {}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_an_honest_run_is_proven(root: Root, seed: int) -> None:
    run, out, pods, began, texts = shape(seed), root.new(), dict[str, str](), time.time(), list[str]()
    flags = ["--epochs", run.epochs, "--batch-size", run.batch, "--accumulate", run.accumulate, "--train-samples",
             run.samples, "--log-interval", 1, "--checkpoint-interval", 2, "--resume", "auto", "--output", out,
             "--collective-timeout", 60]  # fmt: skip
    size = 0
    for life, size in enumerate(run.sizes):
        store = root.store()
        running = root.start(range(size), size, *map(str, flags), port=store["port"], per_pod=run.per_pod,
                             life=f"-{life}")  # fmt: skip
        pods |= {f"uid-{pod}-{life}": f"node-{pod % 2}" for pod in range(size // run.per_pod)}
        if life < len(run.ends):
            steps, number = run.ends[life]
            assert running.until(lambda: running.text(0).count('"event":"step"') >= steps  # noqa: B023  # called at once
                                 or running.ended(0)), running.text(0)  # noqa: B023  # as above
            running.kill(size - 1, number)
        ranks = running.wait()
        root.close_store(store)
        texts += [rank.text for rank in ranks]
        if {rank.code for rank in ranks} == {0}:
            break
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    expected = Expected(size, epochs=run.epochs, global_batch=run.batch * run.accumulate * size, job_uid="job-1",
                        processes_per_pod=run.per_pod, created=began - 1, pods=pods)  # fmt: skip
    for evidence in ((root.host(out) / "evidence.jsonl").read_text(), "\n".join(texts)):
        verdict = prove(read_records(evidence), expected)
        assert verdict.passed or (size == 1 and verdict.alone), f"{run}\n{verdict.text()}"
