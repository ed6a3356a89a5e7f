"""The errors of the lab: where, what went wrong, and the fix."""

from __future__ import annotations

import re

from gangplank.errors import GangplankError

# (pattern in a tool's output, what it means, the fix); the first match is reported.
KNOWN = (
    (
        r"SECURITY ERROR|checksum mismatch|verifying .*: |Hash Sum mismatch",
        "a download does not match its pinned checksum; nothing of it was used",
        "run it again; if it fails again, compare lab/modules/*/go.sum with upstream before you change anything",
    ),
    (
        r"[Nn]o space left on device|enough free space",
        "the disk is full",
        "free some space (`make clean` empties this project's cache), then run it again; finished parts are kept",
    ),
    (
        r"containerd\.sock|cannot open /run/(netns|gangplank)/",
        "containerd of the lab does not answer",
        "start the lab again (make lab), which names what it lacks, then run it again",
    ),
    (
        (
            r"no such host|i/o timeout|connection refused|connection timed out|Temporary failure resolving"
            r"|TLS handshake"
            r"|Could not (connect|resolve)|proxyconnect|network is unreachable|deadline exceeded|40[347] Forbidden|EOF$"
        ),
        "a package registry does not answer",
        "check the network and the proxy settings (GOPROXY, pip's and apt's configuration), then run it again",
    ),
    (
        r"signal: killed|Cannot allocate memory",
        "the kernel ended a compiler because memory ran out",
        "free some memory (4 GiB is enough), then run it again",
    ),
)


class LabError(GangplankError):
    """A problem of the lab that the user can fix; the message says how."""


class PartError(LabError):
    """A part that could not be built."""

    def __init__(self, what: str, where: str, fix: str) -> None:
        """Compose the message; a text of several lines has its fix on a line of its own."""
        end = "\n  " if "\n" in what else ". "
        super().__init__(f"{where}: {what}{end}Fix: {fix}")
        self.what, self.where, self.fix = what, where, fix


def explain(output: str, where: str) -> PartError:
    """The error that names the cause of a failed tool's output; for an unknown cause it shows the last lines."""
    for pattern, what, fix in KNOWN:
        match = re.search(pattern, output, re.MULTILINE)
        if match:
            line = next(line for line in output.splitlines() if match.group(0).splitlines()[0] in line)
            return PartError(f"{what} ({line.strip()[:200]})", where, fix)
    tail = "\n    ".join(output.strip().splitlines()[-8:])
    return PartError(f"failed; its last lines:\n    {tail}", where, "correct what these lines name, then run it again")
