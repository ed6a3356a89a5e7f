"""Build a part's commands from its pinned Go module."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from lab.build.cache import Say, run_shown
from lab.build.go_toolchain import go_environment
from lab.build.versions import MODULES, Part
from lab.errors import PartError, explain


def recipe(part: Part) -> list[Path]:
    """The files whose bytes decide what is built, in a stable order."""
    folder = MODULES / part.name
    return sorted(path for path in folder.rglob("*") if path.is_file())


def module_folder(part: Part, module: str, go: Path, where: Path) -> Path:
    """The folder of one of the part's modules, verified against `where`/go.sum."""
    command = [str(go), "mod", "download", "-json", module]
    done = subprocess.run(command, cwd=where, env=go_environment(go), capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    if "Dir" not in answer:
        raise explain(answer.get("Error") or done.stderr, f"{part.name} {part.version}")
    return Path(answer["Dir"])


# A compiler's folder /usr instead of the machine's, for one command and its children. Then gcc, its linker and the C
# library are those of a locked root. Every other path stays what it is.
IN_ROOT = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", 'mount --bind "$0/usr" /usr; exec "$@"']
GCC = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-Wl,--build-id=none", "-Wl,-z,defs"]


def build_commands(part: Part, go: Path, out: Path, say: Say, compiler: Path | None = None) -> None:
    """Compile every command and library of the part into out/bin, and copy its charts and files; raises PartError.

    `compiler` is the tree of the Debian root with the C compiler, if the part has C code.
    """
    where = f"{part.name} {part.version}"
    (out / "bin").mkdir()
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=out) as scratch:  # removed with `out` if interrupted
        source = Path(scratch) / part.name
        shutil.copytree(MODULES / part.name, source)
        if part.copy:
            part.copy.place(source, str(go), go_environment(go))
        env = go_environment(go) | {"TMPDIR": scratch}
        inside = [*IN_ROOT, str(compiler)] if compiler else []
        stamps = " ".join(f"-X {name}={value}" for name, value in part.stamp.items())
        if compiler:
            env |= {"CGO_ENABLED": "1", "CC": "gcc"}
            stamps += " -extldflags=-Wl,-z,lazy"  # what a program loads at run time may lack functions it never calls
        flags = ["-v", "-tags", part.tags, "-ldflags", f"-s -w -buildid= {stamps}"]
        # One call compiles all. go names each binary after its package, so the copies get the names of the commands.
        raw = Path(scratch) / "bin"
        raw.mkdir()
        packages = sorted(set(part.commands.values()))
        if packages:
            command = [*inside, str(go), "build", *flags, "-o", f"{raw}{os.sep}", *packages]
            run_shown(command, where, say, cwd=source, env=env, unit="packages compiled")
        for name, package in part.commands.items():
            (out / "bin" / name).hardlink_to(_binary_of(raw, package, where))
        for name, code in part.libraries.items():
            headers = _in_module(part, part.headers, go, source)
            command = [*inside, *GCC, f"-Wl,-soname,{name}", f"-I{headers}", "-o", str(out / "bin" / name), code]
            run_shown(command, where, say, cwd=source, env=env)
        for kind, paths in (("charts", part.charts), ("bin", part.files)):
            for name, path in paths.items():
                _copy(_in_module(part, path, go, source), out / kind / name, where)


def _in_module(part: Part, path: str, go: Path, where: Path) -> Path:
    """A path inside one of the part's modules, in the module cache."""
    module = part.owner(path)[0]
    return module_folder(part, module, go, where) / path.removeprefix(f"{module}/")


def _binary_of(raw: Path, package: str, where: str) -> Path:
    """The binary of `package`, named after its last path element, or the one before a version like v3."""
    elements = [element for element in package.split("/") if not (element[:1] == "v" and element[1:].isdigit())]
    binary = raw / elements[-1]
    if not binary.exists():
        what = f"got no binary {elements[-1]} from go, expected one for {package}"
        raise PartError(what, where, "correct `commands` in lab/versions.yml")
    return binary


def _copy(source: Path, target: Path, where: str) -> None:
    """Copy a file or folder from the module cache, where files are read-only, and make the copy writable."""
    if not source.exists():
        what = f"got a module without {source.name}, expected it there"
        raise PartError(what, where, "correct the path in lab/versions.yml")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.suffix == ".sh" else 0o644)
