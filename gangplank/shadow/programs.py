"""Finds the programs of a shadow control plane, in exactly the versions that the site runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

ANY = ""  # version: whatever there is
VERSION = re.compile(r"v?[0-9]+[.][0-9]+[.][0-9]+\S*")
TIMEOUT_S = 30  # of a program that only says its version
BUILT = "*-v*-*/bin"  # lab/build/parts.py names the folder of a part <part>-<version>-<digest>


def parts_folder() -> Path:
    """Where lab.build keeps what it has built."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gangplank/parts"


def version_of(program: Path) -> str:
    """What a program says of its version; "" if it does not run.

    >>> version_of(Path("/no/such/program"))
    ''
    """
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = VERSION.search(done.stdout)
    return "v" + match[0].removeprefix("v") if match else ""


def find(wanted: Mapping[str, str], folder: str | None) -> tuple[dict[str, str], list[str]]:
    """The paths of programs in the wanted versions, from a folder or from what was built; and what is missing."""
    paths, problems = {}, []
    for name, version in wanted.items():
        places = [Path(folder) / name] if folder else sorted(parts_folder().glob(f"{BUILT}/{name}"))
        versions = {str(place): version_of(place) for place in places if os.access(place, os.X_OK)}
        fitting = [place for place, own in versions.items() if own and version in {ANY, own}]
        if fitting:
            paths[name] = fitting[-1]
            continue
        own = ", ".join(sorted(set(filter(None, versions.values()))))
        where = folder or str(parts_folder())
        got = f"{own} in {where}" if own else f"no such program in {where}"
        expected = f"{version}, which the site runs" if version else "one"
        fix = "run make parts in a checkout that pins this version (lab/versions.yml), or name a folder with --programs"
        problems.append(str(Problem(name, got, expected, fix)))
    return paths, problems
