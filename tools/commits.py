"""The commit that a result names."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank import text
from gangplank.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]


def git(*arguments: str) -> str:
    """What a git command prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


def fresh() -> bool:
    """Whether a checkout has nothing but its commit and what `make setup` makes, as a clone made for this run has."""
    return not [line for line in git("status", "--porcelain", "--ignored").splitlines() if not set_up(line)]


def set_up(line: str) -> bool:
    """Whether a line of `git status` is about what `make setup`, or the start of a program, makes.

    >>> set_up("!! .venv/"), set_up("!! tools/__pycache__/"), set_up("!! .pytest_cache/"), set_up("?? .venv.txt")
    (True, True, False, False)
    """
    name = line[3:].rstrip("/")
    return line.startswith("!! ") and (name == ".venv" or name.rpartition("/")[2] == "__pycache__")


def commit(command: str, written: Sequence[str]) -> str | Problem:
    """The newest commit that changes more than what the command itself writes; changes in no commit are refused."""
    others = [".", *(f":!{path}" for path in written)]
    changed = git("status", "--porcelain", "--", *others).splitlines()
    if changed:
        got = f"changes that are in no commit ({text.listed([line[3:] for line in changed], 3)})"
        return Problem(command, got, "a commit, which the result names", "commit or remove them")
    return git("log", "-1", "--format=%h", "--abbrev=10", "--", *others)
