"""The command fetch: a job's output and evidence, from its claim or bucket to a folder here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.cli import inputs, terminal
from gangplank.cli.cluster import cluster_of
from gangplank.cli.jobs import locate
from gangplank.cluster import evidence
from gangplank.cluster import fetch as fetching
from gangplank.cluster.landing import File, Landing
from gangplank.cluster.reader import output_of
from gangplank.errors import GangplankError, KubeError, Problem
from gangplank.proof.expected import EVIDENCE, expected
from gangplank.proof.records import complete, select
from gangplank.text import counted, listed, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

LINE_S = 10.0  # between two lines about the progress where standard error is not a terminal
MIB = 2**20


def fetch(args: argparse.Namespace) -> int:
    """Fetch a job's output, or a path of it; what could not be fetched is named, and the exit status is then 1."""
    kube = cluster_of(args)
    job = source(kube, args)
    name = str(job["metadata"]["name"])
    folder, meter = Path(args.output or name), Meter(name)
    with interruptible(), Landing(folder, owner(kube, job)) as target:
        result = fetching.fetch(kube.patient(meter.note), job, args.path or "", target, meter.show, args.replace)
        meter.close()
        size = sum(file.size for file in result.new)
        brought = f"{len(result.new)} of them fetched now ({mib(size)})"
        print(f"{name}: {counted(len(result.files), 'file')} in {folder}, {brought}")
        if result.links:
            links = listed(list(map(plain, result.links)), fetching.NAMES)
            terminal.note(f"left out, links to files of the output: {links}")
        if not args.path and EVIDENCE not in {file.name for file in result.files}:
            result.left |= keep_evidence(kube, job, target, args.replace)
    if not result.left:
        return terminal.OK
    rows = [f"  {plain(path)}: {plain(why)}" for path, why in list(result.left.items())[:fetching.NAMES]]
    more = [f"  and {len(result.left) - fetching.NAMES} more"] if len(result.left) > fetching.NAMES else []
    head = str(Problem(f"job {name}", f"{counted(len(result.left), 'file')} not fetched", "files of the output alone"))
    raise GangplankError("\n".join([head, *rows, *more]))


def source(kube: Kube, args: argparse.Namespace) -> Json:
    """The job; one that is gone, by its file, since its claim or bucket may still be there."""
    try:
        return locate(kube, args)[0]
    except KubeError as error:
        if error.status != 404 or not Path(args.job).is_file():
            raise
    job = inputs.gather([args.job], None, args.site, named=args.namespace, grants=False)[1][-1][1]
    job["metadata"].setdefault("namespace", kube.namespace_of(args.namespace))
    return job


def owner(kube: Kube, job: Json) -> str:
    """Whose the files are: a job of this name at another address, or with another output, has others."""
    meta, output = job["metadata"], output_of(job)
    return f"{kube.api.configuration.host} {meta.get('namespace', '')}/{meta['name']} {output or ''}"


def keep_evidence(kube: Kube, job: Json, target: Landing, replace: Sequence[str]) -> dict[str, str]:
    """Write the evidence of a script that was observed: only the ranks' logs have it. Why it is left, if it is."""
    if "uid" not in job["metadata"]:
        return {}
    unread: list[KubeError] = []
    records = evidence.logged(kube, kube.pods(job), unread)
    wanted = expected(job)
    if complete(select(records), wanted.world_size):
        data = "".join(f"{json.dumps(record)}\n" for record in records).encode()
        file = File(EVIDENCE, len(data), hashlib.sha256(data).hexdigest())
        if not target.has(file):
            if fetching.foreign(target, [EVIDENCE], replace):
                return {EVIDENCE: f"another one is here. Fix: name another folder with -o, or --replace {EVIDENCE}"}
            target.write(file, 0, data)
            if why := fetching.land(target, file, target.stamp(EVIDENCE)):
                return {EVIDENCE: why}
        terminal.note(f"evidence, from the logs of all ranks: gangplank proof --file {target.folder}")
    elif unread:
        raise unread[0]
    elif not is_of(target, wanted.job_uid):
        return {EVIDENCE: "the one here is of another run, and the logs of this one lack records. Fix: remove it"}
    return {}


def is_of(target: Landing, job_uid: str | None) -> bool:
    """Whether the evidence in a folder may be that of a job; true if there is none."""
    if job_uid is None or (size := target.size(EVIDENCE)) is None:
        return True
    if size < 0:  # no file
        return False
    with (target.folder / EVIDENCE).open("rb") as lines:
        return any(job_uid.encode() in line for line in lines)


def mib(size: int) -> str:
    """A number of bytes.

    >>> mib(3 * 2**19)
    '1.5 MiB'
    """
    return f"{size / MIB:.1f} MiB"


class Meter:
    """A line about the progress: one that changes on a terminal, else a new one every few seconds."""

    def __init__(self, name: str) -> None:
        self.name, self.last, self.live = name, -LINE_S, sys.stderr.isatty()

    def show(self, phase: str, done: int, total: int) -> None:
        """Show how far it is."""
        text = f"{self.name}: {phase}" + (f": {mib(done)} of {mib(total)}" if total else "")
        if self.live:
            print(f"\r\x1b[K{plain(text)}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self.last >= LINE_S:
            self.last = time.monotonic()
            terminal.note(text)

    def note(self, text: str) -> None:
        """Print what is waited for, in a line of its own."""
        self.close()
        terminal.note(text)

    def close(self) -> None:
        """End the line."""
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM, and the end of the terminal, end a command as Ctrl-C does, so that its pod is removed."""
    def interrupt(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a terminal that closes sends it twice: by its shell, and by the kernel
        raise KeyboardInterrupt

    ends = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) != signal.SIG_IGN]  # nohup
    before = {one: signal.signal(one, interrupt) for one in ends}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
