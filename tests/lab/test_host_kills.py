"""The lab's nodes, killed after each step of their making or removal: the next run puts everything right.

A sample of the kill points; with GANGPLANK_FULL=1 all of them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEED, SAMPLE = 20261122, 12


def drive(what: str, scratch: Path, limit: int) -> dict[str, Any]:
    """The report of tests/support/host_kills.py in fresh namespaces, or {"failure": …}."""
    isolated = ["unshare", "--mount", "--net", "--propagation", "private"]
    # On one processor: Linux 6.18 refuses to pin a mount namespace whose number is below its parent's, and every
    # processor draws numbers from a stock of its own. A lab's parent is the machine's first namespace, the lowest.
    processor = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    command = [*processor, *isolated, sys.executable, "-m", "tests.support.host_kills"]
    place = [str(scratch), str(limit)]
    done = subprocess.run([*command, what, *place], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
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


@pytest.mark.parametrize("what", ["D1 make", "D1 remove", "D2 reboot"])
def test_a_run_after_a_kill_converges(what: str) -> None:
    what = what.split()[1]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, ThreadPoolExecutor(2) as pool:  # on the root's disk
        undisturbed = drive(what, Path(folder, "0"), 0)
        assert "failure" not in undisturbed, undisturbed
        assert (undisturbed["first"], undisturbed["killed"]) == (False, False)
        steps = undisturbed["steps"]
        assert steps > 20
        points = list(range(1, steps + 1))
        if not os.environ.get("GANGPLANK_FULL"):
            points = sorted(random.Random(SEED).sample(points, SAMPLE))
        reports = list(pool.map(lambda n: drive(what, Path(folder, str(n)), n), points))
    wrong = {}
    for point, report in zip(points, reports, strict=True):
        expected = {"facts": undisturbed["facts"], "second": False, "stable": True}
        lines = [report["failure"]] if "failure" in report else differences({k: report[k] for k in expected}, expected)
        if lines:
            wrong[point] = lines
    print(f"{what}: {steps} kill points, {len(points)} tried, {len(points) - len(wrong)} converged")
    assert not wrong, json.dumps(wrong, indent=1)
    assert sum(report["killed"] for report in reports) >= len(points) - 2  # a link that the kernel removes: no step


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
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "1 []\n", "else the removal of a node would kill what starts meanwhile"
