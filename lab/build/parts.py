"""Build the wanted parts into the user's cache: `python -m lab.build [PART ...]`, or the role lab_parts.

A finished build is found by a key over its pins, recipes and inputs; an interrupted one starts again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import sys
from pathlib import Path
from typing import Any

from gangplank.disk import discard
from lab.build.cache import Say, building, cache_home, digest_of, one_at_a_time
from lab.build.checkouts import note, used_by_others
from lab.build.debian_root import ROOT_RECIPE, Debs, build_root
from lab.build.go_commands import build_commands, recipe
from lab.build.go_toolchain import find_go
from lab.build.image_store import images_in, is_used, make_store, store_folder
from lab.build.lock import (
    Entry,
    Packages,
    differences,
    digests_in,
    key_of,
    read_lock,
    record,
    recorded,
    refuse,
    write_lock,
)
from lab.build.oci_archive import Layer, write_image, write_layer
from lab.build.progress import Progress
from lab.build.versions import LAB, Image, Part, Pins, Root, load_pins
from lab.errors import LabError, PartError, explain

KEY_DIGITS = 16  # of digest_of
ALTERED = "this machine's compiler or sources were altered: do not use it"
RECIPE = 1  # raise it when this code makes other bytes of the same pins


class WouldBuildError(Exception):
    """Raised in a dry run when something would have to be built."""


class Workshop:
    """One run of the build: the cache, the pins, and what was built so far."""

    def __init__(self, home: Path, pins: Pins, say: Say, *, dry: bool, relocking: bool = False) -> None:
        """Nothing is built yet."""
        self.home, self.pins, self.dry, self.relocking = home, pins, dry, relocking
        self.say: Say = lambda line: say(f"{line}{self.progress.estimate()}")
        self.progress = Progress({})
        self.lock = read_lock()
        self.built: list[str] = []
        self.whole: set[Path] = set()  # parts whose binaries were hashed in this run

    @functools.cached_property
    def go(self) -> Path:
        """The pinned Go toolchain."""
        return find_go(self.pins, self.home, self.say, lambda: self._note(f"go {self.pins.go_version}"))

    def place(self, part: Part) -> Path:
        """The part's folder in the cache, built or not."""
        pinned = dataclasses.asdict(part) | {"images": None}
        for name in ("beside", "kubernetes", "sums", "build_s"):
            del pinned[name]  # go.mod and go.sum say it; the time does not change a byte
        if part.copy:
            del pinned["copy"]["sum"]  # it proves the bytes, and the version names them
        compilers = [self.root_place(*self.locked(part.compiler)).name] if part.compiler else []
        for name in () if compilers else ("compiler", "libraries", "headers"):
            del pinned[name]  # most parts have none, and keep the keys that they had before there were any
        key = digest_of(RECIPE, pinned, f"go{self.pins.go_version}", *compilers, *recipe(part))
        return self.home / "parts" / f"{part.name}-{part.version}-{key}"

    def part(self, part: Part) -> Path:
        """The folder of the part's commands, charts and files, built if it is missing."""
        target = self.place(part)
        if target not in self.whole and not self._is_whole(part, target):
            self._step(part.title)
            compiler = self.root(part.compiler) / "tree" if part.compiler else None
            with building(target) as draft:
                build_commands(part, self.go, draft, self.say, compiler)
                locked, digests = self.lock["parts"].get(part.name, {}), digests_in(draft, "bin/*")
                refuse(part.title, differences(locked, key_of(target), digests), ALTERED)
                record(draft, digests)
                if target.exists():
                    discard(target)  # last: a lab may run from it
        self.whole.add(target)
        return target

    def _is_whole(self, part: Part, target: Path) -> bool:
        """Whether the part is built and its binaries are as they were then: a second for half a gigabyte."""
        if not target.exists():
            return False
        entry = recorded([self.lock["parts"].get(part.name, {})], target) or {}
        lines = differences(entry, key_of(target), digests_in(target, "bin/*") if entry else {})
        if lines and not self.dry:
            self.say(f"{part.title}: altered in the cache, so it is built again: {lines[0]}")
        return not lines

    def root_place(self, root: Root, packages: Packages) -> Path:
        """The folder of the root of these packages, built or not."""
        stated = dataclasses.asdict(root)
        del stated["build_s"]
        if not root.headers:
            del stated["headers"]  # as above
        return self.home / "roots" / f"{root.name}-{digest_of(RECIPE, stated, ROOT_RECIPE, packages)}"

    def plan(self, names: list[str], roots: tuple[str, ...]) -> None:
        """Sum up what is missing, and estimate the time if it is more than a minute."""
        parts = [self.pins.parts[name] for name in names]
        built = [part for part in parts if part.module and not self.place(part).exists()]
        used = [image.root for part in parts for image in part.images] + [part.compiler for part in built]
        names_of_roots = dict.fromkeys([*roots, *filter(None, used)])
        costs = {part.title: part.build_s for part in built}
        for root, packages in map(self.locked, names_of_roots):
            if not self.root_place(root, packages).exists():
                costs[root.title] = root.build_s
        self.progress = Progress(costs)
        if self.progress.estimate():
            self.say(f"{len(costs)} parts are not in the cache and will be built once")

    def locked(self, name: str) -> tuple[Root, Packages]:
        """A root, and its packages in the lock."""
        return self.pins.roots[name], self.lock["roots"].get(name, {}).get("packages", {})

    def root(self, name: str) -> Path:
        """The folder with root.tar and packages.json of a Debian root, built if it is missing."""
        root, locked = self.locked(name)
        entry = self.lock["roots"].get(name, {})
        locked_target = self.root_place(root, locked)
        if locked_target.exists():
            return locked_target.resolve()
        self._step(root.title)
        debs = Debs(self.home, self.say)
        complete = set(root.packages) <= locked.keys() and not debs.missing(locked)
        packages = locked if complete else debs.fetch(root, locked)
        target = self.root_place(root, packages)
        if not target.exists():
            with building(target) as draft:
                build_root(root, packages, debs, draft / "root.tar", self.say)
                (draft / "packages.json").write_text(json.dumps(packages, indent=1))
                digests = digests_in(draft, "root.tar")
                self._compare(name, entry, key_of(target), digests)
                record(draft, digests)
        if packages != locked:
            self._report_moved(name, locked, packages)
            if not locked_target.exists():
                locked_target.unlink(missing_ok=True)  # a link to a root that is gone, as `make verify` leaves it
                locked_target.symlink_to(target.name)  # the lock stays as it is, and the next run uses this root
        return target

    def _compare(self, name: str, entry: Entry, key: str, digests: dict[str, str]) -> None:
        """Refuse other bytes from the same inputs, which have a hash each; `make relock` reports and locks them."""
        lines = differences(entry, key, digests)
        if not self.relocking:
            refuse(name, lines, "this machine's dpkg or Python makes other bytes: build on another one")
        for line in lines:
            self.say(f"{name}: {line} by the lock until now")

    def _report_moved(self, name: str, old: Packages, new: Packages) -> None:
        changed = sorted(package for package in old.keys() | new.keys() if old.get(package) != new.get(package))
        if old:
            moves = ", ".join(f"{p} {old.get(p, ['none'])[0]} -> {new.get(p, ['none'])[0]}" for p in changed[:12])
            self.say(f"{name}: the archive has moved on: {moves}{' …' if len(changed) > 12 else ''}")

    def image_place(self, part: Part, image: Image, root: Path | None) -> tuple[Path, dict[str, Path]]:
        """The image's folder in the cache, and path in the image -> file here; neither has to be built."""
        files = {target: self.place(owner) / "bin" / name for target, owner, name in self._binaries(part, image)}
        for target, tree in image.trees.items():
            base = LAB.parent / tree
            sources = [path for path in sorted(base.iterdir()) if path.suffix in (".py", ".pth")]
            files |= {f"{target}/{path.name}": path for path in sources}
        names = sorted(files.items())
        # The name of a part's folder identifies its content; only files of this checkout have to be read.
        built = [(target, path.parent.parent.name) for target, path in names if path.is_relative_to(self.home)]
        ours = [(target, path) for target, path in names if not path.is_relative_to(self.home)]
        key = digest_of(RECIPE, dataclasses.asdict(image), root.name if root else "", built, [n for n, _ in ours],
                        *[path for _, path in ours])  # fmt: skip
        return self.home / "images" / f"{part.name}-{key}", files

    def image(self, part: Part, image: Image) -> dict[str, str]:
        """The image's name, archive and digest; the archive is written if it is missing."""
        for _, owner, _ in self._binaries(part, image):
            self.part(owner)
        root = self.root(image.root) if image.root else None
        folder, files = self.image_place(part, image, root)
        if not folder.exists():
            self._step(f"image {image.name}")
            with building(folder) as draft:
                layers = [Layer.of(root / "root.tar")] if root else []
                if files or image.links:
                    scripts = {target for target, path in files.items() if not path.is_relative_to(self.home)}
                    layers.append(write_layer(draft / "layer.tar", files, image.links, scripts))
                path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
                config = {"Entrypoint": image.entrypoint, "Env": [path, *image.environment], "User": image.user}
                digest = write_image(draft / "image.tar", image.name, layers, config)
                (draft / "layer.tar").unlink(missing_ok=True)
                (draft / "image.json").write_text(json.dumps({"name": image.name, "digest": digest}))
                locked = self.lock["images"].get(image.name, {})
                self._compare(image.name, locked, key_of(folder), {"manifest": digest})
        about = json.loads((folder / "image.json").read_text())
        return {**about, "archive": str(folder / "image.tar")}

    def _binaries(self, part: Part, image: Image) -> list[tuple[str, Part, str]]:
        """Path in the image, the part that has the binary (`part/name`, or this part), and its name there."""
        split = [(target, *source.rpartition("/")[::2]) for source, target in image.binaries.items()]
        return [(target, self.pins.parts[owner] if owner else part, name) for target, owner, name in split]

    def _note(self, what: str) -> None:
        self.built.append(what)
        if self.dry:
            raise WouldBuildError

    def _step(self, what: str) -> None:
        self._note(what)
        self.progress.begin(what)
        self.say(f"{what}: building")

    def store(self, images: list[dict[str, str]], containerd: Path) -> Path:
        """The folder of a store with these images, made if it is missing."""
        target = store_folder(images, self.home)
        broken = bool(images) and not images_in(target) and not is_used(target)
        if not target.exists() or broken:
            self._step("the image store")
            discard(target)
            make_store(target, images, containerd, self.say, used_by_others(self.home))
        return target


