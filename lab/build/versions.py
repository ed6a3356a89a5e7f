"""lab/versions.yml as frozen objects: the one owner of every version that the lab builds."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab.errors import PartError, explain

LAB = Path(__file__).resolve().parents[1]
MODULES = LAB / "modules"


@dataclass(frozen=True)
class Copy:
    """A module whose source is copied next to go.mod, because upstream replaces it with a path of its own tree."""

    module: str
    version: str
    sum: str
    """Its hash, as go.sum would have it: a module that a path replaces has none there."""
    to: str

    def place(self, folder: Path, go: str, env: dict[str, str]) -> Path:
        """Copy the module, compared with its hash, and our overlay into `folder`; return its path. Raises PartError."""
        command = [go, "mod", "download", "-json", f"{self.module}@{self.version}"]
        env = env | {"GOFLAGS": "-mod=mod"}  # LAB has no go.mod to read
        answer = subprocess.run(command, env=env, cwd=LAB, capture_output=True, text=True, check=False)
        download = json.loads(answer.stdout or "{}")
        if "Dir" not in download:
            raise explain(download.get("Error") or answer.stderr, self.module)
        if download.get("Sum") != self.sum:
            fix = "empty the module cache and run it again; for a new version, correct `sum` in lab/versions.yml"
            what = f"got {download.get('Sum', 'no hash')}, expected {self.sum}; nothing was used"
            raise PartError(what, f"{self.module}@{self.version}", fix)
        target = folder / self.to
        shutil.copytree(download["Dir"], target, dirs_exist_ok=True)
        for path in [target, *target.rglob("*")]:
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        overlay = folder / "overlay" / self.to
        if overlay.is_dir():
            shutil.copytree(overlay, target, dirs_exist_ok=True)
        return target


@dataclass(frozen=True)
class Image:
    """An image under upstream's own name, from a Debian root or from nothing.

    It adds `binaries` (command of the part, or part/command, -> path), `trees` (path in the image -> folder of this
    project) and `links`.
    """

    name: str
    entrypoint: list[str]
    root: str = ""
    binaries: dict[str, str] = field(default_factory=dict)
    trees: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    environment: list[str] = field(default_factory=list)
    user: str = ""


@dataclass(frozen=True)
class Part:
    """One upstream module and what is built from it; paths in `charts` and `files` are inside the module.

    `beside` has further modules of the same go.mod (module -> version). Commands may belong to them, and a path that
    begins with the name of one is inside it. Parts that name each other there share compiled libraries.
    """

    name: str
    version: str
    module: str = ""
    beside: dict[str, str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    stamp: dict[str, str] = field(default_factory=dict)
    tags: str = ""
    copy: Copy | None = None
    charts: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    images: tuple[Image, ...] = ()
    compiler: str = ""
    """The Debian root whose C compiler builds it; without one, the part has no C code."""
    libraries: dict[str, str] = field(default_factory=dict)
    """Shared libraries: name -> {source} in the part's folder of lab/modules, compiled by the root's gcc."""
    headers: str = ""
    """The folder that their sources include from, inside one of the modules of go.mod."""
    kubernetes: str = ""
    """The Kubernetes whose libraries it is built with; without one, the lab's."""
    sums: tuple[str, ...] = ()
    """Modules that the checksum database lacks; their hashes are those of the go.sum of the part's own module."""
    build_s: float = 0
    """Seconds on two cores, in this file's order; only for the estimate."""

    @property
    def title(self) -> str:
        """The part's name in a line of progress."""
        return f"{self.name} {self.version}"

    def owner(self, path: str) -> tuple[str, str]:
        """The module and version that a package or path belongs to: one of `beside`, else the part's own."""
        inside = (module for module in self.beside if f"{path}/".startswith(f"{module}/"))
        module = next(inside, self.module)
        return module, self.beside.get(module, self.version)


@dataclass(frozen=True)
class Root:
    """A Debian root file system: `packages` of `suite`, with their lowest acceptable versions in `floors`."""

    name: str
    suite: str
    variant: str
    packages: list[str]
    tree: bool = False
    headers: bool = False
    """Whether it keeps the headers and static libraries of its packages, for a compiler."""
    floors: dict[str, str] = field(default_factory=dict)
    build_s: float = 0

    @property
    def title(self) -> str:
        """The root's name in a line of progress."""
        return f"root file system {self.name} ({self.suite})"


@dataclass(frozen=True)
class Tool:
    """A Debian package that builds others: one version of `suite`, and the sha256 of its .deb."""

    name: str
    suite: str
    version: str
    sha256: str


@dataclass(frozen=True)
class Pins:
    """All of lab/versions.yml."""

    go_version: str
    go_sha256: dict[str, str]
    parts: dict[str, Part]
    roots: dict[str, Root]
    on_demand: frozenset[str] = frozenset()
    """Parts that only one scenario or test needs, and builds; `make parts` omits them."""
    roots_on_demand: frozenset[str] = frozenset()
    """The same of root file systems."""
    go_tree: dict[str, str] = field(default_factory=dict)
    """Digest of the unpacked toolchain, by architecture; see lab.build.verify.tree_digest."""
    mmdebstrap: Tool = Tool("mmdebstrap", "", "", "")

    @property
    def roots_of_all(self) -> tuple[str, ...]:
        """The roots that a build of everything makes."""
        return tuple(name for name in self.roots if name not in self.roots_on_demand)


def _expand(value: Any, version: str) -> Any:
    """Fill {v} and {n} in every string below `value`."""
    if isinstance(value, str):
        return value.replace("{v}", version).replace("{n}", version.removeprefix("v"))
    if isinstance(value, list):
        return [_expand(item, version) for item in value]
    if isinstance(value, dict):
        return {key: _expand(item, version) for key, item in value.items()}
    return value


def _part(name: str, raw: dict[str, Any]) -> Part:
    fields = _expand(raw, raw["version"])
    images = tuple(Image(**image) for image in fields.pop("images", []))
    copy = Copy(**fields.pop("copy")) if "copy" in fields else None
    sums = tuple(fields.pop("sums", ()))
    return Part(name=name, images=images, copy=copy, sums=sums, **fields)


@cache
def load_pins() -> Pins:
    """Read lab/versions.yml once."""
    raw = yaml.safe_load((LAB / "versions.yml").read_text())
    on_demand = frozenset(name for name, part in raw["parts"].items() if part.pop("on_demand", False))
    roots_on_demand = frozenset(name for name, root in raw["roots"].items() if root.pop("on_demand", False))
    return Pins(
        on_demand=on_demand,
        roots_on_demand=roots_on_demand,
        go_version=raw["go"]["version"],
        go_sha256=raw["go"]["sha256"],
        go_tree=raw["go"]["tree"],
        mmdebstrap=Tool("mmdebstrap", **raw["mmdebstrap"]),
        parts={name: _part(name, part) for name, part in raw["parts"].items()},
        roots={name: Root(name=name, **root) for name, root in raw["roots"].items()},
    )
