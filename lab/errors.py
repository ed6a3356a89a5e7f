"""The one error of building: what went wrong, where, and what mends it."""

from __future__ import annotations

import re

from gangplank.errors import GangplankError

# (pattern in a tool's output, what it means, the fix); the first that matches is told.
KNOWN = (
    (
        r"SECURITY ERROR|checksum mismatch|verifying .*: |Hash Sum mismatch",
        "a download does not match its pinned checksum; nothing of it was used",
        "run it again; if it stays so, compare lab/modules/*/go.sum with upstream before you change anything",
    ),
    (
        r"[Nn]o space left on device|enough free space",
        "the disk is full",
        "free some space (`make clean` empties this project's cache), then run it again; finished parts are kept",
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
        "the kernel ended a compiler for want of memory",
        "free some memory (4 GiB are enough), then run it again",
    ),
)


class LabError(GangplankError):
    """Something of the lab that the user can put right; the message says how."""


class PartError(LabError):
    """A part that could not be built, told in one message."""

    def __init__(self, what: str, where: str, fix: str) -> None:
        """Keep the three things that a person needs."""
        super().__init__(f"{where}: {what}\n  fix: {fix}")
        self.what, self.where, self.fix = what, where, fix


def explain(output: str, where: str) -> PartError:
    """Turn a failed tool's output into the error that names its cause; the last lines are shown when none is known."""
    for pattern, what, fix in KNOWN:
        found = re.search(pattern, output, re.MULTILINE)
        if found:
            line = next(line for line in output.splitlines() if found.group(0).splitlines()[0] in line)
            return PartError(f"{what} ({line.strip()[:200]})", where, fix)
    tail = "\n    ".join(output.strip().splitlines()[-8:])
    return PartError(f"failed; its last lines:\n    {tail}", where, "mend what these lines name, then run it again")
