"""What the pod that writes to a claim runs: it compares files with those of the claim, or brings them onto it.

    python3 program.zip REQUEST PIECES FOLDER

It travels with the modules that it uses (data_pod.py), and needs the standard library of Python 3.11; for buckets also
fsspec, of the image. REQUEST is JSON: what to do, and with which files. PIECES is the folder with the bytes of files
that lie on the user's machine. Each line that it prints is JSON in ASCII; the last one has the key `end`, and a log
without it is incomplete. No file gets its name before its bytes are on the claim and have their hash.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gangplank.cluster.contents import contents, remove
from gangplank.cluster.landing import File, Landing, is_named, problem
from gangplank.cluster.origins import Entry, entries
from gangplank.errors import GangplankError, Problem

Json = dict[str, Any]
PARTS = ".gangplank-data"
SHOWN = 10  # of names, in a message
SAY_S = 2.0  # between two lines about the progress
ABSENT, SAME, OTHER = "absent", "same", "other"
MOST_SUMS = 20_000  # names with hashes in a log, which the kubelet shows whole up to 10 MiB


class Claim(Landing):
    """The folder of a claim."""

    command, reserved = "gangplank data", PARTS
    busy = "wait for it"
    unfit = full = "give the claim more space, or the pod's user the right to write there; a later run continues"

    def __init__(self, folder: Path, title: str) -> None:
        super().__init__(folder)
        self.claim = title

    def title(self, name: str) -> str:
        """What a message calls the claim, or a place on it."""
        return f"{self.claim}: {name}" if name else self.claim


def main(request: Json, pieces: Path, mount: Path) -> Json:
    """Do what is asked; what the last line says."""
    if ask := {"ls": contents, "rm": remove}.get(request.get("verb", "")):
        return ask(mount, request["folder"], request["title"])
    folder = mount / request["folder"]
    resolved = folder.resolve()
    if mount.resolve() not in (resolved, *resolved.parents):
        fix = "name another folder: it, or one above it, is a link"
        raise GangplankError(str(Problem(request["title"], "a folder outside the claim", "one in it", fix)))
    try:
        with Claim(folder, request["title"]) as target:
            if "sources" in request:
                return Collector(request, target).run()
            rows = request["files"]
            return receive(rows, pieces, target, request["replace"]) if request["write"] else compare(rows, target)
    finally:
        with contextlib.suppress(OSError):  # as it was, if nothing came of it
            while folder != mount:
                folder.rmdir()
                folder = folder.parent


def compare(rows: list[Any], target: Claim) -> Json:
    """By its number in the request, which files the claim has, and how many bytes of the others."""
    states: dict[str, Any] = {SAME: [], OTHER: [], "parts": {}}
    target.forget_old(name for name, *_ in rows)
    for number, (name, size, sha256, *_) in enumerate(rows):
        file = File(name, size, sha256)
        state = state_of(target, file)
        if state != ABSENT:
            states[state].append(number)
        if state != SAME and (part := target.fetched(file)):
            states["parts"][str(number)] = part
    return {**states, "free": target.free()}


def state_of(target: Claim, file: File) -> str:
    """Whether the claim has a file, or another of its name."""
    size = target.size(file.name)
    if size is None:
        return ABSENT
    return SAME if size == file.size and target.has(file) else OTHER


def receive(rows: list[Any], pieces: Path, target: Claim, replace: list[str]) -> Json:
    """Append the pieces to their files; those that are whole get their names."""
    placed: list[int] = []
    left: dict[str, str] = {}
    for number, (name, size, sha256, start, parts) in enumerate(rows):
        file = File(name, size, sha256)
        if start != target.fetched(file):
            got = f"{target.fetched(file)} bytes of it"
            raise GangplankError(str(Problem(target.title(name), got, f"{start} bytes", "try again")))
        at = start
        for piece, begin, length in parts:
            with (pieces / piece).open("rb") as opened:
                opened.seek(begin)
                target.write(file, at, opened.read(length))
            at += length
        if not size:
            target.write(file, 0, b"")
        if at == size:
            why = place(target, file, replace)
            placed += [] if why else [number]
            left |= {str(number): why} if why else {}
    target.forget(rows[number][0] for number in placed)
    return {"placed": placed, "left": left}


def place(target: Claim, file: File, replace: list[str]) -> str:
    """Give a whole file its name; why it does not get it, "" if it does."""
    if not may_write(target, file, replace):
        return "another file has got its name since: nothing is overwritten that is not named with --replace"
    return "" if target.finish(file) else "it was changed while it was read"


def may_write(target: Claim, file: File, replace: list[str]) -> bool:
    """Whether a name is free, or named to be replaced."""
    return state_of(target, file) != OTHER or is_named(file.name, replace)


class Collector:
    """What is at some addresses, and the claim that it is for."""

    def __init__(self, request: Json, target: Claim) -> None:
        self.target, self.sources, self.sums = target, request["sources"], request["sums"]
        self.replace, self.write, self.title = request["replace"], request["write"], request["title"]
        self.said = time.monotonic()

    def run(self) -> Json:
        """Compare everything first; then, if asked to, bring what the claim lacks."""
        every = [entry for address in self.sources for entry in entries(address)]
        self.check(every)
        lacking: list[Entry] = []
        hashes: dict[str, str] = {}
        others = []
        for entry in every:
            state, sha256 = self.compare(entry)
            if state == SAME:
                hashes[entry.name] = sha256
            else:
                lacking.append(entry)
            if state == OTHER and not is_named(entry.name, self.replace):
                others.append(entry.name)
        size = sum(entry.size or 0 for entry in every)
        missing = sum((entry.size or 0) - self.begun(entry) for entry in lacking)
        answer: Json = {"files": len(every), "bytes": size, "lacking": len(lacking), "missing": missing}
        answer |= {"free": self.target.free(), OTHER: others[:SHOWN], "others": len(others)}
        if not self.write or others:
            return answer
        done = 0
        for entry in lacking:
            begun = self.begun(entry)
            hashes[entry.name] = self.bring(entry, done - begun, missing)
            done += (entry.size or 0) - begun
        self.target.forget(entry.name for entry in every)
        self.target.forget_old()
        return {**answer, **named(hashes)}

    def check(self, every: list[Entry]) -> None:
        """Refuse names that are unsafe or appear twice, and sums that do not name the files of the sources."""
        names = [entry.name for entry in every]
        problems = [Problem(self.title, f"the name {json.dumps(name)}", "a path in a folder", why)
                    for name in names if (why := unsafe(name))]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        problems += [Problem(self.title, f"two files named {name}", "one", "bring them into two folders")
                     for name in twice]
        if self.sums:
            fix = "correct the file of --sha256"
            problems += [Problem(name, "no file", "one at the sources, since --sha256 has its hash", fix)
                         for name in sorted(self.sums.keys() - set(names))]
            problems += [Problem(name, "no hash", "one, since --sha256 has those of other files", fix)
                         for name in sorted(set(names) - self.sums.keys())]
        if problems:
            more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
            raise GangplankError("\n  ".join([*map(str, problems[:SHOWN]), *more]))

    def compare(self, entry: Entry) -> tuple[str, str]:
        """Whether the claim has a file, and its hash; a file whose hash nobody knows is read to compare it."""
        size = self.target.size(entry.name)
        if size is None:
            return ABSENT, ""
        if size < 0 or (entry.size is not None and entry.size != size):
            return OTHER, ""
        sha256 = self.sums.get(entry.name)
        if sha256 is None:
            digest, at = hashlib.sha256(), 0
            for block in entry.read(0)[1]:
                digest.update(block)
                at += len(block)
                self.say(f"compares {entry.name}", 0, 0)
            self.check_end(entry, at)
            sha256 = digest.hexdigest()
        return (SAME if self.target.has(File(entry.name, size, sha256)) else OTHER), sha256

    def begun(self, entry: Entry) -> int:
        """How many bytes of a file an earlier run has brought."""
        return self.target.fetched(part_of(entry)) if entry.origin else 0

    def bring(self, entry: Entry, done: int, missing: int) -> str:
        """Bring one file; its hash."""
        file = part_of(entry)
        start = self.begun(entry)
        first, blocks = entry.read(start) if entry.size is None or start < entry.size else (start, iter(()))
        if first != start:
            start = first
            self.target.write(file, 0, b"")
        digest = self.target.digest(file) if start else hashlib.sha256()
        at = start
        for block in blocks:
            self.target.write(file, at, block)
            digest.update(block)
            at += len(block)
            self.say("brings", done + at, missing)
        if not at:
            self.target.write(file, 0, b"")
        self.check_end(entry, at)
        sha256 = digest.hexdigest()
        if self.sums and sha256 != self.sums[entry.name]:
            os.unlink(file.part, dir_fd=self.target.parts)
            fix = "correct the hash, or the source"
            raise GangplankError(str(Problem(entry.name, f"SHA-256 {sha256}", self.sums[entry.name], fix)))
        if why := place(self.target, dataclasses.replace(file, size=at, sha256=sha256), self.replace):
            raise GangplankError(str(Problem(self.target.title(entry.name), why, "what was read", "try again")))
        return sha256

    def check_end(self, entry: Entry, at: int) -> None:
        """Raise if a server ended before the end of a file."""
        if entry.size is not None and at != entry.size:
            got = f"{at} bytes of {entry.name}"
            raise Interrupted(str(Problem(self.title, got, f"{entry.size} bytes", "try again: it continues")))

    def say(self, phase: str, done: int, total: int) -> None:
        """Say how far it is, now and then."""
        if time.monotonic() - self.said > SAY_S:
            self.said = time.monotonic()
            say({"phase": phase, "done": done, "total": total})


class Interrupted(GangplankError):  # noqa: N818  the name says what happened
    """A server ended early: the next try continues."""


def part_of(entry: Entry) -> File:
    """The file that grows under PARTS until it is whole."""
    return File(entry.name, 2**62 if entry.size is None else entry.size, "", entry.origin or f"? {entry.name}")


def unsafe(name: str) -> str:
    """What is wrong with the name of a file, with the fix."""
    return f"rename it: it is {wrong}" if (wrong := problem(name, PARTS)) else ""


def named(hashes: dict[str, str]) -> Json:
    """The name that its content gives a set of files: the hash of what sha256sum prints of them, sorted by name."""
    lines = [f"{sha256}  {name}\n" for name, sha256 in sorted(hashes.items())]
    digest = hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
    return {"set": digest, **({"sums": hashes} if len(hashes) <= MOST_SUMS else {})}


def say(line: Json) -> None:
    """Print a line, at once."""
    print(json.dumps(line), flush=True)


def run(words: list[str]) -> int:
    """Answer the request; the exit status."""
    try:
        request = json.loads(Path(words[0]).read_bytes())
        say({"end": main(request, Path(words[1]), Path(words[2]))})
    except Interrupted as error:
        say({"again": str(error)})
        return 1
    except GangplankError as error:
        say({"problem": str(error)})
        return 1
    except Exception as error:  # noqa: BLE001  # the command here can show one line, not a traceback
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        say({"again": str(Problem("the pod that writes to the claim", reason, "its work done", "try again"))})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
