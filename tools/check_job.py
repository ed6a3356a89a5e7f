"""Refuses a file that is not YAML, or not a mapping, before `make train` starts Ansible with it."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from gangplank.errors import Problem, SpecError, Unreadable, shown
from gangplank.reading.files import read
from gangplank.reading.strict_yaml import documents

FIX = "begin with `training_job:` and indent the fields below it, as in jobs/digits.yml"


def refusals(name: str) -> list[str]:
    """A line for each reason why a file is not YAML, or not a mapping; the role checks the job itself."""
    try:
        parts = documents(read(name), name, strict=True)
    except Unreadable as error:
        return [str(error)]
    except SpecError as error:
        return [f"{name}: {problem}" for problem in error.problems]
    value = parts[0] if len(parts) == 1 else parts or None
    if isinstance(value, Mapping) and isinstance(value.get("training_job"), Mapping):
        return []
    return [str(Problem(name, shown(value), "a mapping with the key training_job", FIX))]


if __name__ == "__main__":
    sys.exit("\n".join(refusals(sys.argv[1])) or None)
