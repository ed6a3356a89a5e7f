"""Was this training really distributed? Pure answers from the ranks' evidence: every claim named, with its numbers.

The trainer's ranks write records, each chained to the one before by hash, and exchange the heads of their chains every
epoch; a record says which samples a rank saw, what its gradients were before and after the all-reduce, and which
weights it had. `prove` reads the records of all ranks, from their logs or from `evidence.jsonl`.

Threat model: mistakes and lone edits. It catches training that only looked distributed (no DDP, every rank on all the
data, several worlds of one, an idle rank, two masters), records of another job, and records that were changed, left out
or rewritten by anyone who does not rewrite all ranks' records together. It does not withstand an image or a script that
sets out to lie: whoever controls every rank can write whatever evidence they like, since nothing here is signed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.proof.claims import CLAIMS, Expected
from gangplank.proof.records import read_records, select
from gangplank.text import listed, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gangplank.proof.records import Record

# What a record with the right hash and the wrong contents can raise.
UNREADABLE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, zlib.error)

__all__ = ["CLAIMS", "Claim", "Expected", "Verdict", "compare", "prove", "read_records"]


@dataclass(frozen=True)
class Claim:
    """One thing that has to be true, whether it is, and the numbers that say so."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Verdict:
    """All claims; the training is proven when every one passed."""

    claims: tuple[Claim, ...]

    @property
    def passed(self) -> bool:
        """Whether every claim holds."""
        return all(claim.passed for claim in self.claims)

    @property
    def failed(self) -> tuple[Claim, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if not claim.passed)

    def text(self) -> str:
        """A line per claim and the verdict.

        >>> print(Verdict((Claim("ranks", True, "0, 1 and 2"),)).text())
        ok      ranks: 0, 1 and 2
        PROVEN: 1 of 1 claims hold
        """
        lines = [f"{'ok' if claim.passed else 'FAILED':7} {claim.name}: {claim.detail}" for claim in self.claims]
        held = len(self.claims) - len(self.failed)
        return "\n".join(
            [*lines, f"{'PROVEN' if self.passed else 'NOT PROVEN'}: {held} of {len(self.claims)} claims hold"]
        )


def prove(records: Iterable[Record], expected: Expected) -> Verdict:
    """Judge the evidence of one job; every claim is checked, also after one has failed."""
    run = select(records)
    claims = []
    for name, check in CLAIMS:
        try:
            passed, detail = check(run, expected)
        except UNREADABLE as error:
            passed, detail = False, f"the evidence cannot be read: {type(error).__name__} {error}"
        claims.append(Claim(name, passed, plain(detail)))
    return Verdict(tuple(claims))


def compare(single: Mapping[str, object], distributed: Mapping[str, object], tolerance: float = 0.05) -> Verdict:
    """The vSphere document's check, from two result.json: the same training by one pod and by several.

    Each of N ranks takes the N-th part of the single pod's steps, and the accuracies agree within `tolerance`.
    """
    ranks = distributed["ranks"]
    if not isinstance(ranks, list):
        raise TypeError("ranks is not a list: is this a result.json?")
    size, alone = int(str(distributed["world_size"])), int(str(single["steps"]))
    steps = [int(str(row["steps"])) for row in ranks]
    accuracies = float(str(single["accuracy"])), float(str(distributed["accuracy"]))
    return Verdict(
        (
            Claim("one process alone", int(str(single["world_size"])) == 1, f"world size {single['world_size']}"),
            Claim(
                "every rank is there", [row["rank"] for row in ranks] == list(range(size)), f"{len(ranks)} of {size}"
            ),
            Claim(
                "steps are shared",
                all(count * size == alone for count in steps),
                f"{alone} steps alone, {listed(steps)} on {size} ranks",
            ),
            Claim(
                "same accuracy",
                abs(accuracies[0] - accuracies[1]) <= tolerance,
                f"{accuracies[0]:.4f} alone, {accuracies[1]:.4f} on {size} ranks, tolerance {tolerance}",
            ),
        )
    )
