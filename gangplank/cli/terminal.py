"""What every command shares: its exit codes, its error messages, whether it may use colours."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from gangplank.errors import GangplankError, KubeError, Unreadable
from gangplank.text import plain_lines


class UsageError(GangplankError):
    """A command line that argparse accepts but that lacks something; the message says what."""

    exit_code = 2


OK, INTERRUPTED, CUT = 0, 130, 141  # the last two as a shell reports SIGINT and SIGPIPE
NO, CANNOT_TELL = 5, 6  # answers of fit and why
REFUSED, UNREADABLE, CLUSTER = (error.exit_code for error in (GangplankError, Unreadable, KubeError))
CODES = """exit codes:
  0  done
  1  a job, manifest or cluster is refused, a training failed or is not proven, drift found some, fetch left files out
  2  the command line is wrong
  3  a file cannot be read
  4  the cluster does not answer, or has no such job
  5  fit: the job would not start now
  6  fit, why and when: cannot tell, and what would have to be known is in the answer
  141  nobody reads the output any more, and not all may be done
"""


def coloured(stream: Any) -> bool:
    """Whether a stream is a terminal that wants colours, and not closed: https://no-color.org."""
    return bool(stream and stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def use_utf8() -> None:
    """Print what another program is to read as UTF-8, as it is, whatever the encoding of the terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def note(text: str) -> None:
    """Print to standard error what a command waits for."""
    print(plain_lines(text), file=sys.stderr, flush=True)


def complain(text: str, code: int) -> int:
    """Print what is wrong to standard error; the exit status."""
    red, end = ("\x1b[31m", "\x1b[0m") if coloured(sys.stderr) else ("", "")
    print(f"{red}gangplank:{end} {plain_lines(text)}", file=sys.stderr)
    return code
