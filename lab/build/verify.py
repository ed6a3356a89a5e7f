"""Hash the whole cache again: `make verify`. What differs from its recorded hash is named and removed.

While a lab runs from the cache, it is named and stays: a node without its files would fail in the middle of its work.

Programs, Debian packages, root file systems and images are compared with lab/lock.json, or with what their build
recorded in the cache if the lock has other inputs. The Go toolchain and mmdebstrap are compared with lab/versions.yml,
Go modules with go.sum, charts with their module, and Python packages with their RECORD. Blobs of an image store are
compared with their names. Its unpacked layers are not: containerd made them from these blobs. Nor are Python's compiled
.pyc files.
apt/ has lists that apt verifies when it fetches them; checkouts/ and helm/ have notes about this machine.
"""

from __future__ import annotations

import base64
import csv
import filecmp
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.disk import discard
from lab.build.cache import cache_home, one_at_a_time, sha256_file
from lab.build.debian_root import deb_name
from lab.build.go_commands import module_folder
from lab.build.go_toolchain import go_environment
from lab.build.image_store import CONTENT
from lab.build.lock import differences, digests_in, key_of, read_lock, recorded
from lab.build.oci_archive import manifest_digest
from lab.build.parts import Workshop
from lab.build.versions import MODULES, Part, load_pins
from lab.errors import PartError
from lab.host.namespaces import RUN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.build.cache import Say
    from lab.build.lock import Packages

STATE = Path("/var/lib/gangplank/lab")  # lab_cluster_folder of the lab's inventory
KEPT = "make down, then make verify again: a lab runs from it"
REMOVED = "removed; the next build makes or fetches it again"
REMOVED_VENV = "removed; make setup, or make sbom, makes it again"
NO_RECORD = "it has no recorded hash"
KNOWN = ("apt", "build.lock", "checkouts", "debs", "go", "helm", "images", "parts", "roots", "stores", "venv", "vm")
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


def folders(shop: Workshop, name: str) -> list[Path]:
    """The finished folders of one kind; links to them and drafts are none."""
    return [path for path in sorted((shop.home / name).glob("[!.]*")) if not path.is_symlink()]


def built(shop: Workshop, name: str, pattern: str) -> Iterator[Finding]:
    """Files of all parts or roots, also of other checkouts: by the lock if it has the key, else by their record."""
    for folder in folders(shop, name):
        entry = recorded(shop.lock[name].values(), folder)
        lines = differences(entry, key_of(folder), digests_in(folder, pattern)) if entry else [NO_RECORD]
        yield from ((folder, line) for line in lines)


def programs(shop: Workshop) -> Iterator[Finding]:
    """Binaries of all parts."""
    yield from built(shop, "parts", "bin/*")


def packages(shop: Workshop) -> Iterator[Finding]:
    """Debian packages: the locked ones, mmdebstrap, and those of which a root in the cache was built."""
    tool = shop.pins.mmdebstrap
    sources = [_packages_of(folder) for folder in folders(shop, "roots")]
    sources += [{tool.name: [tool.version, tool.sha256]}, *(root["packages"] for root in shop.lock["roots"].values())]
    expected = {deb_name(name, version): digest for source in sources for name, (version, digest) in source.items()}
    for deb in sorted((shop.home / "debs").glob("*.deb")):
        if deb.name not in expected:
            yield deb, NO_RECORD
        elif (digest := sha256_file(deb)) != expected[deb.name]:
            yield deb, f"got {digest}, expected {expected[deb.name]}"


def _packages_of(folder: Path) -> Packages:
    try:
        return dict(json.loads((folder / "packages.json").read_text()))
    except (OSError, ValueError):
        return {}


