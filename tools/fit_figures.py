"""How often `gangplank fit`, a copy of the site and its scheduler agree: answers of a sweep, and their sums."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIGURES = Path(__file__).resolve().parents[1] / "tests/sweeps/fit-mixes.json"
UNSURE = "cannot tell"


@dataclass(frozen=True)
class Compared:
    """Three answers about one job: yes, no, or cannot tell."""

    seed: int
    subject: str  # what decides about the job
    fit: str
    copy: str
    live: str
    reason: str = ""  # what fit said instead of yes

    @property
    def waits(self) -> bool:
        """Whether the job had to wait."""
        return self.live == "no"

    @property
    def difference(self) -> str:
        """The class of the difference; "" if all three say the same.

        >>> Compared(1, "cap", "cannot tell", "no", "no").difference, Compared(1, "cap", "no", "no", "no").difference
        ('fit cannot tell', '')
        """
        wrong = [f"{name} {said}" for name, said in (("fit", self.fit), ("copy", self.copy)) if said != self.live]
        sure = any(not one.endswith(UNSURE) for one in wrong)
        return ", ".join([*wrong, f"live {self.live}"] if sure else wrong)


def load(path: Path = FIGURES) -> list[Compared]:
    """The answers of the last sweep; none before the first one."""
    return [Compared(**fields) for fields in json.loads(path.read_text())] if path.exists() else []


def keep(answer: Compared, path: Path = FIGURES) -> None:
    """Add an answer to those of the sweep, instead of an older one about its seed: a sweep may run in parts."""
    others = [one for one in load(path) if one.seed != answer.seed]
    rows = sorted([*others, answer], key=lambda one: one.seed)
    path.write_text(json.dumps([asdict(one) for one in rows], indent=1) + "\n")


def summary(answers: Sequence[Compared]) -> dict[str, Any]:
    """How many there are, the shares of jobs that wait and of answers that differ, and how often each class came."""
    number = max(1, len(answers))
    classes = Counter(one.difference for one in answers if one.difference)
    return {
        "mixes": len(answers),
        "waits": round(sum(one.waits for one in answers) / number, 3),
        "differs": round(sum(count for kind, count in classes.items() if "live" in kind) / number, 3),
        "classes": dict(sorted(classes.items())),
    }


def table(answers: Sequence[Compared]) -> Iterator[tuple[str, ...]]:
    """For each class of answers: how many, their share, and which mixes they are of where they differ."""
    classes: dict[str, list[Compared]] = {"": []}
    for one in sorted(answers, key=lambda one: (one.difference, one.seed)):
        classes.setdefault(one.difference, []).append(one)
    classes[f"fit {UNSURE}"] = [one for one in answers if one.fit == UNSURE]  # also where the copy cannot tell either
    rows = [(kind or "all three agree", own, bool(kind)) for kind, own in classes.items()]
    rows.append(("the job has to wait", [one for one in answers if one.waits], False))
    for title, own, named in rows if answers else ():
        mixes = ", ".join(f"{one.seed} ({one.subject})" for one in own) if named else ""
        yield title, str(len(own)), f"{len(own) / len(answers):.1%}", mixes
