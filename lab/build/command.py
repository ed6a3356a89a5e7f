"""What the programs of lab.build about one image share: progress on standard error, an answer, errors in one line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.build.cache import Say


def say(line: str) -> None:
    """Print what is being done."""
    print(line, file=sys.stderr, flush=True)


def wrong_words(usage: str) -> int:
    """Print how a program is used; the exit status."""
    say(usage)
    return 2


def answer(work: Callable[[Say], str]) -> int:
    """Print what the work returns, or its error; the exit status."""
    try:
        print(work(say))
    except LabError as error:
        say(f"error: {error}")
        return 1
    return 0
