"""The machine that figures are made on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

QUIET_LOAD = 0.5  # processes that run or wait, over the last minute, before anything is measured


def described() -> dict[str, Any]:
    """What a result says of its machine."""
    cpu = Path("/proc/cpuinfo").read_text()
    memory = Path("/proc/meminfo").read_text()
    kernel = os.uname()
    model = re.search(r"^model name\s*: (.*)$", cpu, re.MULTILINE)
    total = re.search(r"^MemTotal:\s+(\d+)", memory, re.MULTILINE)
    return {
        "cores": os.cpu_count(),
        "processor": model[1] if model else kernel.machine,
        "memory_gib": round(int(total[1]) / 2**20) if total else 0,
        "kernel": f"{kernel.sysname} {kernel.release.partition('-')[0]}",
        "load_before": round(load(), 2),
    }


def load() -> float:
    """Processes that run or wait, over the last minute."""
    return os.getloadavg()[0]
