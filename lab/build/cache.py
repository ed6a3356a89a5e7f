"""The user's cache folder: finished builds only, each under a name derived from its inputs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from gangplank.disk import GONE, rename
from gangplank.processes import origin
from gangplank.runs import holder, title
from lab.errors import PartError, explain
from lab.host.lock import holder_in

Say = Callable[[str], None]

DRAFTS = ("go", "images", "parts", "roots", "stores")  # where builds are made, by those who hold the lock
TICK_S = 15.0  # how often a long step reports progress


def cache_home() -> Path:
    """The folder of this project in the user's cache ($XDG_CACHE_HOME, else ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gangplank"


def digest_of(*inputs: Any) -> str:
    """16 hex digits over JSON values and the bytes of Paths, in this order."""
    total = hashlib.sha256()
    for item in inputs:
        total.update(item.read_bytes() if isinstance(item, Path) else json.dumps(item, sort_keys=True).encode())
        total.update(b"\0")
    return total.hexdigest()[:16]


def sha256_file(path: Path) -> str:
    """The file's sha256 in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def building(target: Path) -> Iterator[Path]:
    """An empty folder that becomes `target` only if the block succeeds; remove the leftovers of interrupted builds."""
    draft = target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}.*"):
            shutil.rmtree(left, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        draft.chmod(0o755)
        yield draft
        rename(draft, target)
    except OSError as error:
        raise explain(str(error), str(target)) from error
    finally:
        if draft != target:
            shutil.rmtree(draft, ignore_errors=True)


@contextlib.contextmanager
def one_at_a_time(home: Path, say: Say) -> Iterator[None]:
    """Hold the cache's lock, because two builds at once would do everything twice."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "build.lock").open("a+")
    except OSError as error:
        raise PartError(str(error), str(home), "set XDG_CACHE_HOME to a folder that you can write to") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            other = holder_in(lock)
            say(f"another build holds the cache{f' ({title(other)})' if other else ''}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        with contextlib.suppress(OSError):  # on a full disk, which `make verify` may free, nobody is named
            os.write(lock.fileno(), json.dumps(holder(origin(), ())).encode())
        drafts = [path for folder in DRAFTS for path in (home / folder).glob(".*.????????")]  # of interrupted builds
        for left in (*home.glob(f"*/.*.{GONE}"), *drafts):
            shutil.rmtree(left, ignore_errors=True)
        try:
            yield
        finally:
            lock.truncate(0)


def end_with_children(pid: int) -> None:
    """End a process and its descendants: a compiler would continue without the `go` that started it.

    All are stopped first, until no new one appears; otherwise one that starts meanwhile would be missed.
    """
    pids: set[int] = set()
    while new := set(family(pid)) - pids:
        pids |= new
        send(signal.SIGSTOP, new)
    send(signal.SIGTERM, pids)
    send(signal.SIGCONT, pids)


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    members = [pid]
    for member in members:  # grows while it is read
        members += children.get(member, [])
    return members


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Signal the processes that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def run_shown(command: list[str], where: str, say: Say, *, cwd: Path, env: dict[str, str], unit: str = "lines") -> str:
    """Run a long command and report every TICK_S seconds how many lines it printed; raise PartError if it fails."""
    started = ticked = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=cwd, env=env, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, umask=0o022,
    ) as process:  # fmt: skip
        try:
            for line in process.stdout or ():
                lines.append(line)
                now = time.monotonic()
                if now - ticked >= TICK_S:
                    ticked = now
                    say(f"{where}: {len(lines)} {unit}, {now - started:.0f} s")
        except BaseException:
            end_with_children(process.pid)
            raise
    if process.returncode:
        raise explain("".join(lines), where)
    return "".join(lines)
