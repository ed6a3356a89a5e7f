"""A file of requirements that is locked: each package at one version, each file of it by its SHA-256."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gangplank.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

PINNED = re.compile(r"[A-Za-z0-9][-\w.]*(\[[-\w., ]*\])?\s*===?\s*[^\s;*]+")
HASH = re.compile(r"--hash[= ]sha256:[0-9a-f]{64}(?=\s|$)")
OPTION = re.compile(r"(?:^|\s)(--?(?!hash)[a-z][-a-z]*)")
SOURCES = ("PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_FIND_LINKS")  # variables by which pip finds a site's index
NAMED = 3  # lines in a message
LOCK = "pip-compile --generate-hashes -o {0} requirements.in, or uv pip compile --generate-hashes"


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Each requirement or option with the number of its line, its continuations joined, without comments."""
    whole, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        part = re.sub(r"(^|\s)#.*$", "", raw).strip()
        first = first or number
        if part.endswith("\\"):
            whole += part[:-1] + " "
            continue
        if (whole + part).strip():
            yield first, (whole + part).strip()
        whole, first = "", 0
    if whole.strip():
        yield first, whole.strip()


def unlocked(text: str) -> list[str]:
    """What is wrong with each line that is not locked.

    >>> unlocked("six==1.17.0 --hash=sha256:" + 64 * "0"), unlocked("six>=1  # any")
    ([], ['line 1: six>=1'])
    """
    return [f"line {number}: {line[:60]}" for number, line in lines(text)
            if OPTION.search(line) or not (PINNED.match(line) and HASH.search(line))]


def problem(name: str, folder: Mapping[str, str], job: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What was found, what was expected, and the fix; None if the file can be installed from."""
    if name not in folder:
        return name, "a file of `code`", f"name one of its files by its path in that folder, e.g. {min(folder)}"
    if not list(lines(folder[name])):
        return f"{name} without a requirement", "at least one", "remove the field"
    if bad := unlocked(folder[name]):
        got = f"{name} with {counted(len(bad), 'line')} not locked ({listed(bad, NAMED)})"
        return got, "name==version --hash=sha256:… in each, and no options", LOCK.format(name)
    env = job.get("env")
    sources = [key for key in SOURCES if key in env] if isinstance(env, Mapping) else []
    if any(file.endswith(".whl") for file in folder) or job.get("secrets") or sources:
        return None
    fix = f"pip download --require-hashes --only-binary :all: -r {name} -d WHEELS, with the Python of the image"
    return f"{name} and no wheels", "wheels in `code`, or PIP_INDEX_URL in `env`", f"{fix}; carry WHEELS in `code`"
