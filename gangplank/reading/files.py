"""The text of files named by the user, or an error that names the file and the fix; and files written whole."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.disk import rename
from gangplank.errors import Problem, Unreadable
from gangplank.processes import process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

LONGEST = 16 << 20  # bytes of a line; a longer one, such as of a progress bar that never ends it, is several
JOB_FILE = "give the path of a job file, e.g. jobs/digits.yml"


def standard_input() -> BinaryIO:
    """Standard input; OSError if a shell has closed it."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    return sys.stdin.buffer


def read(name: str, errors: str = "strict", fix: str = JOB_FILE) -> str:
    """The text of a file, or of standard input for -; `errors` as bytes.decode has it, `fix` if it cannot be read."""
    try:
        data = standard_input().read() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        got = f"a byte that is not UTF-8, at {error.start}"
        raise Unreadable(str(Problem(name, got, "UTF-8 text", "save the file as UTF-8"))) from None
    except (OSError, ValueError) as error:
        raise unreadable(name, error, fix) from None


def lines(name: str, fix: str = JOB_FILE) -> Iterator[str]:
    """The lines that programs wrote into a file or a pipe, or of standard input for -, one by one, whatever they hold.

    A line that is longer than LONGEST bytes comes in pieces. A device is refused: it may never end.
    """
    if (stat.S_ISCHR(mode(name)) or stat.S_ISBLK(mode(name))) and Path(name).resolve() != Path(os.devnull):
        raise Unreadable(str(Problem(name, "a device", "a file", fix)))
    try:
        with contextlib.nullcontext(standard_input()) if name == "-" else Path(name).open("rb") as file:
            mark = "\ufeff"  # at the beginning
            while raw := file.readline(LONGEST):
                yield raw.decode("utf-8", "replace").removeprefix(mark)
                mark = ""
    except (OSError, ValueError) as error:
        raise unreadable(name, error, fix) from None


def mode(name: str | Path) -> int:
    """What stat.S_ISREG and its like take, also through links; 0 for what does not exist or cannot be a name."""
    try:
        return Path(name).stat().st_mode
    except (OSError, ValueError):
        return 0


def unreadable(name: str, error: Exception, fix: str) -> Unreadable:
    """The error about a file that cannot be read."""
    reason = getattr(error, "strerror", None) or str(error)
    return Unreadable(str(Problem(name, reason, "a file that can be read", fix)))


def is_file(path: Path) -> bool:
    """Whether a file exists; a path that no file can have, as one that is too long, is of none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def write(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a file whole or not at all, or into a pipe or a device as it is; raises OSError.

    Nobody can ever read more of it than `mode` says, less the umask.
    """
    place = path.resolve()
    if place.exists() and not place.is_file():
        place.write_text(text, encoding="utf-8")
        return
    draft = place.with_name(f".gangplank-{os.getpid()}.writing")
    try:
        for left in place.parent.glob(".gangplank-*.writing"):
            pid = left.name.removeprefix(".gangplank-").removesuffix(".writing")
            if pid.isdecimal() and (left == draft or not process(int(pid))):  # of a run that was killed
                with contextlib.suppress(OSError):  # it may be another user's
                    left.unlink()
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
        rename(draft, place)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        error.filename = str(path)  # a full disk has none, and nobody knows the draft
        raise
