"""`make test-full PART=i/n`: lint, every scenario and every file of tests/ once, in parts of about equal time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from gangplank.errors import Problem
from tools import part_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.part_of import Part

ROOT = Path(__file__).resolve().parents[1]
MINUTES = ROOT / "tests/minutes.yml"
CHECK = "check"  # the make target that runs the folders below
CHECKED = ("unit", "golden", "repository")
USUAL = 1.0  # minutes of a piece without a row


def pieces(root: Path = ROOT) -> list[str]:
    """All work: the make target, the scenarios, the files."""
    scenarios = sorted(f"molecule/{path.parent.name}" for path in root.glob("molecule/*/molecule.yml"))
    files = sorted(str(path.relative_to(root)) for path in root.glob("tests/**/test_*.py"))
    return [CHECK, *scenarios, *(file for file in files if file.split("/")[1] not in CHECKED)]


def split(minutes: Mapping[str, float], count: int) -> list[list[str]]:
    """The pieces of each part: the longest first, each to the part that has the least to do.

    >>> split({"a": 5, "b": 3, "c": 3}, 2)
    [['a'], ['b', 'c']]
    """
    parts: list[list[str]] = [[] for _ in range(count)]
    for name in sorted(minutes, key=lambda name: (-minutes[name], name)):
        min(parts, key=lambda part: sum(minutes[other] for other in part)).append(name)
    return [[name for name in minutes if name in part] for part in parts]


def arguments(mine: list[str]) -> list[str]:
    """What `make` is to do for these pieces.

    >>> arguments(["check", "molecule/gpu", "tests/a/test_a.py"])
    ['check', 'parts', 'molecule', 'SCENARIOS=gpu', 'pytest', 'TESTS=tests/a/test_a.py']
    """
    scenarios = [name.partition("/")[2] for name in mine if name.startswith("molecule/")]
    files = [name for name in mine if name.startswith("tests/")]
    words = [CHECK] if CHECK in mine else []
    words += ["parts"]
    words += ["molecule", f"SCENARIOS={' '.join(scenarios)}"] if scenarios else []
    return words + (["pytest", f"TESTS={' '.join(files)}"] if files else [])


def plan(part: Part) -> list[str] | Problem:
    """The arguments of `make` for a part."""
    rows = yaml.safe_load(MINUTES.read_text())
    minutes = {name: rows.get(name, USUAL) for name in pieces()}
    if part.count > len(minutes):
        return Problem("PART", str(part), f"at most {len(minutes)} parts", "for example PART=1/3")
    return arguments(split(minutes, part.count)[part.number - 1])


def main(text: str) -> int:
    """Run `make` for this part, or refuse it."""
    part = part_of.parse(text)
    words = part if isinstance(part, Problem) else plan(part)
    if isinstance(words, Problem):
        print(words, file=sys.stderr)
        return 2
    print("make", *(f"'{word}'" if " " in word else word for word in words), flush=True)
    command = ["make", "--no-print-directory", *words]
    return subprocess.run(command, env=os.environ | {"GANGPLANK_FULL": "1"}, check=False).returncode


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1]))
