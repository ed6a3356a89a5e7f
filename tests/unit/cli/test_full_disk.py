"""D11: what a command prints goes to a file on a full disk: one message, and no traceback."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = ("expand jobs/digits.yml", "expand jobs/digits.yml -o yaml", "completion bash")
DISK_FULL = "gangplank: standard output: got No space left on device, expected space to write. Fix: free some\n"


@pytest.mark.parametrize("words", COMMANDS)
def test_d11_a_full_disk_under_what_is_printed_is_one_message(words: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(words, full.fileno())
    assert (done.returncode, done.stderr) == (1, DISK_FULL)


@pytest.mark.parametrize("words", COMMANDS)
def test_d11_so_is_a_file_that_may_not_grow_where_only_the_end_of_the_run_writes_it(words: str, tmp_path: Path) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    with (tmp_path / "output").open("w") as file:
        done = run(words, file.fileno(), limit)
    assert (done.returncode, done.stderr) == (1, DISK_FULL.replace("No space left on device", "File too large"))


@pytest.mark.parametrize("words", COMMANDS)
def test_d11_a_closed_standard_output_is_no_error(words: str) -> None:
    done = run(words, subprocess.DEVNULL, partial(os.close, 1))
    assert (done.returncode, done.stderr) == (0, "")


def run(words: str, output: int, before: partial[None] | None = None) -> subprocess.CompletedProcess[str]:
    """A command whose standard output is this file."""
    command = [sys.executable, "-B", "-m", "gangplank", *words.split()]
    return subprocess.run(
        command, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True, check=False, preexec_fn=before, timeout=60
    )
