"""`make sweep NAME=… PART=i/n`: the long counts of a test, all cases of it, with a result to commit.

A case is a test that pytest collects while GANGPLANK_SWEEP names the sweep. Each finished case is noted at once, so a
run that was killed continues where it ended. The result goes to tests/sweeps/results/NAME.json and docs/testing.md.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from gangplank import text
from gangplank.errors import Problem, shown
from tools import commits, part_of, write_docs_tables
from tools.sweeps import RESULTS, ROOT, SWEEPS, Result, Sweep, read, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tools.part_of import Part

NOTES = ROOT / ".sweeps"  # a file for each part that has begun, until it is complete
WRITTEN = (  # by a run itself
    "tests/sweeps", "docs/testing.md", "docs/when.md", "docs/fit.md", "docs/bench.md", "docs/troubleshooting.md",
)  # fmt: skip


def commit() -> str | Problem:
    """The commit whose files are tested: the newest one that changes more than results."""
    return commits.commit("make sweep", WRITTEN)


@dataclass
class Notes:
    """The finished cases of a part, a line each; a line that a kill cut off does not count."""

    path: Path
    commit: str
    cases: dict[str, dict[str, Any]]

    @classmethod
    def open(cls, path: Path, today: str) -> Notes:
        """Those of an earlier run of the same commit, or none."""
        rows: list[dict[str, Any]] = []
        with contextlib.suppress(FileNotFoundError):
            for line in path.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    rows.append(json.loads(line))
        head, *cases = rows or [{}]
        if cases and head.get("commit") != today:
            print(f"{len(cases)} finished cases are of the commit {head.get('commit')}; {today} begins with the first")
        if head.get("commit") != today:
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps({"commit": today}) + "\n")
            return cls(path, today, {})
        with path.open("a") as file:
            file.write("\n")  # ends a line that was cut off
        return cls(path, today, {case["case"]: case for case in cases})

    def add(self, case: str, seconds: float, *, passed: bool) -> None:
        """Note a case that has just ended."""
        self.cases[case] = {"case": case, "passed": passed, "seconds": round(seconds, 1)}
        with self.path.open("a") as file:
            file.write(json.dumps(self.cases[case]) + "\n")
            file.flush()
            os.fsync(file.fileno())


class Runner:
    """A pytest plugin: only the cases of this part that have not finished; each is noted when it has."""

    def __init__(self, part: Part, notes: Notes) -> None:
        """Nothing is collected yet."""
        self.part, self.notes = part, notes
        self.cases: list[str] = []
        self.seconds, self.passed = 0.0, True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep what is left to do of this part."""
        mine = items[self.part.number - 1 :: self.part.count]
        if not mine:
            fix = f"PART=i/n with n up to {len(items)}"
            raise pytest.UsageError(str(Problem("PART", str(self.part), f"at most {len(items)} parts", fix)))
        self.cases = [item.nodeid for item in mine]
        left = [item for item in mine if item.nodeid not in self.notes.cases]
        print(f"\n{len(mine)} cases, {len(mine) - len(left)} of them finished by an earlier run")
        config.hook.pytest_deselected(items=[item for item in items if item not in left])
        items[:] = left

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Sum up a case; a skipped one has not passed."""
        if report.when == "setup":
            self.seconds, self.passed = 0.0, True
        self.seconds += report.duration
        self.passed &= report.passed
        if report.when == "teardown":
            self.notes.add(report.nodeid, self.seconds, passed=self.passed)


@contextlib.contextmanager
def alone(path: Path, *, wait: bool) -> Iterator[None]:
    """One process at a time has this file; another one waits, or raises BlockingIOError."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


@contextlib.contextmanager
def prepared(sweep: Sweep) -> Iterator[None]:
    """What the sweep needs is built or running, and removed afterwards; raises CalledProcessError."""
    try:
        for command in sweep.before:
            subprocess.run(shlex.split(command), cwd=ROOT, check=True)
        yield
    finally:
        for command in sweep.after:
            subprocess.run(shlex.split(command), cwd=ROOT, check=True)


