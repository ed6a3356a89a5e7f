#!/usr/bin/env python3
"""The image's entry point: torchrun.py with the wiring that the back-end put into the environment.

    start.py [script.py] [flags...]        a pod of a job: every back-end's variables are understood
    start.py --standalone [flags...]       one pod alone, on purpose

So a manifest may name the image and nothing but flags, as in `args: ["--backend", "nccl"]`. A pod without wiring is
refused: a distributed job whose wiring was lost must not train in every pod by itself. Standard library only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Which variables hold nodes, node rank, address and port, the first complete row wins. The training operator's
# WORLD_SIZE counts processes, so its PET_ row comes first; Volcano's and Indexed Jobs' count pods.
WIRINGS = (
    ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"),
)
# torchrun's own --standalone would look its host name up, which not every machine can.
ALONE = ["--nnodes=1", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=29500"]
# Seconds a pod waits for the others; the containers of pods that gave up start again. backends/wiring.py has the same.
RENDEZVOUS_S = 120


class StartError(ValueError):
    """The environment does not say where this pod stands: what is missing, and the fix."""


def command(env: Mapping[str, str], argv: Sequence[str]) -> list[str]:
    """The command line to become.

    >>> wiring = {"WORLD_SIZE": "3", "RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    >>> command(wiring, ["a.py", "--epochs", "2"])[3:6]
    ['--nnodes=3', '--node-rank=1', '--master-addr=a']
    """
    words = list(argv)
    alone = words[:1] == ["--standalone"]
    if alone:
        del words[0]
    here = Path(__file__).parent
    script = words.pop(0) if words and not words[0].startswith("-") else str(here / "train.py")
    processes = env.get("PET_NPROC_PER_NODE", "1")
    if not processes.isdigit():
        processes = "1"  # `auto`, the operators' default, would be one per CPU of the node and not of the pod
    launcher = [str(here / "torchrun.py")] if Path(script).parent == here else ["-m", "torch.distributed.run"]
    return ["python3", *launcher, *(ALONE if alone else _where(env)),
            f"--nproc-per-node={processes}", script, *words]


def _where(env: Mapping[str, str]) -> list[str]:
    for names in WIRINGS:
        if all(env.get(name) for name in names):
            nodes, rank, address, port = (env[name] for name in names)
            if ":" in nodes:
                raise StartError(f"PET_NNODES: got {nodes!r}, an elastic range. Fix: use a command with torchrun")
            return [f"--nnodes={nodes}", f"--node-rank={rank}", f"--master-addr={address}", f"--master-port={port}",
                    f"--rdzv-conf=timeout={RENDEZVOUS_S}"]
    missing = " or ".join(", ".join(name for name in names if not env.get(name)) for names in reversed(WIRINGS))
    raise StartError(f"no wiring in the environment ({missing} not set). Fix: check the job's plugin or "
                     "operator, or pass --standalone first to train in this pod alone")


def main() -> NoReturn:
    """Become torchrun, or refuse."""
    try:
        words = command(os.environ, sys.argv[1:])
    except StartError as error:
        print(f"start.py: {error}", file=sys.stderr)
        sys.exit(2)
    # torchrun would read again what its flags already say, `auto` among it
    env = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    os.execvpe(words[0], words, env)  # noqa: S606  # the point of an entry point


if __name__ == "__main__":
    main()
