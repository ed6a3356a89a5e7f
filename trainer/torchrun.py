#!/usr/bin/env python3
"""torchrun that forks its ranks, so that a pod imports torch once and not twice.

    torchrun.py [torchrun's flags] script.py [the script's flags]

Flags, rendezvous, restarts and exit status are torchrun's own. A rank sees what a new interpreter would give it: its
script's folder first in sys.path, its own signals, lines that leave at once. Its process is named after it: rank-0.
https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

from torch.distributed import run


def rank(script: str, *flags: str) -> None:
    """One rank, in its process."""
    Path("/proc/self/comm").write_text(f"rank-{os.environ['RANK']}")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # the agent's would raise in the middle of what the rank does
    for stream in (sys.stdout, sys.stderr):
        # Without write_through a line and its end are one write, which no other rank of the pod can come between.
        stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]  # text streams of an interpreter
    sys.argv, sys.path[0] = [script, *flags], str(Path(script).parent)
    observer = None if Path(script) == Path(__file__).with_name("train.py") else observe()
    ended_well = False
    try:
        runpy.run_path(script, run_name="__main__")
        ended_well = True
    except SystemExit as leaving:
        ended_well = leaving.code in (None, 0)
        raise
    finally:
        if observer and ended_well:
            observer.end()
        elif observer:
            observer.stand_down()


def observe() -> Any:
    """The observer of this rank's script, as a new interpreter would load it (image/gangplank_observe.py)."""
    try:
        import gangplank_observe  # type: ignore[import-not-found]  # image/ is laid beside torch
    except ImportError:  # no image of ours
        return None
    return gangplank_observe.start() if gangplank_observe.wanted(os.environ, ()) else None


def main() -> None:
    """Torchrun's own main, with ranks that are forks of it."""
    # Once this process has asked CUDA for its devices, a fork of it cannot use them; NVML can be asked instead.
    # https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#poison-fork-in-multiprocessing
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    run.run_script_path = rank  # what --run-path starts
    run.main(["--run-path", "--start-method=fork", *sys.argv[1:]])


if __name__ == "__main__":
    main()
