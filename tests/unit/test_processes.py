"""D6: a worker without the run that it reports to ends, however long its result is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gangplank.processes import is_hidden, process
from gangplank.wait import polls

NAMED = """
import ctypes, signal
ctypes.CDLL(None).prctl(15, "a\u0431\u0431\u0431\u0431\u0431\u0431\u0431\u0431".encode()[:14], 0, 0, 0)
print(flush=True)
signal.pause()
"""
RUN = """
import multiprocessing, os, signal, sys
from gangplank.processes import end_with_parent
from gangplank.wait import polls

def work():
    end_with_parent(False)
    if sys.argv[1] == "before":
        assert any(os.getppid() != parent for _ in polls(30, 0.01))
    end_with_parent(True)
    results.put("a" * 2**20)  # more than a pipe holds

parent, results = os.getpid(), multiprocessing.SimpleQueue()
worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
print(worker.pid, flush=True)
if sys.argv[1] == "while":
    assert results._reader.poll(30), "it did not begin to write"
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_whose_name_is_cut_inside_a_character_is_one_as_others_are() -> None:
    """Each command that looked for the holder of a lock ended in a traceback."""
    with subprocess.Popen([sys.executable, "-c", NAMED], stdout=subprocess.PIPE) as odd:
        try:
            assert odd.stdout
            assert odd.stdout.readline() == b"\n"
            assert b"\xd0)" in Path(f"/proc/{odd.pid}/stat").read_bytes()
            assert process(odd.pid)["pid"] == odd.pid
            assert not is_hidden(odd.pid)
        finally:
            odd.kill()


@pytest.mark.parametrize("killed", ["before", "while"])
def test_d6_a_worker_ends_with_its_run_before_or_while_it_writes_a_long_result(killed: str, tmp_path: Path) -> None:
    """It did not end, and held its lock."""
    with (tmp_path / "output").open("w") as output:
        subprocess.run([sys.executable, "-c", RUN, killed], stdout=output, check=False, timeout=60)
    worker = Path("/proc", (tmp_path / "output").read_text().strip())
    try:
        assert any(not worker.exists() or "State:\tZ" in (worker / "status").read_text() for _ in polls(10, 0.1))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(worker.name), signal.SIGKILL)
