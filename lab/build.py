"""Build the wanted parts into the user's cache: `python -m lab.build [PART ...]`, or the role lab_parts.

What is finished is found again by a key over its pins, recipes and inputs; what was killed half-way is begun anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from lab.cache import Say, building, cache_home, digest_of, one_at_a_time
from lab.debian import ROOT_RECIPE, Debs, Lock, build_root
from lab.errors import PartError, explain
from lab.gomod import build_commands, recipe
from lab.oci import Layer, write_image, write_layer
from lab.pins import LAB, Image, Part, Pins, load_pins
from lab.store import make_store, store_folder
from lab.toolchain import find_go

LOCK = LAB / "lock.json"
KEY_DIGITS = 16  # of digest_of
RECIPE = 1  # raise it when this code makes other bytes of the same pins


class WouldBuildError(Exception):
    """Raised in a dry run at the first thing that is missing."""


class Workshop:
    """One run of building: the cache, the pins, and what was found or made so far."""

    def __init__(self, home: Path, pins: Pins, say: Say, *, dry: bool) -> None:
        """Nothing happens yet."""
        self.home, self.pins, self.say, self.dry = home, pins, say, dry
        self.lock: dict[str, Any] = json.loads(LOCK.read_text()) if LOCK.exists() else {}
        self.built: list[str] = []

    @functools.cached_property
    def go(self) -> tuple[Path, str]:
        """The Go toolchain and its version."""
        return find_go(self.pins, self.home, self.say, lambda: self._note(f"go {self.pins.go_toolchain}"))

    def part(self, part: Part) -> Path:
        """Return the folder of the part's commands, charts and files; build it first where it is missing."""
        pinned = dataclasses.asdict(part) | {"images": None}
        del pinned["beside"]  # go.mod says it
        target = self.home / "parts" / f"{part.name}-{part.version}-{self._part_key(part, pinned)}"
        if not target.exists():
            self._step(f"{part.name} {part.version}")
            with building(target) as draft:
                build_commands(part, self.go[0], draft, self.say)
        return target

    def _part_key(self, part: Part, pinned: dict[str, Any]) -> str:
        return digest_of(RECIPE, pinned, self.go[1], *recipe(part))

    def root(self, name: str) -> Path:
        """Return the folder with root.tar and lock.json of a Debian root; build it where it is missing."""
        root = self.pins.roots[name]
        stated = dataclasses.asdict(root)
        lock: Lock = self.lock.get("roots", {}).get(name, {})

        def place(lock: Lock) -> Path:
            return self.home / "roots" / f"{name}-{digest_of(RECIPE, stated, ROOT_RECIPE, lock)}"

        wanted = place(lock)
        if wanted.exists():
            return wanted.resolve()
        self._step(f"root file system {name} ({root.suite})")
        debs = Debs(self.home, self.say)
        whole = set(root.packages) <= lock.keys() and not debs.missing(lock)
        found = lock if whole else debs.fetch(root, lock)
        target = place(found)
        if not target.exists():
            with building(target) as draft:
                build_root(root, found, debs, draft / "root.tar", self.say)
                (draft / "lock.json").write_text(json.dumps(found, indent=1))
        if found != lock:
            self._tell_moved(name, lock, found)
            self.lock.setdefault("roots", {})[name] = found
            if not wanted.exists():
                wanted.symlink_to(target.name)  # the next clone with the old lock finds what was built of it
        return target

    def _tell_moved(self, name: str, old: Lock, new: Lock) -> None:
        changed = sorted(package for package in old.keys() | new.keys() if old.get(package) != new.get(package))
        if old:
            shown = ", ".join(f"{p} {old.get(p, ['none'])[0]} -> {new.get(p, ['none'])[0]}" for p in changed[:12])
            self.say(f"{name}: the archive has moved on: {shown}{' …' if len(changed) > 12 else ''}")

    def image(self, part: Part, image: Image) -> dict[str, str]:
        """Return the image's name, archive and digest; write the archive where it is missing."""
        files = {target: self._file(part, source) for source, target in image.binaries.items()}
        for target, tree in image.trees.items():
            base = LAB.parent / tree
            wanted = [path for path in sorted(base.iterdir()) if path.suffix in (".py", ".pth")]
            files |= {f"{target}/{path.name}": path for path in wanted}
        root = self.root(image.root) if image.root else None
        names = sorted(files.items())
        # A part's folder says what is in it; only what comes from this checkout has to be read.
        known = [(target, path.parent.parent.name) for target, path in names if path.is_relative_to(self.home)]
        ours = [(target, path) for target, path in names if not path.is_relative_to(self.home)]
        key = digest_of(RECIPE, dataclasses.asdict(image), root.name if root else "", known, [n for n, _ in ours],
                        *[path for _, path in ours])  # fmt: skip
        folder = self.home / "images" / f"{part.name}-{key}"
        if not folder.exists():
            self._step(f"image {image.name}")
            with building(folder) as draft:
                layers = [Layer.of(root / "root.tar")] if root else []
                if files or image.links:
                    layers.append(write_layer(draft / "layer.tar", files, image.links))
                path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
                config = {"Entrypoint": image.entrypoint, "Env": [path, *image.environment], "User": image.user}
                digest = write_image(draft / "image.tar", image.name, layers, config)
                (draft / "layer.tar").unlink(missing_ok=True)
                (draft / "image.json").write_text(json.dumps({"name": image.name, "digest": digest}))
        found = json.loads((folder / "image.json").read_text())
        self.lock.setdefault("images", {})[image.name] = found["digest"]
        return {**found, "archive": str(folder / "image.tar")}

    def _file(self, part: Part, source: str) -> Path:
        owner, _, name = source.rpartition("/")
        return self.part(self.pins.parts[owner] if owner else part) / "bin" / name

    def _note(self, what: str) -> None:
        self.built.append(what)
        if self.dry:
            raise WouldBuildError

    def _step(self, what: str) -> None:
        self._note(what)
        self.say(f"{what}: building")

    def store(self, images: list[dict[str, str]], containerd: Path) -> Path:
        """Return the folder of the store of exactly these images; make it where it is missing."""
        target = store_folder(images, self.home)
        if not target.exists():
            self._step("the image store")
            make_store(target, images, containerd, self.say)
        return target

    def write_lock(self) -> None:
        """Write lab/lock.json where this run found something else than it says."""
        self.lock["go"] = self.go[1]
        self.lock["modules"] = {
            part.name: [part.module, part.version, _module_sum(part)]
            for part in self.pins.parts.values()
            if part.module and not part.module.startswith("gangplank/")
        }
        text = json.dumps(self.lock, indent=1, sort_keys=True) + "\n"
        if not LOCK.exists() or LOCK.read_text() != text:
            LOCK.write_text(text)