def trainer_root() -> str:
    """Where the trainer's root file system lies."""
    command = [sys.executable, "-m", "lab.build", "--show", "roots.trainer"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def note(
    name: str, part: Part, today: str, cases: int, failed: list[str], minutes: float,
    kind: Callable[..., Result] = Result,
) -> None:  # fmt: skip
    """Write a part's result, and the table of docs/testing.md."""
    kernel = os.uname()
    result = kind(
        commit=today, date=dt.datetime.now(dt.UTC).date().isoformat(),
        machine=f"{os.cpu_count()} cores, {kernel.sysname} {kernel.release.partition('-')[0]}",
        cases=cases, passed=cases - len(failed), failed=failed, minutes=round(minutes, 1))  # fmt: skip
    with alone(NOTES / "results.lock", wait=True):  # other parts may run beside this one
        write(name, str(part), result)
        write_docs_tables.main(["--write"])


def run(name: str, part: Part, today: str) -> int:
    """Run what is left of a part, and write its result when all of its cases have ended."""
    sweep = SWEEPS[name]
    notes = Notes.open(NOTES / f"{name}-{part.number}-of-{part.count}", today)
    runner = Runner(part, notes)
    with prepared(sweep):
        os.environ |= {"GANGPLANK_SWEEP": name, **sweep.environment}
        if "tests/trainer" in sweep.tests:
            os.environ["GANGPLANK_TRAINER_ROOT"] = trainer_root()
        status = pytest.main([*sweep.tests.split(), "--quiet", "-p", "no:cacheprovider"], plugins=[runner])
    left = [case for case in runner.cases if case not in notes.cases]
    if left or not runner.cases:
        print(f"{len(left)} cases are left; the same command continues with them", file=sys.stderr)
        return int(status) or 1
    failed = [case for case in runner.cases if not notes.cases[case]["passed"]]
    minutes = sum(notes.cases[case]["seconds"] for case in runner.cases) / 60
    note(name, part, today, len(runner.cases), [case.rpartition("::")[2] for case in failed], minutes)
    notes.path.unlink()
    print(f"{len(runner.cases) - len(failed)} of {len(runner.cases)} cases passed in {minutes:.0f} minutes; "
          f"the result is in {RESULTS.relative_to(ROOT)}/{name}.json: commit it with docs/testing.md")  # fmt: skip
    return 1 if failed else 0


def overview() -> str:
    """Every sweep with its cases and its last results."""
    rows = [["SWEEP", "CASES", "LAST RESULTS"]]
    for name, sweep in SWEEPS.items():
        results = [f"{part}: {result.passed} of {result.cases}, {result.date}, {result.commit}"
                   for part, result in read(name).items()]  # fmt: skip
        rows.append([name, sweep.cases, "; ".join(results) or "none yet"])
    return f"{text.table(rows)}\n\nmake sweep NAME=… PART=i/n runs a part of one; without PART all of it."


def main(name: str, part_text: str) -> int:
    """Refuse a wrong argument, or run a part, or list the sweeps."""
    part = part_of.parse(part_text)
    today = commit() if name else ""
    known = name in SWEEPS or (not name and not part_text)
    fix = "make sweep lists them"
    problems = [] if known else [Problem("NAME", shown(name), f"one of {', '.join(SWEEPS)}", fix)]
    problems += [item for item in (part, today) if isinstance(item, Problem)]
    if problems or isinstance(part, Problem) or isinstance(today, Problem):
        print("\n".join(map(str, problems)), file=sys.stderr)
        return 2
    if not name:
        print(overview())
        return 0
    try:
        with alone(NOTES / f"{name}-{part.number}-of-{part.count}.lock", wait=False):
            return run(name, part, today)
    except BlockingIOError:
        print(Problem("make sweep", f"another run of {name} {part}", "one at a time", "wait for it"), file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        got = f"exit status {error.returncode} of {shlex.join(error.cmd)}"
        print(Problem("make sweep", got, "what the sweep needs", "see the lines above"), file=sys.stderr)
        return 1


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1], sys.argv[2]))