def sweep_images(home: Path, names: list[str], images: list[dict[str, str]]) -> None:
    """Remove archives of these parts that no checkout uses: every edit of the trainer would leave a gigabyte."""
    kept = {Path(image["archive"]).parent for image in images} | used_by_others(home)
    for name in names:
        for folder in (home / "images").glob(f"{name}-*"):
            key = folder.name.removeprefix(f"{name}-")
            if folder not in kept and len(key) == KEY_DIGITS and "-" not in key:
                discard(folder)


def build(names: list[str], say: Say, *, roots: tuple[str, ...] = ("node",), dry: bool = False) -> dict[str, Any]:
    """Build the named parts, their roots, the roots in `roots` (the nodes'), and the image store; return their places.

    The result: `bin` {part: folder}, `charts` {chart: folder}, `roots` {root: unpacked tree}, `images` [{name, archive,
    digest}], `store` (folder), `built` [what this run built]. With `dry` nothing is built, and missing parts have no
    entry. Raises PartError.
    """
    home, pins = cache_home(), load_pins()
    _check(pins, names)
    # If nothing is missing, do not wait for another build.
    result = _make(names, roots, Workshop(home, pins, say, dry=True))
    if dry:
        return result
    # What is used from now on may be removed by a build of another checkout that could not read the note yet.
    if result["built"] or note(home, result):
        with one_at_a_time(home, say):
            shop = Workshop(home, pins, say, dry=False)
            shop.plan(names, roots)
            result = _make(names, roots, shop)
            note(home, result)
    return result


