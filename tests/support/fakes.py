"""Scripts that only look distributed: what each does, and the claim of the proof that has to name the reason.

tests/trainer runs them as processes, tests/cluster/test_fakes.py as jobs. tests/unit/proof/fakes.py has evidence alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

INSIDE = Path(__file__).resolve().parents[1] / "trainer/inside"
ALONE = "more than one rank"
TOOK_PART = "every rank took part"
WORKED = "every rank worked"
SAMPLES = "samples are disjoint and complete"
EVERY_STEP = "gradients are exchanged at every step"
BEFORE = "gradients differ before the all-reduce"
AFTER = "gradients agree after the all-reduce"
MEAN = "gradients are averaged"
WEIGHTS = "weights agree"
NO_MEAN = "is not the mean of 3 gradients"
SAME = "the same samples on several ranks?"


@dataclass(frozen=True)
class Observed:
    """A kind of own.py, which knows nothing of evidence: the verdict, a claim that fails, and words of its reason."""

    kind: str
    word: str
    claim: str
    reason: str


@dataclass(frozen=True)
class Written:
    """A mistake of broken.py, which writes evidence: the claims that fail, and words of a reason."""

    mistake: str
    claims: frozenset[str]
    reason: str


def idle(steps: int) -> str:
    """So many of the twelve steps had no exchange."""
    return f"{steps} of 12 steps without an exchange"


OBSERVED = (
    Observed("alone", "NOT DISTRIBUTED", ALONE, "rank 0, 1, 2 never joined a process group"),
    Observed("several-worlds", "NOT DISTRIBUTED", TOOK_PART, "rank 0 finished 3 times"),
    Observed("idle-rank", "NOT PROVEN", WORKED, "rank 2 exchanged nothing with the others"),
    Observed("no-exchange", "NOT PROVEN", EVERY_STEP, idle(12)),
    Observed("barriers", "NOT PROVEN", EVERY_STEP, idle(12)),
    Observed("no-sync", "NOT PROVEN", EVERY_STEP, idle(12)),
    Observed("stops", "NOT PROVEN", EVERY_STEP, idle(7)),
    Observed("bypass", "NOT PROVEN", EVERY_STEP, idle(12)),
    Observed("bypass-late", "NOT PROVEN", EVERY_STEP, idle(7)),
    Observed("two-one-bypassed", "NOT PROVEN", EVERY_STEP, idle(7)),
    Observed("own-groups", "NOT PROVEN", EVERY_STEP, idle(12)),
    Observed("sharded-own-groups", "NOT PROVEN", EVERY_STEP, idle(12)),
    Observed("sharded-no-sync", "NOT PROVEN", EVERY_STEP, idle(12)),
    Observed("same-samples", "NOT PROVEN", BEFORE, SAME),
    Observed("sharded-same-samples", "NOT PROVEN", BEFORE, SAME),
    Observed("scaled-copy", "NOT PROVEN", BEFORE, "the gradient of rank 1 is that of rank 0, times 0.5"),
    Observed("loss-only", "NOT PROVEN", AFTER, "ranks hold 3 different averages"),
    Observed("loss-functional", "NOT PROVEN", AFTER, "ranks hold 3 different averages"),
    Observed("two-one-unwrapped", "NOT PROVEN", AFTER, "rank 0 kept its own gradient"),
    Observed("broadcast", "NOT PROVEN", MEAN, NO_MEAN),
    Observed("broadcast-hook", "NOT PROVEN", MEAN, NO_MEAN),
    Observed("named-hook", "NOT PROVEN", MEAN, NO_MEAN),
    Observed("largest", "NOT PROVEN", MEAN, NO_MEAN),
    Observed("zero-loss", "NOT PROVEN", MEAN, "the gradient of rank 1 is zero"),
    Observed("next-to-nothing", "NOT PROVEN", MEAN, "rank 1 adds next to nothing: at most"),
    Observed("sharded-one", "NOT PROVEN", MEAN, "the gradient of rank 1 is zero"),
    Observed("sharded-largest", "NOT PROVEN", MEAN, f"what the ranks hold together {NO_MEAN}"),
    Observed("own-noise", "NOT PROVEN", WEIGHTS, "3 different sets of weights after exchange"),
    Observed("hand-stops", "NOT PROVEN", WEIGHTS, "3 different sets of weights after exchange"),
    Observed("never-applied", "NOT PROVEN", WEIGHTS, "the weights of model 1 never changed: nothing was learned"),
)
WRITTEN = (
    Written("no-ddp", frozenset({BEFORE, AFTER, WEIGHTS, EVERY_STEP, MEAN}), "is the model wrapped in DDP?"),
    Written("no-sampler", frozenset({SAMPLES, BEFORE, WORKED, AFTER}), SAME),
    Written("idle-rank", frozenset({WORKED, SAMPLES, MEAN, EVERY_STEP}), "rank 2 had nothing to do in epoch 1"),
    Written("zero-loss", frozenset({MEAN}), "step 1: the gradient of rank 1 is zero"),
    Written("broadcast", frozenset({MEAN}), f"what rank 0 holds {NO_MEAN}"),
    Written("no-sync", frozenset({EVERY_STEP, MEAN, WEIGHTS}),
            "rank 0 exchanged gradients 1 time in the 4 steps of epoch 2"),
    Written("checked-only", frozenset({WEIGHTS}), "the ranks had 3 different weights"),
    Written("one-in-two", frozenset({MEAN, AFTER, WEIGHTS}), f"what rank 0 holds {NO_MEAN}"),
    Written("scaled-copy", frozenset({BEFORE}), "gradient of rank 1 is that of rank 0, times 0.5"),
    Written("next-to-nothing", frozenset({MEAN}), "rank 1 adds next to nothing: at most"),
    Written("never-applied", frozenset({WEIGHTS}), "nothing was learned between them"),
)
