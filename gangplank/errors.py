"""The one tree of errors that say what is wrong, where, and how to fix it; each has the exit status of a command."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BUSY = {429, 500, 502, 503, 504}  # what the API server, or a proxy before it, says for a while
GOT_LIMIT = 120  # characters of the offending value that a message shows


def shown(value: object) -> str:
    """A value as a message shows it: JSON where it can be, cut to one readable length.

    >>> shown(False), shown("two"), shown(None)
    ('false', '"two"', 'nothing')
    """
    if value is None:
        return "nothing"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        text = f"a value of the type {type(value).__name__} that cannot be shown"
    return text if len(text) <= GOT_LIMIT else f"{text[: GOT_LIMIT - 1]}…"


class GangplankError(Exception):
    """Something that the user can put right; the message says how."""

    exit_code = 1


class Unreadable(GangplankError):  # noqa: N818  it says what is wrong with a file
    """A file that cannot be read; the message says which, why and what to do."""

    exit_code = 3


class KubeError(GangplankError):
    """The cluster cannot be asked, or says no; the message says which and what to do."""

    exit_code = 4

    def __init__(self, message: str, status: int = 0, silence: str = "") -> None:
        """Take the HTTP status of its answer, or why there was no answer."""
        super().__init__(message)
        self.status, self.silence = status, silence

    @property
    def outage(self) -> bool:
        """Whether the same request may be answered later: no answer, or a server that is too busy or about to stop."""
        return bool(self.silence) or self.status in BUSY


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where, what was there, what should be there, and what to do."""

    path: str
    got: str
    expected: str
    fix: str = ""

    def __str__(self) -> str:
        question = self.fix.endswith("?")
        end = f". {'' if question else 'Fix: '}{self.fix}" if self.fix else ""
        return f"{self.path}: got {self.got}, expected {self.expected}{end}"


class SpecError(GangplankError):
    """A job that cannot be what its author means; carries all problems at once.

    >>> print(SpecError([Problem("workers", '"two"', "a whole number >= 0")], source="jobs/a.yml"))
    jobs/a.yml: 1 problem
      workers: got "two", expected a whole number >= 0
    """

    def __init__(self, problems: Iterable[Problem], source: str = "job") -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.source = source
        count = len(self.problems)
        head = f"{source}: {count} problem{'' if count == 1 else 's'}"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))