def relock(names: list[str], say: Say) -> None:
    """Build the named parts with their images and roots, and write their digests to lab/lock.json; raises PartError.

    An image that carries the same folder as one of a named part, or a binary of one, is built and locked too.
    Roots keep their locked packages while the archive has them. A root without an entry in the lock gets the newest.
    """
    home, pins = cache_home(), load_pins()
    _check(pins, names)
    with one_at_a_time(home, say):
        shop = Workshop(home, pins, say, dry=False, relocking=True)
        shop.plan(names, tuple(pins.roots))
        lock = {section: dict(shop.lock[section]) for section in shop.lock}
        for name in pins.roots:
            folder = shop.root(name)
            packages = json.loads((folder / "packages.json").read_text())
            lock["roots"][name] = {
                "key": key_of(folder),
                "digests": digests_in(folder, "root.tar"),
                "packages": packages,
            }
        shop.lock = shop.lock | {"roots": lock["roots"]}  # the key of a part with a compiler has its root's packages
        for part in (pins.parts[name] for name in with_sharers(pins, names)):
            if part.module:
                folder = shop.part(part)
                lock["parts"][part.name] = {"key": key_of(folder), "digests": digests_in(folder, "bin/*")}
            for image in part.images:
                built = shop.image(part, image)
                key = key_of(Path(built["archive"]).parent)
                lock["images"][image.name] = {"key": key, "digests": {"manifest": built["digest"]}}
        images = {image.name for part in pins.parts.values() for image in part.images}
        current = {"parts": pins.parts.keys(), "roots": pins.roots.keys(), "images": images}
        write_lock({section: {k: v for k, v in lock[section].items() if k in current[section]} for section in lock})


