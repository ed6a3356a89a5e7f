"""Hash the whole cache again: `make verify`. What differs from its recorded hash is named and removed.

While a lab runs from the cache, it is named and stays: a node without its files would fail in the middle of its work.

Programs, Debian packages, root file systems and images are compared with lab/lock.json, the Go toolchain with
lab/versions.yml, Go modules with go.sum, and charts with their module. Blobs of an image store are
compared with their names. Its unpacked layers are not: containerd made them from these blobs.
"""

from __future__ import annotations

import filecmp
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.build.cache import cache_home, one_at_a_time, sha256_file
from lab.build.go_commands import module_folder
from lab.build.go_toolchain import go_environment
from lab.build.image_store import CONTENT
from lab.build.lock import differences, digests_in, key_of, read_lock
from lab.build.oci_archive import manifest_digest
from lab.build.parts import Workshop
from lab.build.versions import MODULES, Part, load_pins
from lab.errors import PartError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.build.cache import Say

STATE = Path("/var/lib/gangplank/lab")  # lab_cluster_folder of the lab's inventory
KEPT = "make down, then make verify again: a lab runs from it"
REMOVED = "removed; the next build makes or fetches it again"
Finding = tuple[Path, str]  # what differs in the cache, and how


def tree_digest(folder: Path) -> str:
    """A digest over the paths and bytes of all files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    lines = "".join(f"{sha256_file(path)}  {path.relative_to(folder)}\n" for path in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def toolchain(shop: Workshop) -> Iterator[Finding]:
    """The unpacked Go toolchain, by its digest in lab/versions.yml."""
    folder = shop.home / "go" / shop.pins.go_version
    expected = shop.pins.go_tree.get(platform.machine())
    if folder.exists() and (digest := tree_digest(folder)) != expected:
        yield folder, f"got {digest}, expected {expected}"


def programs(shop: Workshop) -> Iterator[Finding]:
    """Binaries of parts whose key is the locked one."""
    for part in shop.pins.parts.values():
        folder = shop.place(part)
        if part.module and folder.exists():
            entry = shop.lock["parts"].get(part.name, {})
            for line in differences(entry, key_of(folder), digests_in(folder, "bin/*")):
                yield folder, line


def packages(shop: Workshop) -> Iterator[Finding]:
    """Locked Debian packages."""
    locked = {(name, *item) for entry in shop.lock["roots"].values() for name, item in entry["packages"].items()}
    for name, version, expected in sorted(locked):
        deb = shop.home / "debs" / f"{name}_{version.replace(':', '%3a')}.deb"
        if deb.exists() and (digest := sha256_file(deb)) != expected:
            yield deb, f"got {digest}, expected {expected}"


def roots(shop: Workshop) -> Iterator[Finding]:
    """Root file systems of the locked packages, and their unpacked trees."""
    for name, entry in shop.lock["roots"].items():
        folder = shop.home / "roots" / f"{name}-{entry['key']}"
        if folder.is_symlink() or not folder.exists():
            continue
        lines = differences(entry, key_of(folder), digests_in(folder, "root.tar"))
        if not lines and (folder / "tree").exists():
            command = ["tar", "-C", str(folder / "tree"), "--numeric-owner", "-df", str(folder / "root.tar")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            lines = (done.stdout + done.stderr).splitlines()[:5] if done.returncode else []
        for line in lines:
            yield folder, line


def images(shop: Workshop) -> Iterator[Finding]:
    """Image archives: every blob by its name, and the manifest by the lock."""
    locked = {entry["key"]: entry["digests"]["manifest"] for entry in shop.lock["images"].values()}
    for folder in sorted((shop.home / "images").glob("[!.]*")):
        try:
            digest = manifest_digest(folder / "image.tar")
        except PartError as error:
            yield folder, error.what
            continue
        expected = locked.get(key_of(folder), digest)
        if digest != expected:
            yield folder, f"got {digest}, expected {expected}"


def blobs(shop: Workshop) -> Iterator[Finding]:
    """Blobs of the image stores, which are named by their hashes."""
    for store in sorted((shop.home / "stores").glob("[!.]*")):
        for blob in sorted((store / CONTENT / "blobs/sha256").glob("*")):
            if (digest := sha256_file(blob)) != blob.name:
                yield store, f"blob {blob.name}: got {digest}"
                break


MODIFIED = re.compile(r"^(\S+) (\S+): (?:zip|dir) has been modified \((.+)\)$", re.MULTILINE)


def modules(shop: Workshop) -> Iterator[Finding]:
    """Go modules in the module cache, by go.sum; then the charts that were copied from them."""
    for part in shop.pins.parts.values():
        if not shop.place(part).exists() or not (MODULES / part.name / "go.sum").exists():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / part.name
            shutil.copytree(MODULES / part.name, source)
            env = go_environment(shop.go)
            if part.copy:
                part.copy.place(source, str(shop.go), env)
            command = [str(shop.go), "mod", "verify"]
            done = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, check=False)
            altered = [(Path(path), f"{name} {version}") for name, version, path in MODIFIED.findall(done.stderr)]
            yield from ((path, f"{module}: modified since its download") for path, module in altered)
            if not altered:
                yield from charts(shop, part, source)


def charts(shop: Workshop, part: Part, source: Path) -> Iterator[Finding]:
    """Charts and files of a part that differ from their module."""
    folder = shop.place(part)
    for name, path in part.charts.items():
        module = part.owner(path)[0]
        origin = module_folder(part, module, shop.go, source) / path.removeprefix(f"{module}/")
        inner = tuple(other.removeprefix(f"{name}/") + "/" for other in part.charts if other.startswith(f"{name}/"))
        copies = {str(file.relative_to(folder / "charts" / name)) for file in files_in(folder / "charts" / name)}
        copies = {file for file in copies if not file.startswith(inner)}  # a chart inside this one has its own turn
        originals = {str(file.relative_to(origin)) for file in files_in(origin)}
        both = copies & originals
        _, differing, unreadable = filecmp.cmpfiles(origin, folder / "charts" / name, both, shallow=False)
        names = sorted({*differing, *unreadable, *(copies ^ originals)})
        if names:
            yield folder, f"charts/{name}: {', '.join(names[:5])} not as in {module}"


def files_in(path: Path) -> list[Path]:
    """The files below a folder."""
    return [file for file in path.rglob("*") if file.is_file()]


CHECKS = (toolchain, programs, packages, roots, images, blobs, modules)


def lab_runs(home: Path) -> bool:
    """Whether a lab runs from this cache: its folder exists, or a node has a link to an image store."""
    records = (home / "stores").glob("*/images.json")
    return STATE.exists() or any(record.stat().st_nlink > 1 for record in records)


def verify(shop: Workshop, say: Say) -> list[str]:
    """Remove everything that differs, unless a lab runs from it; return one line each."""
    lines = []
    for check in CHECKS:
        say(f"{check.__name__}: hashing")
        for path, how in check(shop):
            running = lab_runs(shop.home)  # now: it may have come up meanwhile
            lines.append(f"{path}: {how}. Fix: {KEPT if running else REMOVED}")
            if running:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    return lines


def main() -> int:
    """Print what differs; exit status 1 if anything does."""

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        with one_at_a_time(cache_home(), say):
            shop = Workshop(cache_home(), load_pins(), say, dry=False)
            shop.lock = read_lock()
            lines = verify(shop, say)
    except PartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines) or "the cache is as lab/lock.json and go.sum say")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
