"""The one tree of errors: each names what is wrong, where, and the fix, and has the exit status of a command."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Temporary answers of the API server or of a proxy before it; 410 is of a read whose version etcd has forgotten
BUSY = {410, 429, 500, 502, 503, 504}
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # what systems say where no more can be written
NO_NAME = {errno.ENAMETOOLONG, errno.ELOOP}  # and of a word that no file can be called
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
    """Something that the user can fix; the message explains how."""

    exit_code = 1


class Unreadable(GangplankError):  # noqa: N818  the name describes the file
    """A file that cannot be read; the message names the file, the reason and the fix."""

    exit_code = 3


class KubeError(GangplankError):
    """The cluster does not answer, or refuses; the message explains which and gives the fix."""

    exit_code = 4

    def __init__(self, message: str | Problem, status: int = 0, silence: str = "", *, listens: bool = False) -> None:
        """Take the HTTP status of the answer, or the reason for having none, and whether there was a connection."""
        super().__init__(str(message))
        self.problem = message if isinstance(message, Problem) else None
        self.status, self.silence = status, silence
        self.listens = listens or bool(status)

    @property
    def outage(self) -> bool:
        """Whether the same request may succeed later: no answer, or a server that is too busy or about to stop."""
        return bool(self.silence) or self.status in BUSY


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the place, what it has, what it should have (with the reason), and an instruction."""

    path: str
    got: str
    expected: str
    fix: str = ""

    def __str__(self) -> str:
        question = self.fix.endswith("?")
        end = f". {'' if question else 'Fix: '}{self.fix}" if self.fix else ""
        return f"{self.path}: got {self.got}, expected {self.expected}{end}"


class SpecError(GangplankError):
    """A description that cannot be carried out; has all problems at once.

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
