"""Was this training really distributed? Pure answers from the ranks' evidence: every claim named, with its numbers.

The trainer's ranks write records, each chained to the one before by hash, and exchange the heads of their chains every
epoch. A record says which samples a rank saw, what its gradients were before and after the all-reduce, and which
weights it had. `prove` reads the records of all ranks, from their logs or from `evidence.jsonl`.

Threat model: mistakes and isolated edits. It catches training that only looked distributed: no DDP, every rank on all
the data, several worlds of one, an idle rank, two masters. It catches records of another job, and records that were
changed, left out or rewritten, unless all ranks' records were rewritten together. It cannot withstand an image or a
script built to lie: nothing is signed, and a rank may print the records of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.proof.claims import CLAIMS, Expected
from gangplank.proof.observed import NOT_CLAIMED
from gangplank.proof.records import EvidenceError, read_records, select
from gangplank.text import counted, listed, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

ALONE = "more than one rank"  # the claim whose failure has a verdict of its own
# Without these nothing is said of a training: a script that is observed from outside may hide them.
CORE = ("gradients are exchanged at every step", "gradients are averaged")

__all__ = ["CLAIMS", "Expected", "Outcome", "Verdict", "compare", "prove", "read_records"]


@dataclass(frozen=True)
class Outcome:
    """Whether a claim holds (None: it was not asked of evidence this old), and the numbers that show it."""

    name: str
    passed: bool | None
    detail: str

    @property
    def state(self) -> str:
        """The outcome in a word."""
        return "skipped" if self.passed is None else "ok" if self.passed else "FAILED"

    def text(self) -> str:
        """It in a line.

        >>> Outcome("ranks", True, "0, 1 and 2").text()
        'ok      ranks: 0, 1 and 2'
        """
        return f"{self.state:7} {self.name}: {self.detail}"


@dataclass(frozen=True)
class Verdict:
    """The outcome of every claim; the training is proven if every claim that was asked holds."""

    claims: tuple[Outcome, ...]
    observed: bool = False
    """Whether the evidence was written from outside the script."""

    @property
    def unclaimed(self) -> tuple[Outcome, ...]:
        """What would have to be claimed of an observed script, and cannot be."""
        return tuple(claim for claim in self.claims if self.observed and claim.passed is None and claim.name in CORE)

    @property
    def asked(self) -> tuple[Outcome, ...]:
        """The claims that the evidence is new enough for."""
        return tuple(claim for claim in self.claims if claim.passed is not None)

    @property
    def passed(self) -> bool:
        """Whether every claim that was asked holds, and what matters was asked."""
        return bool(self.asked) and not self.failed and not self.unclaimed

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if claim.passed is False)

    @property
    def alone(self) -> bool:
        """Whether a training by one rank, or in one pod, is all that is wrong."""
        return [claim.name for claim in self.failed] == [ALONE]

    @property
    def word(self) -> str:
        """The verdict itself."""
        if self.passed:
            return "PROVEN"
        if self.unclaimed and not self.failed:
            return "NOT CLAIMED"
        undistributed = any(claim.name == ALONE for claim in self.failed) and len(self.failed) < len(self.asked)
        return "NOT DISTRIBUTED" if undistributed else "NOT PROVEN"

    @property
    def not_asked(self) -> str:
        """How many claims were not asked, for a sentence that counts the others.

        >>> Verdict((Outcome("ranks", True, ""), Outcome("clocks", None, ""))).not_asked
        ', 1 not asked'
        """
        count = len(self.claims) - len(self.asked)
        return f", {count} not {'claimed' if self.observed else 'asked'}" if count else ""

    def text(self) -> str:
        """A line per claim and the verdict.

        >>> print(Verdict((Outcome("ranks", True, "0, 1 and 2"),)).text())
        ok      ranks: 0, 1 and 2
        PROVEN: 1 of 1 claims hold
        """
        lines = [claim.text() for claim in self.claims]
        held = len(self.asked) - len(self.failed)
        summary = f"{held} of {len(self.asked)} claims hold{self.not_asked}"
        return "\n".join([*lines, f"{self.word}: {summary}"])


def prove(records: Iterable[Mapping[str, object]], expected: Expected) -> Verdict:
    """Judge the evidence of one job; every claim is checked, also after one has failed."""
    run = select(records)
    expected, version, outcomes = expected.sized(run), run.format, []
    for name, claim in CLAIMS.items():
        passed: bool | None = None
        detail = f"not asked: got evidence of format {version}, needs {claim.since}"
        if run.observed and claim.unseen:
            detail = f"{NOT_CLAIMED}{claim.unseen}"
        elif claim.since <= version:
            try:
                passed, detail = claim.judge(run, expected)
            except EvidenceError as error:
                passed, detail = False, str(error)
        outcomes.append(Outcome(name, passed, plain(detail)))
    return Verdict(tuple(outcomes), run.observed)


def compare(single: Mapping[str, Any], distributed: Mapping[str, Any], tolerance: float = 0.05) -> Verdict:
    """The vSphere guide's check, from two result.json: the same training by one pod and by several.

    Each of N ranks takes the N-th part of the single pod's steps, and the accuracies agree within `tolerance`.
    """
    ranks = distributed["ranks"]
    if not isinstance(ranks, list):
        raise TypeError("ranks is not a list: is this a result.json?")
    size, alone = distributed["world_size"], single["steps"]
    steps = [row["steps"] for row in ranks]
    accuracies = single["accuracy"], distributed["accuracy"]
    return Verdict(
        (
            Outcome("one process alone", single["world_size"] == 1, f"world size {single['world_size']}"),
            Outcome(
                "every rank is there", [row["rank"] for row in ranks] == list(range(size)), f"{len(ranks)} of {size}"
            ),
            Outcome(
                "steps are shared",
                all(count * size == alone for count in steps),
                f"{alone} steps alone, {listed(steps)} on {counted(size, 'rank')}",
            ),
            Outcome(
                "same accuracy",
                abs(accuracies[0] - accuracies[1]) <= tolerance,
                f"{accuracies[0]:.4f} alone, {accuracies[1]:.4f} on {counted(size, 'rank')}, tolerance {tolerance}",
            ),
        )
    )
