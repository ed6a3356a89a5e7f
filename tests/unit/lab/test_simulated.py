"""KWOK on a cluster: it ends with the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from gangplank.wait import polls

HOLDER = """
import sys, time
from pathlib import Path
from lab import simulated
folder = Path(sys.argv[1])
simulated.build = lambda *_, **__: {"bin": {"kwok": str(folder)}, "charts": {"kwok-stages": str(folder)}}
simulated.stages = lambda *_: []
with simulated.kwok("admin.kubeconfig", folder) as pid:
    print(pid, flush=True)
    time.sleep(60)
"""


def test_kwok_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "kwok").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "kwok").chmod(0o755)
    words = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as holder:
        assert holder.stdout
        pid = int(holder.stdout.readline())
        assert any(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for _ in polls(5, 0.02))
        holder.kill()
    try:
        assert any(not alive(pid) for _ in polls(5, 0.02))
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