def with_sharers(pins: Pins, names: list[str]) -> list[str]:
    """The named parts, and those whose images carry a folder that an image of them carries, or a binary of theirs."""
    trees = {tree for name in names for image in pins.parts[name].images for tree in image.trees.values()}

    def shares(image: Image) -> bool:
        owners = {source.rpartition("/")[0] for source in image.binaries}
        return bool(trees & {*image.trees.values()} or owners & {*names})

    return [*names, *(name for name, part in pins.parts.items() if name not in names and any(map(shares, part.images)))]


def _make(names: list[str], roots: tuple[str, ...], shop: Workshop) -> dict[str, Any]:
    result: dict[str, Any] = {"bin": {}, "charts": {}, "roots": {}, "images": [], "versions": {}, "built": shop.built}
    with contextlib.suppress(WouldBuildError):
        for number, name in enumerate(names, 1):
            part = shop.pins.parts[name]
            before = len(shop.built)
            result["versions"][name] = part.version
            if part.module:
                folder = shop.part(part)
                result["bin"][name] = str(folder / "bin")
                result["charts"] |= {chart: str(folder / "charts" / chart) for chart in part.charts}
            result["images"] += [shop.image(part, image) for image in part.images]
            if len(shop.built) > before:
                shop.progress.begin("")
                shop.say(f"[{number}/{len(names)}] {part.title} done")
        used = [image.root for name in names for image in shop.pins.parts[name].images if image.root]
        for name in dict.fromkeys([*roots, *used]):
            if shop.pins.roots[name].tree:
                result["roots"][name] = str(shop.root(name) / "tree")
        if "containerd" in names:
            result["store"] = str(shop.store(result["images"], Path(result["bin"]["containerd"])))
        if shop.built and not shop.dry:
            sweep_images(shop.home, names, result["images"])
    return result


def _names_for(pins: Pins, words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The parts and roots to build for bin.PART, charts.CHART or roots.ROOT; raises PartError for any other words."""
    places: dict[str, tuple[list[str], tuple[str, ...]]] = {}
    for part in pins.parts.values():
        if part.module:
            places[f"bin.{part.name}"] = ([part.name], ())
        places |= {f"charts.{chart}": ([part.name], ()) for chart in part.charts}
    places |= {f"roots.{name}": ([], (name,)) for name, root in pins.roots.items() if root.tree}
    if len(words) != 1 or words[0] not in places:
        got = " ".join(words) or "nothing"
        raise PartError(f"got {got}, expected one place to show", "--show", f"choose from {', '.join(sorted(places))}")
    return places[words[0]]


def _check(pins: Pins, names: list[str]) -> None:
    """Refuse names that no part has; raises PartError."""
    if unknown := sorted(set(names) - set(pins.parts)):
        fix = f"choose from {', '.join(sorted(pins.parts))}"
        raise PartError(f"got {', '.join(unknown)}, expected names of parts", "lab_parts_wanted", fix)


def main(names: list[str]) -> int:
    """Build the named parts, or all but those on demand, and print their places; `--show roots.trainer` prints one.

    `--relock` also writes lab/lock.json, for the named parts or for all.
    """
    pins = load_pins()
    relocking = names[:1] == ["--relock"]
    names = names[1:] if relocking else names
    requested = bool(names)
    show = names[:1] == ["--show"]
    every = [name for name in pins.parts if name not in pins.on_demand]

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        if relocking:
            relock(names if requested else list(pins.parts), say)
            return 0
        if show:
            parts, roots = _names_for(pins, names[1:])
        else:
            parts, roots = (names, ("node",)) if names else (every, pins.roots_of_all)
        result: Any = build(parts, say, roots=roots)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {explain(str(error), str(error.filename or cache_home()))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; finished parts are kept. Run it again to continue", file=sys.stderr)
        return 130
    for step in names[1].split(".", 1) if show else []:
        result = result[step]
    print(result if show else json.dumps(result, indent=1))
    return 0
