"""`make test-full PART=i/n`: lint, every scenario and every file of tests/ once, in parts of about equal time.

The files of a part run in an order drawn from a seed, so that none needs what another leaves; SEED=… repeats it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from gangplank.errors import Problem, shown
from tools import commits, part_of, sweep, sweeps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tools.part_of import Part

ROOT = Path(__file__).resolve().parents[1]
MINUTES = ROOT / "tests/minutes.yml"
CHECK = "check"  # the make target that runs the folders below
CHECKED = ("unit", "golden", "repository")
NOTED = ".pytest_cache/v/cache/lastfailed"  # by pytest, of all its runs
USUAL = 1.0  # minutes of a piece without a row
SEEDS = 10_000


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


def shuffled(mine: list[str], seed: int) -> list[str]:
    """The pieces with the files in an order drawn from a seed; tests/cluster/conftest.py still puts some last.

    >>> shuffled(["check", "tests/a.py", "tests/b.py", "tests/c.py"], 1)
    ['check', 'tests/a.py', 'tests/c.py', 'tests/b.py']
    """
    files = [name for name in mine if name.startswith("tests/")]
    chance = random.Random(seed)  # noqa: S311  an order of tests
    return [name for name in mine if name not in files] + chance.sample(files, len(files))


def stages(mine: list[str]) -> list[list[str]]:
    """What `make` is to do for these pieces, one call after the other.

    >>> stages(["check", "molecule/gpu", "tests/a/test_a.py"])
    [['check'], ['parts'], ['molecule', 'SCENARIOS=gpu'], ['pytest', 'TESTS=tests/a/test_a.py']]
    """
    scenarios = [name.partition("/")[2] for name in mine if name.startswith("molecule/")]
    files = [name for name in mine if name.startswith("tests/")]
    calls = [[CHECK]] if CHECK in mine else []
    calls += [["parts"]]
    calls += [["molecule", f"SCENARIOS={' '.join(scenarios)}"]] if scenarios else []
    return calls + ([["pytest", f"TESTS={' '.join(files)}"]] if files else [])


def plan(part: Part) -> list[str] | Problem:
    """The pieces of a part."""
    rows = yaml.safe_load(MINUTES.read_text())
    minutes = {name: rows.get(name, USUAL) for name in pieces()}
    if part.count > len(minutes):
        return Problem("PART", str(part), f"at most {len(minutes)} parts", "for example PART=1/3")
    return split(minutes, part.count)[part.number - 1]


def failing(calls: list[list[str]]) -> Iterator[str]:
    """Make each of them, whatever became of those before; yields the pieces that fail."""
    for words in calls:
        print("make", *(f"'{word}'" if " " in word else word for word in words), flush=True)
        command = ["make", "--no-print-directory", *words]
        if subprocess.run(command, env=os.environ | {"GANGPLANK_FULL": "1"}, check=False).returncode:
            names = words[-1].rpartition("=")[2].split()
            yield from [name for name in names if name in failed_files()] or names


def failed_files() -> set[str]:
    """The files whose tests failed when they last ran, as pytest has noted it."""
    noted = ROOT / NOTED
    return {test.partition("::")[0] for test in json.loads(noted.read_text())} if noted.exists() else set()


def run(part: Part, mine: list[str], seed: int) -> int:
    """Run a part; its result is written if it is that of one commit."""
    print(f"the files run in the order of SEED={seed}", flush=True)
    began, before = time.monotonic(), sweep.commit()
    division = hashlib.sha256(MINUTES.read_bytes()).hexdigest()[:10]
    kind = functools.partial(sweeps.FullResult, fresh=commits.fresh(), division=division, seed=seed)
    (ROOT / NOTED).unlink(missing_ok=True)  # what failed in an earlier run did not fail in this one
    failed = list(failing(stages(shuffled(mine, seed))))
    minutes, after = (time.monotonic() - began) / 60, sweep.commit()
    if isinstance(before, Problem) or before != after:
        print(f"no result is written: the files tested are not those of one commit, {before} to {after}")
    else:
        sweep.note(sweeps.FULL, part, before, len(mine), failed, minutes, kind)
    return 1 if failed else 0


def main(text: str, seed: str = "") -> int:
    """Run a part, or refuse it."""
    part = part_of.parse(text)
    mine = part if isinstance(part, Problem) else plan(part)
    problems = [mine] if isinstance(mine, Problem) else []
    if not seed.isdecimal() and seed:
        problems.append(Problem("SEED", shown(seed), "a whole number, as a result names it"))
    if problems or isinstance(mine, Problem) or isinstance(part, Problem):
        print("\n".join(map(str, problems)), file=sys.stderr)
        return 2
    return run(part, mine, int(seed or secrets.randbelow(SEEDS)))


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(*sys.argv[1:]))
