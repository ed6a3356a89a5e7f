"""A script of somebody's, observed or not: `observer_cpu.py with|without SCRIPT ARGUMENTS…`; prints the CPU seconds.

User and system, of this process and all its threads, the observer's own included: `run` from after torch's import to
the end, `process` from the process's own begin.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import sys
from typing import Any


def spent() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """A whole script."""
    if core := os.environ.get("BENCH_CORE"):
        os.sched_setaffinity(0, {int(core)})
    began, loading = spent(), 0.0
    watching: Any = None
    if sys.argv[1] == "with":
        import gangplank_observe  # type: ignore[import-not-found]  # in the image

        os.environ["GANGPLANK_OBSERVE"] = "1"
        watching = gangplank_observe.start()
        loading = watching.OBSERVER.seconds
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    if watching:
        watching.end()
    counted = watching.OBSERVER.seconds if watching else 0.0
    whole = spent()
    row = {"event": "cpu", "run": whole - began, "process": whole, "counted": counted, "loading": loading}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
