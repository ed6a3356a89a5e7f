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


BELOW = """
import pathlib, subprocess, sys
from lab.errors import LabError
from lab.host import lock, node
state, own = pathlib.Path(sys.argv[1], "lab"), pathlib.Path(sys.argv[1], "own")
for folder in (state / "shared/data", own):
    folder.mkdir(parents=True)
(own / "mine").write_text("precious")
(state / lock.NAME).touch()
subprocess.run(["mount", "--bind", own, state / "shared/data"], check=True)
try:
    node.refuse_mounts(state)
    node.remove_lab(state)
except LabError as error:
    print(error)
"""


def test_d9_what_is_mounted_below_the_labs_folder_is_not_removed_with_it(tmp_path: Path) -> None:
    isolated = ["unshare", "--mount", "--propagation", "private"]
    command = [*isolated, sys.executable, "-c", BELOW, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    fix = f"Fix: umount {tmp_path}/lab/shared/data, then run it again"
    assert done.stdout.strip().endswith(f"expected only the lab's own files. {fix}")
    assert (tmp_path / "own/mine").read_text() == "precious"


MOUNTED = """
import os, pathlib, subprocess, sys
from lab.host import files, kubeconfig
folder = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "--bind", folder / "real", folder / "config"], check=True)
text = (folder / "config").read_text()
kubeconfig._write(folder / "config", text, kubeconfig.parse(text, folder) | {"current-context": "b"}, added=())
print((folder / "config").read_text(), end="")
"""


def test_d8_a_kubeconfig_that_is_mounted_is_written_too(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("kind: Config\ncurrent-context: a-longer-name\n")
    (tmp_path / "config").touch()
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", MOUNTED, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("kind: Config\ncurrent-context: b\n", 0), done.stderr
    assert (tmp_path / "real").read_text() == done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"real", "config"}
