"""One run at a time changes a lab: the process that does is recorded in the lab's folder, in the file lab.lock.

The record counts while its process lives, or a fork of it: ansible-playbook runs each task in one, which continues when
ansible-playbook alone is killed. An interrupted run blocks nobody. The file stays: it marks a lab's folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem
from gangplank.processes import living
from gangplank.runs import title, way_out
from gangplank.wait import late, polls
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import TextIO

NAME = "lab.lock"
POLL_S = 0.3


def refuse_foreign(folder: Path) -> None:
    """Raise LabError if the folder has files and is not a lab's."""
    if not folder.exists() or not any(folder.iterdir()) or (folder / NAME).exists() or _has_parts(folder):
        return
    fix = "set lab_cluster_folder to the lab's folder, or to a new one"
    raise LabError(str(Problem("lab_cluster_folder", f"{folder} with other files in it", "the folder of a lab", fix)))


def _has_parts(folder: Path) -> bool:
    """Whether a folder has the list of a lab's parts: a lab of before the lock is marked by that alone."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return "bin" in json.loads((folder / "parts.json").read_text())
    return False


@contextlib.contextmanager
def _record(folder: Path) -> Iterator[TextIO]:
    """The open file with the record; nobody else reads or writes it meanwhile. Raises OSError with its name."""
    try:
        yield from _locked(folder)
    except OSError as error:
        error.filename = error.filename or str(folder / NAME)  # a full disk has none
        raise


def _locked(folder: Path) -> Iterator[TextIO]:
    while True:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError), open(folder / NAME, "r+", opener=_created) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if os.fstat(stream.fileno()).st_ino == (folder / NAME).stat().st_ino:  # else `make down` removed it
                yield stream
                return


def holder_in(stream: TextIO) -> dict[str, Any]:
    """The record of a living process, or one of its living fork; empty if there is none."""
    try:
        return living(json.loads(stream.read()))
    except (ValueError, LookupError, TypeError, AttributeError):  # empty, or its writer was killed
        return {}


def _created(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)


def _replace(stream: TextIO, text: str) -> None:
    """Write over the record: the file keeps its block, so that `make down` can hold a lab that has filled its disk."""
    stream.seek(0)
    stream.write(text)
    stream.flush()
    stream.truncate()


def hold(folder: Path, record: dict[str, Any], say: Callable[[str], None], limit_s: float) -> None:
    """Record a run that changes the lab; wait for another that does. Raises LabError at the time limit."""
    said = ""
    for _ in polls(limit_s, POLL_S):
        with _record(folder) as stream:
            other = holder_in(stream)
            if not other or other["pid"] == record["pid"]:
                _replace(stream, json.dumps(record | {"since": other.get("since", record["since"])}))
                return
        name = title(other)
        if name != said:
            say(f"the lab in {folder} is in use by {name}: waiting for it up to {limit_s:.0f} s")
        said = name
    fix = f"{way_out(other, alive=True)}, then run it again"
    raise LabError(late(f"lab {folder}", name, "its end", limit_s, fix))


def free(folder: Path, pid: int) -> None:
    """Remove the record of process `pid`, if it is the present one."""
    if (folder / NAME).exists():
        with _record(folder) as stream:
            if holder_in(stream).get("pid") == pid:
                _replace(stream, "{}")
