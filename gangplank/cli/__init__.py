"""The gangplank command: reads its command line and runs the module of the command."""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import TYPE_CHECKING

from gangplank.cli.completion import complete
from gangplank.cli.parser import command_line
from gangplank.cli.terminal import CLUSTER, CUT, INTERRUPTED, OK, REFUSED, complain
from gangplank.errors import FULL, NO_NAME, GangplankError, Problem, shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

MODULES = {  # of gangplank/cli, by command; each has a function of the command's name
    "expand": "expand",
    "submit": "jobs",
    "run": "scripts",
    "status": "jobs",
    "metrics": "metrics",
    "why": "why",
    "fit": "why",
    "when": "when",
    "logs": "jobs",
    "fetch": "fetch",
    "data": "data",
    "scale": "jobs",
    "delete": "jobs",
    "proof": "proof",
    "report": "proof",
    "team": "teams",
    "drift": "teams",
    "preflight": "preflight",
    "completion": "completion",
}
ACTS = {"submit", "run", "fetch", "data", "scale", "delete", "team"}  # do more than to print, and may have done less
# Has every optional package
PACKAGES = "-m pip install --require-hashes -r requirements-site.txt, which lies beside the wheel and in a checkout"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a rank may print what the terminal's encoding lacks
    parser = command_line()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        complete(parser)
    words, own = split(sys.argv[1:] if arguments is None else arguments)
    args = parser.parse_args(words)
    args.arguments = own
    try:
        return run(args)
    except GangplankError as error:
        return complain(str(error), error.exit_code)
    except ImportError as error:
        expected, fix = f"it installed, as {args.command} needs it", f"{sys.executable} {PACKAGES}"
        return complain(str(Problem(f"package {error.name}", "nothing", expected, fix)), CLUSTER)
    except BrokenPipeError:
        leave_output()  # the reader has gone
        return CUT if args.command in ACTS else OK
    except OSError as error:
        if error.errno in NO_NAME:
            return complain(str(Problem(shown(error.filename), str(error.strerror), "a file that exists")), REFUSED)
        if error.errno not in FULL:
            raise
        leave_output()
        name, reason = str(error.filename or "standard output"), error.strerror or str(error)
        return complain(str(Problem(name, reason, "space to write", "free some")), REFUSED)
    except KeyboardInterrupt:
        return INTERRUPTED


def leave_output() -> None:
    """Say no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def split(words: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """What is ours and, of `run`, the script's own arguments after `--`: argparse cannot tell them apart.

    >>> split(["run", "a.py", "--workers", "3", "--", "--lr", "0.1"])
    (['run', 'a.py', '--workers', '3'], ['--lr', '0.1'])
    """
    if list(words[:1]) != ["run"] or "--" not in words:
        return words, []
    at = list(words).index("--")
    return words[:at], list(words[at + 1 :])


def run(args: argparse.Namespace) -> int:
    """Import the module of the command, and with it only the packages that this command needs."""
    module = importlib.import_module(f"gangplank.cli.{MODULES[args.command]}")
    command: Callable[[argparse.Namespace], int] = getattr(module, args.command)
    status = command(args)
    print(end="", flush=True)  # at its end Python ignores that a disk is full
    return status
