"""A run of a playbook, as locks record and name it. Its command is not in the record: it may contain a password."""

from __future__ import annotations

import datetime as dt
import getpass
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.errors import GOT_LIMIT
from gangplank.processes import process
from gangplank.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable


def holder(pid: int, playbooks: Iterable[str]) -> dict[str, Any]:
    """The record of process `pid`, which runs these playbooks."""
    record = process(pid)
    record.pop("command", None)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # of a container, without a name
        user = str(os.getuid())
    since = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    more = {"user": user, "host": socket.gethostname(), "playbooks": " ".join(playbooks), "since": since}
    return {"pid": pid, **record, "pids": pid_space(), **more}


def pid_space() -> str:
    """Which processes this one can name: a container has its own, and the machine's boot."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def title(record: dict[str, Any]) -> str:
    """A run as messages name it.

    >>> title({"user": "ana", "host": "a", "pid": 7, "playbooks": "playbooks/lab.yml", "since": "2026-01-01 UTC"})
    'ana@a, process 7 (playbooks/lab.yml), since 2026-01-01 UTC'
    """
    user, host, since, books = (cut(record.get(key, "")) for key in ("user", "host", "since", "playbooks"))
    started = f" ({books})" if books else ""
    return f"{user}@{host}, process {record['pid']}{started}, since {since}"


def way_out(record: dict[str, Any], *, alive: bool) -> str:
    """How to be rid of a run: with a command only for a process that was seen to live on this machine."""
    host = cut(record.get("host", ""))
    how = f"end it (kill {record['pid']} on {host})" if alive else f"have its user end it on {host}"
    return f"wait for it or {how}"


def cut(text: str) -> str:
    """A text of a record as messages show it: at most so long, and nothing that a terminal would obey."""
    return plain(text if len(text) <= GOT_LIMIT else f"{text[: GOT_LIMIT - 1]}…")