def sweep_images(home: Path, names: list[str], images: list[dict[str, str]]) -> None:
    """Remove archives of these parts that are not today's: every edit of the trainer would leave a gigabyte."""
    kept = {Path(image["archive"]).parent for image in images}
    for name in names:
        for folder in (home / "images").glob(f"{name}-*"):
            key = folder.name.removeprefix(f"{name}-")
            if folder not in kept and len(key) == KEY_DIGITS and "-" not in key:
                shutil.rmtree(folder)


def _module_sum(part: Part) -> str:
    for line in (LAB / "modules" / part.name / "go.sum").read_text().splitlines():
        module, version, digest = line.split()
        if module == part.module and version == part.version:
            return digest
    raise PartError(f"go.sum has no {part.module} {part.version}", f"lab/modules/{part.name}", "run `make pins`")


def build(names: list[str], say: Say, *, roots: tuple[str, ...] = ("node",), dry: bool = False) -> dict[str, Any]:
    """Build the named parts, their roots and others (the nodes'), and the image store; return where everything lies.

    The answer: `bin` {part: folder}, `charts` {chart: folder}, `roots` {root: unpacked tree}, `images` [{name, archive,
    digest}], `store` (folder), `built` [what was made in this run]. With `dry` nothing is made: the answer is empty
    where something is missing. Raises PartError.
    """
    home, pins = cache_home(), load_pins()
    unknown = sorted(set(names) - set(pins.parts))
    if unknown:
        cure = f"choose of: {', '.join(sorted(pins.parts))}"
        raise PartError(f"unknown part {', '.join(unknown)}", "lab_parts_wanted", cure)
    # What is all there needs no lock: nobody waits for a build of something else.
    found = _make(names, roots, Workshop(home, pins, say, dry=True))
    if dry or not found["built"]:
        return found
    with one_at_a_time(home, say):
        return _make(names, roots, Workshop(home, pins, say, dry=False))


def _make(names: list[str], roots: tuple[str, ...], shop: Workshop) -> dict[str, Any]:
    started = time.monotonic()
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
                took = f"{time.monotonic() - started:.0f} s in all"
                shop.say(f"[{number}/{len(names)}] {name} {part.version} done, {took}")
        used = [image.root for name in names for image in shop.pins.parts[name].images if image.root]
        for name in dict.fromkeys([*roots, *used]):
            if shop.pins.roots[name].tree:
                result["roots"][name] = str(shop.root(name) / "tree")
        if "containerd" in names:
            result["store"] = str(shop.store(result["images"], Path(result["bin"]["containerd"])))
        if shop.built and not shop.dry:
            shop.write_lock()
            sweep_images(shop.home, names, result["images"])
    return result


def _wanted(pins: Pins, show: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the parts and roots to build for one place of the answer: bin.PART, charts.CHART or roots.ROOT."""
    kind, name = show
    if kind == "charts":
        return [part for part in pins.parts if name in pins.parts[part].charts], ()
    return ([name], ()) if kind == "bin" else ([], (name,))


def main(names: list[str]) -> int:
    """Build the named parts, or all but those on demand, and print where they lie; `--show roots.trainer` that one."""
    pins = load_pins()
    show = names[1].split(".", 1) if names[:1] == ["--show"] else []
    every = [name for name in pins.parts if name not in pins.on_demand]
    names, roots = _wanted(pins, show) if show else (names, ("node",)) if names else (every, (*pins.roots,))
    try:
        found = build(names, lambda line: print(line, file=sys.stderr, flush=True), roots=roots)
    except PartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {explain(str(error), str(error.filename or cache_home()))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; what was finished is kept, run it again to go on", file=sys.stderr)
        return 130
    for step in show:
        found = found[step]
    print(found if show else json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
