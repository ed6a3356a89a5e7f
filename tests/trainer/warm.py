"""A small torchrun that has already imported torch and forks ranks on request: a run costs seconds, not tens.

Runs inside the trainer's root file system. Requests and answers are JSON lines; `harness.py` speaks them.
What torchrun itself adds (its own rendezvous, its environment) is covered by the tests that start the real one.
"""

import contextlib
import ctypes
import json
import os
import runpy
import signal
import sys
import threading
import traceback
from typing import Any

import gangplank_observe
import numpy as np  # noqa: F401  # imported before the fork, so that no rank pays for it
import safetensors.torch  # noqa: F401  # as above
import torch
import torch._dynamo  # DDP and the optimizers import it: a second of each rank's time
import torch.distributed as dist
import torch.nn.parallel  # as above

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
TRAINER = "/opt/gangplank/trainer"
sys.path.insert(0, TRAINER)


def serve_store(answer: int) -> None:
    """The store that node 0's torchrun would serve; reports its port and stays until it is killed."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False)
    os.write(answer, f"{store.port}\n".encode())
    while True:
        signal.pause()


def become(request: dict[str, Any], env: dict[str, str], log: str) -> int:
    """Turn this forked process into one rank; returns its exit status."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for name in [name for name, value in env.items() if not value]:
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in env.items() if value})
    script = str(request["script"])
    sys.argv = [script, *request["argv"]]
    observer = None
    try:
        if script != f"{TRAINER}/train.py" and gangplank_observe.wanted(os.environ, ()):
            observer = gangplank_observe.start()  # as a new interpreter would; this one has imported torch already
        runpy.run_path(script, run_name="__main__")
        if observer:
            observer.end()
    except SystemExit as leaving:
        if observer and leaving.code in {None, 0}:
            observer.end()
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001  # what an interpreter would do: print it and exit with 1
        traceback.print_exc()
        return 1
    finally:
        with contextlib.suppress(Exception):
            threading._shutdown()  # type: ignore[attr-defined]  # a forked child leaves by os._exit, which joins nothing
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def fork(action: object) -> int:
    """Run `action` in a child that never returns from here."""
    pid = os.fork()
    if pid == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a test run that was killed leaves no rank behind
        code = 70
        try:
            code = action() or 0  # type: ignore[operator]  # a function without arguments
        finally:
            os._exit(code)
    return pid


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """Carry one request out."""
    if request["do"] == "store":
        reader, writer = os.pipe()
        pid = fork(lambda: serve_store(writer))
        os.close(writer)
        with os.fdopen(reader) as pipe:
            return {"pid": pid, "port": int(pipe.readline())}
    if request["do"] == "ranks":
        ranks = request["ranks"]
        return {"pids": [fork(lambda rank=rank: become(request, rank["env"], rank["log"])) for rank in ranks]}
    return {"codes": [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in request["pids"]]}


torch.set_num_threads(1)
print("@" + json.dumps({"torch": torch.__version__}), flush=True)
for line in sys.stdin:
    print("@" + json.dumps(answer_to(json.loads(line))), flush=True)
