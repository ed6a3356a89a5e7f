"""A callback that ends ansible-playbook by SIGKILL at the start, in the middle or at the end of one of its tasks.

GANGPLANK_KILL is JSON: the `name` of the task, the tasks that `include` it, its `number` among those with the same of
both, the `moment` and the `seconds`.
At `start`, in the `middle` (so many seconds after the start) and at the `end` every process of the run is killed;
`alone` kills only ansible-playbook in the middle, while its worker continues. A task that takes less time is killed at
its end. Without it nothing is killed.
GANGPLANK_KILL_NOTES is a file that gets a line of JSON for each task that ran: its name, includes, number and seconds.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from ansible.playbook.task_include import TaskInclude
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


def includes(task: Any) -> str:
    """The tasks that include a task, each with its item of a loop: the inner one first."""
    names, parent = [], task._parent
    while parent:
        if isinstance(parent, TaskInclude):
            variable = parent.loop_control.loop_var if parent.loop_control else "item"
            names.append(f"{parent.get_name()} {parent.vars.get(variable, '')}")
        parent = parent._parent
    return " < ".join(names)


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """Counts tasks."""

    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "notification", "kill_point"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.point = json.loads(os.environ.get("GANGPLANK_KILL") or "{}")
        self.moment = self.point.get("moment", "never")
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.begin, self.task, self.noted = 0.0, ("", ""), False

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002  Ansible's own signature
        """Count the task."""
        self.kill_at_the_latest()
        self.begin, self.task, self.noted = time.monotonic(), (task.get_name(), includes(task)), False
        self.counts[self.task] += 1
        if not self.is_point():
            return
        if self.moment == "start":
            kill(alone=False)
        if self.moment in ("middle", "alone"):
            timer = threading.Timer(self.point["seconds"], kill, kwargs={"alone": self.moment == "alone"})
            timer.daemon = True
            timer.start()

    def is_point(self) -> bool:
        """Whether the task that runs, or was the last to run, is the one to be killed."""
        own = self.identity()
        return own == {key: self.point.get(key) for key in own}

    def identity(self) -> dict[str, Any]:
        """What makes the task that runs, or was the last to run, one of its own."""
        return {"name": self.task[0], "include": self.task[1], "number": self.counts[self.task]}

    def ended(self, *_: Any, **__: Any) -> None:
        """Note the first end of the task, on any host."""
        if self.noted:
            return
        self.noted = True
        if notes := os.environ.get("GANGPLANK_KILL_NOTES"):
            seconds = round(time.monotonic() - self.begin, 3)
            with Path(notes).open("a") as file:
                file.write(json.dumps({**self.identity(), "seconds": seconds}) + "\n")
        self.kill_at_the_latest()

    v2_runner_on_ok = v2_runner_on_failed = ended

    def kill_at_the_latest(self, *_: Any) -> None:
        """Kill the run if this is its task, which has ended or was skipped."""
        if self.is_point():
            kill(alone=self.moment == "alone")

    v2_playbook_on_stats = kill_at_the_latest
