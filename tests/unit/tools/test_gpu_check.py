"""make gpu-check where there is no GPU: one line, and no success. What it does to a training is in tests/trainer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.gpu_check import Figure, Group, groups, table

ROOT = Path(__file__).parents[3]
NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}


def test_without_a_gpu_it_says_so_in_one_line_and_does_not_succeed() -> None:
    done = subprocess.run([sys.executable, "-m", "tools.gpu_check"], cwd=ROOT, env=NO_GPU, capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gpu-check: nothing was checked: {sys.executable}: got no torch")
    assert "expected a GPU. Fix: run it on a machine with an NVIDIA GPU" in line


def test_make_fails_too_and_needs_no_setup() -> None:
    done = subprocess.run(["make", "gpu-check", f"PYTHON={sys.executable}"], cwd=ROOT, env=NO_GPU, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2
    assert "gpu-check: nothing was checked" in done.stderr
    assert done.stdout == ""


def test_a_python_that_does_not_run_is_named() -> None:
    done = subprocess.run(["make", "gpu-check", "PYTHON=/nonexistent/python3"], cwd=ROOT, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2
    assert "/nonexistent/python3" in done.stderr


def test_one_gpu_is_shared_by_two_ranks_and_each_gpu_has_a_rank_of_nccl() -> None:
    assert [(group.ranks, group.gpus) for group in groups(["GPU-1"])] == [(1, ("GPU-1",)), (2, ("GPU-1",))]
    assert [(group.ranks, group.gpus) for group in groups(["GPU-1", "GPU-2", "GPU-3"])] == [
        (3, ("GPU-1", "GPU-2", "GPU-3")), (2, ("GPU-1",))]


def test_any_number_of_ranks_takes_about_as_many_steps() -> None:
    assert [ranks * Group("", ranks, (), ()).batch for ranks in (1, 2, 3, 8, 128)] == [128, 128, 126, 128, 128]


def test_the_table_has_a_line_per_precision() -> None:
    assert table([Figure("bf16", 900, 800, 1000, 0.9, 0.8)]).splitlines()[1].split() == [
        "bf16", "1,000", "900", "0.90", "800", "0.80"]
