"""What failed in Ansible's log of several playbooks: the last task of the last one that failed, in few lines.

Failures that a rescue expects are left out. Of a playbook that ran twice, the tasks that changed something the second
time are named: molecule refuses those.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ENTRY = re.compile(r"^\S+ \S+ p=(\d+) u=\S+ n=\S+ \w+\| (.*)")  # ansible.utils.display
HEADING = re.compile(r"(PLAY|TASK|RUNNING HANDLER) \[(.*)\] \**$")
NAME_LENGTH, LINES, WIDTH = 120, 16, 240  # what a terminal, and the last page of a log, can show


class Playbook:
    """What one process of ansible-playbook wrote."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self.plays: list[str] = []
        self.task = ""
        self.failure: list[str] = []  # the last task that failed, its host and what it reported
        self.changed: list[str] = []
        self.failed = True  # until its recap says otherwise: a killed one has none

    def entry(self, text: str) -> list[str] | None:
        """Read an entry; the list, if any, that takes the lines below it."""
        if heading := HEADING.match(text):
            kind, name = heading.groups()
            if kind == "PLAY":
                self.plays.append(name)
            else:
                self.task = name[:NAME_LENGTH]
        elif text.startswith(("fatal: ", "failed: ")):  # the second of an item of a loop
            self.failure = [self.task, text]
            return self.failure
        elif text.startswith("changed: "):
            self.changed.append(self.task)
        elif recap := re.search(r"unreachable=(\d+) +failed=(\d+)", text):
            self.failed = recap.groups() != ("0", "0")
        return None


def playbooks(text: str) -> list[Playbook]:
    """Read a log; the playbooks in it, in the order in which they ended, without commands that have no play."""
    read: dict[str, Playbook] = {}
    below: list[str] | None = None
    for line in text.splitlines():
        if match := ENTRY.match(line):
            process = match[1]
            read[process] = playbook = read.pop(process, None) or Playbook()
            below = playbook.entry(match[2])
        elif below is not None and line.strip() and len(below) < LINES:
            below.append(line[:WIDTH])
    return [playbook for playbook in read.values() if playbook.plays]


def report(text: str) -> list[str]:
    """Return the lines to print: playbooks that a test runs may fail, but molecule ends with the first of its own."""
    failed, repeated, before = list[str](), list[str](), list[str]()
    for playbook in playbooks(text):
        if playbook.failed:
            task, *said = playbook.failure or [playbook.task]
            failed = [f"{playbook.plays[-1]}: failed in: {task}", *said]
        elif playbook.plays == before and playbook.changed:
            repeated = [f"{playbook.plays[-1]}: a second run changed: {'; '.join(playbook.changed)}"[:WIDTH]]
        before = playbook.plays
    return repeated + failed or ["no playbook failed; what molecule itself says is above"]


if __name__ == "__main__":
    print("\n".join(report(Path(sys.argv[1]).read_text(errors="replace"))))
