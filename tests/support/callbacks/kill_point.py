"""A callback that ends ansible-playbook by SIGKILL at the start, in the middle or at the end of its n-th task.

GANGPLANK_KILL is "NUMBER MOMENT SECONDS": `start`, `middle` (SECONDS after the start) and `end` kill every process of
the run, `alone` kills only ansible-playbook in the middle, while its worker goes on. A task shorter than SECONDS is
killed at its end. Without it nothing is killed.
GANGPLANK_KILL_NOTES is a file that gets a line of JSON for each task that ran: its number, name and seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        left += children.get(left[0], [])
        found.append(left.pop(0))
    return found[1:]


def kill(*, alone: bool) -> None:
    """End this process by SIGKILL, and first what it has started."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in [] if alone else descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    os.kill(os.getpid(), signal.SIGKILL)


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """Counts tasks."""

    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "notification", "kill_point"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        number, self.moment, seconds = (os.environ.get("GANGPLANK_KILL") or "-1 never 0").split()
        self.number, self.seconds = int(number), float(seconds)
        self.count, self.begin, self.name, self.noted = 0, 0.0, "", False

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002  Ansible's own signature
        """Count the task."""
        self.kill_at_the_latest()
        self.count, self.begin, self.name, self.noted = self.count + 1, time.monotonic(), task.get_name(), False
        if self.count != self.number:
            return
        if self.moment == "start":
            kill(alone=False)
        if self.moment in ("middle", "alone"):
            timer = threading.Timer(self.seconds, kill, kwargs={"alone": self.moment == "alone"})
            timer.daemon = True
            timer.start()

    def ended(self, *_: Any, **__: Any) -> None:
        """Note the first end of the task, on any host."""
        if self.noted:
            return
        self.noted = True
        if notes := os.environ.get("GANGPLANK_KILL_NOTES"):
            line = {"number": self.count, "name": self.name, "seconds": round(time.monotonic() - self.begin, 3)}
            with Path(notes).open("a") as file:
                file.write(json.dumps(line) + "\n")
        self.kill_at_the_latest()

    v2_runner_on_ok = v2_runner_on_failed = ended

    def kill_at_the_latest(self, *_: Any) -> None:
        """Kill the run if this is its task, which has ended or was skipped."""
        if self.count == self.number:
            kill(alone=self.moment == "alone")

    v2_playbook_on_stats = kill_at_the_latest
