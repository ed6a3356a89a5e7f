"""A mount namespace is pinned wherever the lab runs: also in a container, which has a mount namespace of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = 'import sys, pathlib; from lab.host import mounts; mounts.pin_mounts(pathlib.Path(sys.argv[1]), ["true"])'
PIN = """
mount --bind "$1" "$1"; mount --make-private "$1"
for name in a b c d; do
  touch "$1/$name"
  "$2" -c "$3" "$1/$name"
  nsenter --mount="$1/$name" true
done
"""


@pytest.mark.parametrize("processor", sorted(os.sched_getaffinity(0)))
def test_pins_a_mount_namespace_below_one_that_any_processor_numbered(processor: int, tmp_path: Path) -> None:
    every = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    parent = ["taskset", "--cpu-list", str(processor), "unshare", "--mount", "--propagation", "private"]
    script = ["taskset", "--cpu-list", every, "sh", "-eu", "-c", PIN, "sh", str(tmp_path), sys.executable, CODE]
    done = subprocess.run([*parent, *script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_says_why_a_namespace_cannot_be_pinned(tmp_path: Path) -> None:
    script = """
import pathlib, sys
from lab.errors import LabError
from lab.host import mounts
try:
    mounts.pin_mounts(pathlib.Path(sys.argv[1]), ["true"])
except LabError as error:
    print(error)
"""
    command = ["unshare", "--mount", "--propagation", "shared", sys.executable, "-c", script, str(tmp_path / "missing")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert "missing" in done.stdout
