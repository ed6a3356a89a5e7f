"""`make bench PARTS="gangs expand"`: measure, compare with the committed result, and write result and page.

A result names its commit, and is of a machine that does nothing else; OUT=FOLDER measures without both, and keeps the
figures out of bench/results.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime as dt
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench import machine, page
from bench.figures import Result, compare, not_compared, number, of_json, ranged, read, to_json
from bench.part import ROOT, STATE, BenchError, Lab, Setting, parts, playbook, run
from gangplank import text
from gangplank.cli.fetch import interruptible
from gangplank.disk import rename
from gangplank.errors import GangplankError, Problem
from gangplank.wait import late, polls
from tools import commits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.figures import Figure
    from bench.part import Measure

RESULTS = ROOT / "bench/results"
WRITTEN = ("bench/results", "docs/bench.md", "docs/bench", "docs/faults.md", "README.md")  # by a run itself
USUAL, EVERY = "usual", "all"
QUIET_S = 300.0  # for what the part before has done to leave the load


def chosen(words: Sequence[str], every: dict[str, Measure]) -> dict[str, Measure] | list[Problem]:
    """The parts that are asked for, or every wrong name."""
    groups = {USUAL: [name for name, module in every.items() if module.PART.usual], EVERY: list(every)}
    names = {name for word in words for name in groups.get(word, [word])}
    wrong = [
        Problem("PARTS", word, f"one of {', '.join([*groups, *every])}", "make bench lists them")
        for word in words
        if word not in groups and word not in every
    ]
    return wrong or {name: module for name, module in every.items() if name in names}


def hindrances(some: dict[str, Measure]) -> list[Problem]:
    """What keeps these parts from being measured here and now."""
    problems = []
    root = [name for name, module in some.items() if module.PART.root or module.PART.lab is not Lab.ANY]
    if root and os.geteuid() != 0:
        problems.append(Problem(f"user for {', '.join(root)}", f"uid {os.geteuid()}", "root", "sudo make bench"))
    down = [name for name, module in some.items() if module.PART.lab is Lab.DOWN]
    if down and STATE.exists():
        got = f"a lab that is up, at {STATE}"
        problems.append(Problem(f"lab for {', '.join(down)}", got, "none", "make down, then run it again"))
    return problems


def overview(every: dict[str, Measure]) -> str:
    """Every part with what it needs and its last result."""
    results = read(RESULTS)
    rows = [["PART", "MEASURES", "MINUTES", "LAB", "MACHINE", "LAST RESULT"]]
    for name, module in every.items():
        part = module.PART
        last = results.get(name)
        usual = "" if part.usual else ", not in usual"
        rows.append([
            name, part.title, f"{part.minutes:g}{usual}", part.lab.value, "quiet" if part.quiet else "any",
            f"{last.date}, {last.commit}" if last else "none yet",
        ])  # fmt: skip
    total = sum(module.PART.minutes for module in every.values() if module.PART.usual)
    return (
        f'{text.table(rows)}\n\nmake bench PARTS="{USUAL}" measures the usual ones, in about {total:.0f} minutes;'
        f" PARTS={EVERY} all of them."
    )


@contextlib.contextmanager
def lab(*, needed: bool) -> Iterator[None]:
    """The lab with Volcano and storage, for as long as parts need it; one that runs already stays."""
    if not needed or STATE.exists() or os.environ.get("GANGPLANK_KUBECONFIG"):
        yield
        return
    try:
        playbook("playbooks/lab.yml", "playbooks/site.yml")
        yield
    finally:
        playbook("playbooks/lab-down.yml")


def quieten(name: str) -> None:
    """Wait until the machine does nothing else; raises BenchError at the time limit."""
    expected = f"at most {machine.QUIET_LOAD}"
    for tries, _ in enumerate(polls(QUIET_S, 5)):
        if (busy := machine.load()) <= machine.QUIET_LOAD:
            return
        if not tries:
            print(f"{name}: waits until the load is {expected}; it is {busy:.2f}", file=sys.stderr, flush=True)
    fix = "end other work, or keep the figures out of bench/results with OUT=FOLDER"
    raise BenchError(late(f"machine for {name}", f"load {busy:.2f}", expected, QUIET_S, fix))


def measured(name: str, module: Measure, commit: str, folder: Path) -> tuple[Result, list[Figure]]:
    """Measure one part and keep its result; with the figures that this run has made."""
    part, path = module.PART, folder / f"{name}.json"
    if part.quiet and folder == RESULTS:
        quieten(name)
    about, began, today = machine.described(), time.monotonic(), dt.datetime.now(dt.UTC).date().isoformat()
    print(f"{name}: {part.title}, about {part.minutes:g} minutes", file=sys.stderr, flush=True)
    before = of_json(path.read_text()).figures if part.adds and path.exists() else ()
    run_facts = {"date": today, "commit": commit, "cores": about["cores"]} if part.adds else {}
    new: list[Figure] = []

    def result() -> Result:
        kept = [one for one in before if one.id not in {it.id for it in new}]
        return Result(today, commit, about, round((time.monotonic() - began) / 60, 1), (*kept, *new))

    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as own:
        for one in module.measure(Setting(Path(own))):
            new.append(dataclasses.replace(one, facts={**one.facts, **run_facts}))
            if part.adds:
                keep(path, result())
    if not part.adds:
        keep(path, result())
    return result(), new


def keep(path: Path, result: Result) -> None:
    """Write a result so that an interrupted run leaves the old or the new one."""
    draft = path.with_suffix(".new")
    draft.write_text(to_json(result))
    rename(draft, path)


def shown(result: Result) -> str:
    """The figures as a table."""
    rows = [["FIGURE", "VALUE", "SPREAD", "PEER", "FLOOR", "GOAL", "REACHED"]]
    for one in result.figures:
        beside = [f"{number(it.value)} ({it.name})" if it else "" for it in (one.peer, one.floor)]
        goal = f"{'at most' if one.better == 'less' else 'at least'} {number(one.goal)}" if one.goal is not None else ""
        reached = {True: "yes", False: "NO", None: ""}[one.met]
        rows.append([one.title, f"{number(one.value)} {one.unit}", ranged(one.spread), *beside, goal, reached])
    return text.table(rows)


def forbidden(one: Figure) -> bool:
    """Whether a figure counts what must not happen, and it happened."""
    return one.goal == 0 and not one.met


def committed(name: str) -> Result | None:
    """The result of the last commit."""
    done = subprocess.run(
        ["git", "show", f"HEAD:bench/results/{name}.json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return of_json(done.stdout) if done.returncode == 0 else None


def reason(error: BaseException) -> str:
    """Why a part failed; where, if it is not a refusal of ours."""
    return str(error) if isinstance(error, GangplankError) else "".join(traceback.format_exception(error)).rstrip()


def every_part(some: dict[str, Measure], commit: str, folder: Path) -> int:
    """Measure the parts, one after the other; how many failed, had what must not happen, or became slower."""
    wrong = 0
    for needs in Lab:
        now = {name: module for name, module in some.items() if module.PART.lab is needs}
        with lab(needed=needs is Lab.UP and bool(now)):
            for name, module in now.items():
                try:
                    result, new = measured(name, module, commit, folder)
                except (Exception, pytest.fail.Exception) as e:  # noqa: BLE001  the other parts are measured all the same
                    print(f"{name}: {reason(e)}", file=sys.stderr, flush=True)
                    wrong += 1
                    continue
                old = committed(name)
                lines = [f"WRONG {one.id}: got {number(one.spread[1])} {one.unit}" for one in new if forbidden(one)]
                lines += [f"SLOWER {line}" for line in compare(old, result)] if old else []
                wrong += bool(lines)
                lines += filter(None, [not_compared(old, result)]) if old else []
                print("\n".join([shown(result), *lines]), flush=True)
    return wrong


def main(arguments: Sequence[str]) -> int:
    """List the parts, or refuse, or measure."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--out", type=Path, help="a folder for results that are not to be committed")
    options = parser.parse_args(arguments)
    every = parts()
    if not options.parts:
        print(overview(every))
        return 0
    some = chosen(options.parts, every)
    commit = commits.git("rev-parse", "--short=10", "HEAD") if options.out else commits.commit("make bench", WRITTEN)
    problems = [one for one in (commit,) if isinstance(one, Problem)]
    problems += some if isinstance(some, list) else hindrances(some)
    if problems or isinstance(some, list) or isinstance(commit, Problem):
        print("\n".join(map(str, problems)), file=sys.stderr)
        return 2
    folder = options.out or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sorted({part for module in some.values() for part in module.PART.builds})
    try:
        with interruptible():
            if wanted:
                run(sys.executable, "-m", "lab.build", *wanted)
            wrong = every_part(some, commit, folder)
    except (BenchError, KeyboardInterrupt) as error:
        print(str(error) or "interrupted: the parts before are kept", file=sys.stderr)
        wrong = 1
    if not options.out:
        page.write()
        print(f"the results are in {RESULTS.relative_to(ROOT)}, the page is docs/bench.md: commit both")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
