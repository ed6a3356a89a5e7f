"""A script that knows nothing of the observer, with or without it: `observer_cpu.py KIND SCRIPT ARGUMENTS…`.

Prints the CPU seconds, user and system, of this process and all its threads, the observer's own included: `run` from
after torch's import to the end, `process` from the process's own begin. KIND is with, evidence (the observer writes
evidence, and says neither where a rank stands still nor where its time goes; it still reads the clock at each
collective), or without.
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
    kind = sys.argv[1]
    if kind == "evidence":
        os.environ |= {"GANGPLANK_STUCK_S": "0", "GANGPLANK_PACE_S": "0"}
    if kind != "without":
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
