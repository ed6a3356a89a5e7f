"""The lab's nodes, killed after each step of their making or removal: the next run puts everything right.

A sample of the kill points; the sweep `host-kills` tries all of them.
"""

from __future__ import annotations

import functools
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.support.sweeps import sweeping

ROOT = Path(__file__).resolve().parents[2]
RUNS = (
    "D1 make", "D1 join", "D1 leave", "D1 remove", "D1 again", "D2 reboot", "D2 make-cut", "D1 configure", "D2 cut",
)  # fmt: skip
SEED, SAMPLE = 20261122, 12


def drive(what: str, scratch: Path, limit: int) -> dict[str, Any]:
    """The report of tests/support/host_kills.py in fresh namespaces, or {"failure": …}."""
    isolated = ["unshare", "--mount", "--net", "--propagation", "private"]
    # On one processor: Linux 6.18 refuses to pin a mount namespace whose number is below its parent's, and every
    # processor draws numbers from a stock of its own. A lab's parent is the machine's first namespace, the lowest.
    processor = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    command = [*processor, *isolated, sys.executable, "-m", "tests.support.host_kills"]
    place = [str(scratch), str(limit)]
    done = subprocess.run([*command, what, *place], cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    shutil.rmtree(scratch, ignore_errors=True)
    if done.returncode:
        return {"failure": done.stderr.strip()[-600:]}
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def differences(report: Any, expected: Any, path: str = "") -> list[str]:
    """Where two reports differ."""
    if isinstance(report, dict) and isinstance(expected, dict):
        names = sorted(report.keys() | expected.keys())
        return [line for name in names for line in differences(report.get(name), expected.get(name), f"{path}/{name}")]
    return [] if report == expected else [f"{path}: got {str(report)[:1500]}, expected {str(expected)[:1500]}"]


@functools.cache
def undisturbed(what: str) -> dict[str, Any]:
    """The report of a run that nothing kills."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # on the root's disk
        report = drive(what, Path(folder, "undisturbed"), 0)
    assert "failure" not in report, report
    assert (bool(report["first"]), report["killed"]) == (False, False)
    assert report["steps"] > (10 if what == "leave" else 20)
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A sample of the kill points; in the sweep all of them, whose number only a run can say."""
    if "share" not in metafunc.fixturenames:
        return
    cases = []
    for title in RUNS:
        what = title.split()[1]
        if sweeping("host-kills"):
            steps = undisturbed(what)["steps"]
            cases += [pytest.param(what, Fraction(n, steps), id=f"{title} {n}") for n in range(1, steps + 1)]
        else:
            sample = sorted(random.Random(f"{SEED} {what}").sample(range(1, 101), SAMPLE))
            cases += [pytest.param(what, Fraction(n, 100), id=f"{title} at {n} percent") for n in sample]
    metafunc.parametrize(("what", "share"), cases)


def test_a_run_after_a_kill_converges(what: str, share: Fraction) -> None:
    expected = undisturbed(what)
    point = math.ceil(share * expected["steps"])
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # on the root's disk
        report = drive(what, Path(folder, str(point)), point)
    assert "failure" not in report, f"{what}, killed after step {point}: {report['failure']}"
    wrong = differences({key: report[key] for key in ("facts", "second", "stable")},
                        {"facts": expected["facts"], "second": False, "stable": True})  # fmt: skip
    assert not wrong, f"{what}, killed after step {point}:\n" + "\n".join(wrong)
    assert report["killed"] or point > expected["steps"] - 2, "a link that the kernel removes itself is not a step"


def test_d2_a_run_after_a_reboot_says_what_it_healed() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        report = drive("reboot", Path(folder, "healed"), 1)
    assert "failure" not in report, report
    parts = ("network was", "cgroup was", "mounts were missing")
    expected = [f"{node}: its {part}" for node in ("node-0", "node-1") for part in parts]
    assert [line for line in expected if not any(row.startswith(line) for row in report["first"])] == []


REUSED = """
import os, subprocess
from lab.host.namespaces import NETNS
from lab.host.processes import pinned_namespaces
run = lambda *words: subprocess.run(words, check=True)
run("mount", "-t", "tmpfs", "gangplank-test", "/run")
run("ip", "netns", "add", "gangplank-node-0")
with pinned_namespaces("node-0") as numbers:
    run("ip", "netns", "del", "gangplank-node-0")
    for count in range(100):
        run("ip", "netns", "add", f"another-{count}")
    print(len(numbers), [path.name for path in NETNS.iterdir() if path.stat().st_ino in numbers])
"""


def test_d1_processes_of_a_namespace_that_takes_a_removed_ones_number_are_not_killed() -> None:
    command = ["unshare", "--mount", "--net", "--propagation", "private", sys.executable, "-c", REUSED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout == "1 []\n", "else the removal of a node would kill what starts meanwhile"