def roots(shop: Workshop) -> Iterator[Finding]:
    """Root file systems, and their unpacked trees."""
    findings = list(built(shop, "roots", "root.tar"))
    yield from findings
    altered = {path for path, _ in findings}
    for folder in folders(shop, "roots"):
        if (folder / "tree").exists() and folder not in altered:
            command = ["tar", "-C", str(folder / "tree"), "--numeric-owner", "-df", str(folder / "root.tar")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            lines = (done.stdout + done.stderr).splitlines()[:5] if done.returncode else []
            yield from ((folder, line) for line in lines)


def images(shop: Workshop) -> Iterator[Finding]:
    """Image archives: every blob by its name, and the manifest by the lock, else by its record."""
    locked = {entry["key"]: entry["digests"]["manifest"] for entry in shop.lock["images"].values()}
    for folder in folders(shop, "images"):
        try:
            record = json.loads((folder / "image.json").read_text())["digest"]
            digest = manifest_digest(folder / "image.tar")
        except PartError as error:
            yield folder, error.what
            continue
        except (OSError, ValueError, KeyError, TypeError):
            yield folder, NO_RECORD
            continue
        expected = locked.get(key_of(folder), record)
        for got in {digest, record} - {expected}:
            yield folder, f"got {got}, expected {expected}"


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


def venvs(shop: Workshop) -> Iterator[Finding]:
    """Python packages, by the RECORD that each brought; what no RECORD names is named too."""
    for folder in folders(shop, "venv"):
        if (folder / "complete").exists():
            for site in folder.glob("lib/python*/site-packages"):
                names = sorted(_unlike_record(site))
                if names:
                    yield folder, f"{', '.join(names[:5])} not as RECORD says"


def _unlike_record(site: Path) -> Iterator[str]:
    """The files of site-packages that differ from their RECORD, or are in none."""
    listed = set()
    for path in site.glob("*.dist-info/RECORD"):
        for name, digest, _ in csv.reader(path.read_text().splitlines()):
            file = Path(os.path.normpath(site / name))
            listed.add(file)
            if digest and (not file.is_file() or digest != f"sha256={_record_digest(file)}"):
                yield name
    for file in files_in(site):
        if file not in listed and file.suffix != ".pyc":
            yield str(file.relative_to(site))


def _record_digest(file: Path) -> str:
    return base64.urlsafe_b64encode(bytes.fromhex(sha256_file(file))).decode().rstrip("=")


CHECKS = (toolchain, programs, packages, roots, images, blobs, modules, venvs)


def unknown(shop: Workshop) -> list[Path]:
    """What nothing here makes, so that it has no hash: older versions did, or you."""
    suites = {root.suite for root in shop.pins.roots.values()} | {shop.pins.mmdebstrap.suite}
    known = {"": {*KNOWN}, "go": {shop.pins.go_version}, "apt": suites}
    places = ((path, names) for place, names in known.items() for path in sorted((shop.home / place).glob("[!.]*")))
    return [path for path, names in places if path.name not in names]


def lab_runs(home: Path) -> bool:
    """Whether a lab may run from this cache: it has the usual folder, it runs, or a node has a link to a store."""
    records = (home / "stores").glob("*/images.json")
    return STATE.exists() or RUN.exists() or any(record.stat().st_nlink > 1 for record in records)


def verify(shop: Workshop, say: Say) -> Iterator[str]:
    """Remove everything that differs, unless a lab runs from it; one line each at once, and for what is unknown."""
    for check in CHECKS:
        say(f"{check.__name__}: hashing")
        for path, how in check(shop):
            running = lab_runs(shop.home)  # now: it may have come up meanwhile
            removed = REMOVED_VENV if path.parent == shop.home / "venv" else REMOVED
            yield f"{path}: {how}. Fix: {KEPT if running else removed}"
            if running:
                continue
            if path.is_dir():
                discard(path)
            else:
                path.unlink(missing_ok=True)
    yield from (f"{path}: nothing here makes it. Fix: remove it if you do not need it" for path in unknown(shop))


def main() -> int:
    """Print what differs; exit status 1 if anything does."""

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        with one_at_a_time(cache_home(), say):
            shop = Workshop(cache_home(), load_pins(), say, dry=False)
            shop.lock = read_lock()
            differs = False
            for line in verify(shop, say):
                print(line, flush=True)
                differs = True
    except PartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not differs:
        print("the cache is as its recorded hashes say")
    return differs


if __name__ == "__main__":
    sys.exit(main())
