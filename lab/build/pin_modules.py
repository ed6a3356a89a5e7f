"""Write lab/modules/<part>/go.mod and go.sum from lab/versions.yml: `python -m lab.build.pin_modules [PART ...]`.

Run it after you change a version; builds need only the files that it writes. Upstream's own `replace` lines do not
apply to modules that require it, so they are copied here. Paths into upstream's tree become published versions.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from lab.build.cache import cache_home
from lab.build.go_toolchain import find_go, go_environment
from lab.build.versions import MODULES, Part, load_pins


def _go(args: list[str], folder: Path, *, cgo: bool = False) -> str:
    go = find_go(load_pins(), cache_home(), print)
    env = go_environment(go) | {"GOFLAGS": "-mod=mod", "CGO_ENABLED": str(int(cgo))}
    done = subprocess.run([go, *args], cwd=folder, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _downloaded(part: Part) -> dict[str, str]:
    """What go says of the part's module, once it is in the module cache and verified."""
    return dict(json.loads(_go(["mod", "download", "-json", f"{part.module}@{part.version}"], MODULES)))


def _vouched(part: Part) -> list[str]:
    """The lines of upstream's go.sum, a file of the verified module, for what the checksum database lacks."""
    lines = (Path(_downloaded(part)["Dir"]) / "go.sum").read_text().splitlines(keepends=True)
    return [line for line in lines if line.split()[0] in part.sums]


def _replacements(part: Part, kubernetes: str) -> list[str]:
    """Upstream's replace lines for our go.mod; Kubernetes' libraries follow the lab's Kubernetes, or the part's own."""
    libraries = "v0" + kubernetes.removeprefix("v1")
    source = _downloaded(part)["GoMod"]
    lines = []
    for replace in json.loads(_go(["mod", "edit", "-json", source], MODULES)).get("Replace") or []:
        old, new, version = replace["Old"]["Path"], replace["New"]["Path"], replace["New"].get("Version")
        if part.copy and old == part.copy.module:
            lines.append(f"{old} => ./{part.copy.to}")
        elif (old.startswith("k8s.io/") and (version or "").startswith("v0.")) or "/staging/src/k8s.io/" in new:
            lines.append(f"{old} => {old} {libraries}")
        elif version:
            lines.append(f"{old} => {new} {version}")
    return lines


def pin(part: Part, kubernetes: str) -> None:
    """Write the part's go.mod and go.sum: its module, upstream's replacements, one `tool` line per command."""
    folder = MODULES / part.name
    folder.mkdir(exist_ok=True)
    head = [f"module gangplank/lab/{part.name}", "", f"go {load_pins().go_version}", ""]
    if part.module.startswith("gangplank/"):
        (folder / "go.mod").write_text("\n".join(head[:3]) + "\n")
        if part.beside:
            (folder / "go.sum").unlink(missing_ok=True)
            _go(["get", *(f"{module}@{version}" for module, version in part.beside.items())], folder)
            _go(["mod", "tidy"], folder)
            _go(["mod", "verify"], folder)
        return
    modules = {part.module: part.version, **part.beside}
    requirements = ["require (", *(f"{module} {version}" for module, version in modules.items()), ")", ""]
    body = [*requirements, "replace (", *_replacements(part, kubernetes), ")"]
    (folder / "go.mod").write_text("\n".join([*head, *body]) + "\n")
    (folder / "go.sum").write_text("".join(_vouched(part)) if part.sums else "")
    go = find_go(load_pins(), cache_home(), print)
    copied = part.copy.place(folder, str(go), go_environment(go)) if part.copy else None
    try:
        if part.commands:
            packages = sorted(set(part.commands.values()))
            upstream = [package for package in packages if not package.startswith("gangplank/")]
            if upstream:
                _go(["get", "-tool", *(f"{package}@{part.owner(package)[1]}" for package in upstream)], folder)
            _go(["list", "-deps", *packages], folder, cgo=bool(part.compiler))  # adds the checksums that builds need
        _go(["mod", "download", *modules], folder)  # and those of modules used for their charts only
        _go(["mod", "edit", "-fmt"], folder)
        _go(["mod", "verify"], folder)
    finally:  # it would be part of what is built
        if copied:
            shutil.rmtree(copied)


def main(names: list[str]) -> None:
    """Pin the named parts, or all."""
    pins = load_pins()
    for part in pins.parts.values():
        if part.module and (not names or part.name in names):
            print(f"pin {part.name} {part.version}", flush=True)
            kubernetes = part if part.module == pins.parts["kubernetes"].module else pins.parts["kubernetes"]
            pin(part, part.kubernetes or kubernetes.version)


if __name__ == "__main__":
    main(sys.argv[1:])
