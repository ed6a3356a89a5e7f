"""The text of files that a person names, and what is told when one cannot be read."""

from __future__ import annotations

import sys
from pathlib import Path

from gangplank.errors import Unreadable

JOB_FILE = "give the path of a job file, e.g. jobs/digits.yml"


def read(name: str, errors: str = "strict", fix: str = JOB_FILE) -> str:
    """The text of a file, or of standard input for -; `errors` as bytes.decode has it, `fix` if it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name}: byte {error.start} is no UTF-8; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreadable(f"{name}: {reason}; {fix}") from None
