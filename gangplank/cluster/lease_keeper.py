"""The process beside a run that renews its Lease, however long a task takes, and removes it when the run has ended.

It belongs to no terminal, so that it also sees the end of a run that was interrupted or killed.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.errors import KubeError
from gangplank.processes import living
from gangplank.wait import polls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangplank.cluster.lease import Lock

LOOK_S = 1.0
RENEW_S = 15.0
TERM = {signal.SIGTERM}
MODULE = "gangplank.cluster.lease_keeper"


def start(lock: Lock, record: dict[str, Any], choice: tuple[str | None, str | None], environment: Mapping[str, str],
          job: tuple[str, str]) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start it for a lock that the process of the record has just taken."""
    facts = json.dumps({"choice": choice, "job": job, "record": record})
    command = [sys.executable, "-P", "-m", MODULE, lock.place, str(record["pid"]), facts]
    none = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdin=none, stdout=none, stderr=none, start_new_session=True)


def end(lock: Lock, record: dict[str, Any]) -> None:
    """End it, since the lock is free again."""
    words = ["-m", MODULE, lock.place, str(record["pid"])]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[2:6] == words:
                os.kill(int(entry.name), signal.SIGTERM)
        except OSError:  # it has ended, or is another user's
            continue


def keep(record: dict[str, Any], lock: Callable[[], Lock]) -> None:
    """Renew the lock while the process lives, then free it. The cluster is asked only when that is due."""
    asked = time.monotonic()
    for _ in polls(math.inf, LOOK_S):
        alive = living(record)
        if alive and time.monotonic() - asked < RENEW_S:
            continue
        asked = time.monotonic()
        try:
            if not alive:
                lock().free(record)
                return
            if not lock().renew(record):
                return
        except KubeError:  # a lock that is not renewed or freed expires
            if not alive:
                return


def main() -> None:
    """Keep the lock that the command line names."""
    # Its client's temporary files, such as the key of a kubeconfig, are removed only when Python itself ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    facts = json.loads(sys.argv[3])

    def lock() -> Lock:
        from gangplank.cluster.client import Kube
        from gangplank.cluster.lease import Lock

        signal.pthread_sigmask(signal.SIG_BLOCK, TERM)  # a file that the client has made and not yet noted would stay
        try:
            kube = Kube(*facts["choice"])
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TERM)
        return Lock(kube if living(facts["record"]) else kube.patient(), *facts["job"])

    keep(facts["record"], lock)


if __name__ == "__main__":
    main()
