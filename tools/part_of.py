"""PART=i/n of `make sweep` and `make test-full`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gangplank.errors import Problem, shown

MOST = 1000  # parts


@dataclass(frozen=True)
class Part:
    """The i-th of n parts."""

    number: int
    count: int

    def __str__(self) -> str:
        """As it is typed."""
        return f"{self.number}/{self.count}"


def parse(text: str) -> Part | Problem:
    """A part; all of it if the text is empty.

    >>> parse("2/3"), parse("")
    (Part(number=2, count=3), Part(number=1, count=1))
    >>> print(parse("4/3"))
    PART: got "4/3", expected i/n with i from 1 to n. Fix: for example PART=1/3
    """
    match = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", text or "1/1", re.ASCII)
    if match and int(match[1]) <= int(match[2]) <= MOST:
        return Part(int(match[1]), int(match[2]))
    return Problem("PART", shown(text), "i/n with i from 1 to n", "for example PART=1/3")
