"""The seconds in which the race of teams counts."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path


class Clock:
    """Seconds of a machine that does nothing else: wall seconds, less the CPU time that others than the lab have used.

    At least a tenth of the wall's seconds pass, so that no load hides a team that starves. On a cluster of somebody
    else, whose machines cannot be asked, they are wall seconds.
    """

    LEAST = 0.1

    FOLDERS = ("/sys/fs/cgroup/cpuacct/gangplank", "/sys/fs/cgroup/cpu,cpuacct/gangplank", "/sys/fs/cgroup/gangplank")

    def __init__(self, kwok: int) -> None:
        """Begin; `kwok` is the process of the simulated nodes, which counts as a part of the lab."""
        self.kwok, self.passed, self.lock = kwok, 0.0, threading.Lock()
        self.last = self.read()

    def read(self) -> tuple[float, float]:
        """Now, and the seconds of CPU that anything else has used."""
        ticks = os.sysconf("SC_CLK_TCK")
        user, nice, system, _, _, *more = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
        own = Path(f"/proc/{self.kwok}/stat").read_text().rpartition(")")[2].split()
        ours = sum(map(int, own[11:13])) / ticks + time.process_time()
        return time.monotonic(), (user + nice + system + sum(more)) / ticks - ours - self.lab()

    def lab(self) -> float:
        """Seconds of CPU that the lab has used."""
        for folder in map(Path, self.FOLDERS):
            if (folder / "cpuacct.usage").exists():
                return int((folder / "cpuacct.usage").read_text()) / 1e9
            if (folder / "cpu.stat").exists():
                return int((folder / "cpu.stat").read_text().split()[1]) / 1e6
        return 0.0

    def now(self) -> float:
        """The seconds that have passed."""
        with self.lock:
            at, foreign = self.read()
            took = at - self.last[0]
            if took >= 0.2:
                used = (foreign - self.last[1]) / (os.cpu_count() or 1) if self.lab() else 0.0
                self.passed += max(self.LEAST * took, took - max(0.0, used))
                self.last = at, foreign
            return self.passed
