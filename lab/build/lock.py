"""lab/lock.json: the packages of every Debian root, and the digests of everything built from the pins.

A build compares its result with the lock and never writes it: only `make relock` does. A digest is kept with the key of
its inputs and applies to that key alone. An edited trainer has another key, and so has a root of newer packages because
the archive has dropped the locked ones. What the lock does not know, its build records in the cache, next to the files.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lab.build.cache import sha256_file
from lab.build.versions import LAB
from lab.errors import PartError
from lab.host.files import write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LOCK = LAB / "lock.json"
RECORD = "digests.json"  # in the folder of a part or root
Packages = dict[str, list[str]]  # package -> [version, sha256 of its .deb]
Entry = dict[str, Any]  # {key, digests}, of a root {key, digests, packages}


def key_of(folder: Path) -> str:
    """The key at the end of the name of a folder in the cache."""
    return folder.name.rpartition("-")[2]


def read_lock() -> dict[str, dict[str, Entry]]:
    """The sections parts, roots and images, each {name: entry}."""
    lock: dict[str, dict[str, Entry]] = {"parts": {}, "roots": {}, "images": {}}
    return lock | (json.loads(LOCK.read_text()) if LOCK.exists() else {})


def write_lock(lock: dict[str, dict[str, Entry]]) -> None:
    """Write lab/lock.json."""
    write(LOCK, f"{json.dumps(lock, indent=1, sort_keys=True)}\n".encode(), 0o644)


def digests_in(folder: Path, pattern: str) -> dict[str, str]:
    """{path in the folder: sha256} of the matching files; several names of one file cost it once."""
    files = {path: (path.stat().st_dev, path.stat().st_ino) for path in sorted(folder.glob(pattern))}
    one_name = {file: path for path, file in files.items()}
    digests = {file: sha256_file(path) for file, path in one_name.items()}
    return {str(path.relative_to(folder)): digests[file] for path, file in files.items()}


def differences(entry: Entry, key: str, digests: dict[str, str]) -> list[str]:
    """One line for each digest that differs from the lock; none if the lock has another key."""
    if entry.get("key") != key:
        return []
    locked: dict[str, str] = entry["digests"]
    return [
        f"{name}: got {digests.get(name, 'nothing')}, expected {locked.get(name, 'nothing')}"
        for name in sorted(locked.keys() | digests.keys())
        if locked.get(name) != digests.get(name)
    ]


def record(folder: Path, digests: dict[str, str]) -> None:
    """Record what a build has made, in its own folder."""
    (folder / RECORD).write_text(json.dumps(digests, indent=1))


def recorded(entries: Iterable[Entry], folder: Path) -> Entry | None:
    """The entry of the lock with the folder's key, else the one that its build recorded; None without either."""
    key = key_of(folder)
    for entry in entries:
        if entry.get("key") == key:
            return entry
    try:
        return {"key": key, "digests": json.loads((folder / RECORD).read_text())}
    except (OSError, ValueError):  # of an older version, or altered
        return None


def refuse(what: str, lines: list[str], cause: str) -> None:
    """Raise PartError if there are differences; `cause` is the likely one if they stay."""
    if lines:
        fix = f"run it again; if they differ again, {cause}"
        raise PartError("other bytes than lab/lock.json, from the same pins:\n    " + "\n    ".join(lines), what, fix)
