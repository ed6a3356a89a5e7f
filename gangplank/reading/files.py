"""The text of files named by the user, or an error that names the file and the fix; and files written whole."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from gangplank.disk import rename
from gangplank.errors import Problem, Unreadable

JOB_FILE = "give the path of a job file, e.g. jobs/digits.yml"


def read(name: str, errors: str = "strict", fix: str = JOB_FILE) -> str:
    """The text of a file, or of standard input for -; `errors` as bytes.decode has it, `fix` if it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        got = f"a byte that is not UTF-8, at {error.start}"
        raise Unreadable(str(Problem(name, got, "UTF-8 text", "save the file as UTF-8"))) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreadable(str(Problem(name, reason, "a file that can be read", fix))) from None


def write(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a file whole or not at all, or into a pipe or a device as it is; raises OSError.

    Nobody can ever read more of it than `mode` says, less the umask.
    """
    place = path.resolve()
    if place.exists() and not place.is_file():
        place.write_text(text, encoding="utf-8")
        return
    draft = place.with_name(f".{place.name}.writing")
    try:
        draft.unlink(missing_ok=True)  # of a run that was killed, perhaps with another mode
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
        rename(draft, place)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
