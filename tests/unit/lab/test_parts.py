"""What `python -m lab.build` refuses: names that do not exist, and other bytes than those of the lock."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from lab.build import debian_root
from lab.build import parts as builder
from lab.build.cache import sha256_file
from lab.build.debian_root import Debs
from lab.build.lock import key_of
from lab.build.parts import Workshop, main, with_sharers
from lab.build.versions import Image, Part, Pins, Root, load_pins
from lab.errors import PartError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("words", [
    ["store"], ["bin"], ["bin."], ["bin.bogus"], ["charts.bogus"], ["roots.bogus"], ["a.b"], ["images.trainer"], [""],
    ["versions.etcd"], ["bin.trainer"], ["bin.etcd.more"], ["bin.etcd", "bin.helm"], [],
])  # fmt: skip
def test_a_place_that_does_not_exist_is_one_message(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", *words]) == 1
    got = " ".join(words) or "nothing"
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error: --show: got {got}, expected one place to show. Fix: choose from bin.")
    assert said.err.count("\n") == 1
    assert ", roots.node, " in said.err


@pytest.mark.parametrize("words", [["bogus"], ["--relock", "bogus"], ["etcd", "bogus"], ["--bogus"]])
def test_a_part_that_does_not_exist_is_one_message(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert capsys.readouterr().err.startswith(f"error: lab_parts_wanted: got {words[-1]}, expected names of parts. Fix")


def test_an_edit_of_the_trainer_relocks_every_image_that_carries_it() -> None:
    pins = load_pins()
    assert with_sharers(pins, ["trainer"]) == ["trainer", "torchvision"]
    assert with_sharers(pins, ["containerd", "helm"]) == ["containerd", "helm"]


def test_a_new_kubectl_relocks_every_image_that_carries_it() -> None:
    pins = load_pins()
    carriers = {part.name for part in pins.parts.values() for image in part.images if carries(image, "kubernetes")}
    assert {"volcano", "volcano-before"} <= carriers
    assert set(with_sharers(pins, ["kubernetes"])) == {"kubernetes", *carriers}


def carries(image: Image, part: str) -> bool:
    return any(source.startswith(f"{part}/") for source in image.binaries)


def test_the_lock_has_every_part_and_image_as_the_pins_make_them(tmp_path: Path) -> None:
    """Keys need no build: of a pin or a source file that was edited without `make relock`, each user is named here."""
    pins, shop = load_pins(), Workshop(tmp_path, load_pins(), print, dry=True)
    keys: dict[str, str] = {}
    for part in pins.parts.values():
        if part.module:
            keys[part.name] = key_of(shop.place(part))
        for image in part.images:
            root = shop.root_place(*shop.locked(image.root)) if image.root else None
            keys[image.name] = key_of(shop.image_place(part, image, root)[0])
    locked = {name: entry["key"] for section in ("parts", "images") for name, entry in shop.lock[section].items()}
    stale = sorted(name for name in keys.keys() | locked.keys() if keys.get(name) != locked.get(name))
    assert not stale, "not as lab/lock.json says; run `make relock`"


TINY = Part("tiny", "v1", images=(Image("example.org/tiny:1", ["sh"], links={"/bin/sh": "busybox"}),))
BARE = Root("bare", "trixie", "extract", [])


def image_of(shop: Workshop) -> Path:
    shop.image(TINY, *TINY.images)
    (folder,) = (shop.home / "images").iterdir()
    return folder


def root_of(shop: Workshop) -> Path:
    return shop.root("bare")


@pytest.mark.parametrize(("section", "name", "build", "file"), [
    ("images", "example.org/tiny:1", image_of, "manifest"), ("roots", "bare", root_of, "root.tar"),
])  # fmt: skip
def test_c1_other_bytes_under_the_locked_key_are_refused_unless_they_are_to_be_locked(
    section: str, name: str, build: Callable[[Workshop], Path], file: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(builder, "build_root", lambda *arguments: arguments[3].write_bytes(b"tar"))
    lines: list[str] = []

    def shop(*, relocking: bool, **entry: object) -> Workshop:
        own = Workshop(tmp_path, Pins("1", {}, {}, {"bare": BARE}), lines.append, dry=False, relocking=relocking)
        own.lock = {"parts": {}, "roots": {}, "images": {}, section: {name: {"packages": {}, **entry}} if entry else {}}
        return own

    folder = build(shop(relocking=False))
    digest = hashlib.sha256(b"tar").hexdigest() if section == "roots" else r"sha256:[0-9a-f]{64}"
    shutil.rmtree(folder)
    other = {"key": key_of(folder), "digests": {file: "0" * 64}}
    refusal = f"{name}: other bytes than lab/lock.json, from the same pins:\n    {file}: got {digest}, expected 0{{64}}"
    with pytest.raises(PartError, match=refusal):
        build(shop(relocking=False, **other))
    assert not folder.exists()
    assert build(shop(relocking=False, key="of other inputs", digests=other["digests"])) == folder
    shutil.rmtree(folder)
    assert build(shop(relocking=True, **other)) == folder
    assert lines[-1].endswith(f"expected {'0' * 64} by the lock until now")


def test_a_root_that_is_gone_is_built_again_when_the_archive_has_moved_on_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link from the locked root to it is what `make verify` leaves of it."""
    packages: dict[str, list[str]] = {}
    root = Root("bare", "trixie", "extract", ["a"])
    monkeypatch.setattr(builder, "build_root", lambda *arguments: arguments[3].write_bytes(b"tar"))
    monkeypatch.setattr(Debs, "fetch", lambda *_: dict(packages))

    def build() -> Path:
        shop = Workshop(tmp_path, Pins("1", {}, {}, {"bare": root}), print, dry=False)
        shop.lock = {"parts": {}, "roots": {"bare": {"packages": {"a": ["1", "0"]}}}, "images": {}}
        return shop.root("bare")

    packages["a"] = ["2", "0"]
    first = build()
    shutil.rmtree(first)
    packages["a"] = ["3", "0"]
    second = build()
    assert second != first
    assert build() == second, "the next run uses it"


def deb(folder: Path) -> Path:
    """A package with nothing in it, as a file of an archive."""
    control = folder / "package/DEBIAN/control"
    control.parent.mkdir(parents=True)
    fields = {"Package": "zz", "Version": "1:1.0", "Architecture": "all", "Maintainer": "a", "Description": "a"}
    control.write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
    subprocess.run(["dpkg-deb", "--build", control.parents[1], folder / "zz_1.0_all.deb"], check=True)
    return folder / "zz_1.0_all.deb"


@pytest.mark.skipif(not shutil.which("apt-get"), reason="apt, which only Debian's relatives have")
def test_packages_of_a_mirror_on_this_machine_come_into_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For `file:`, apt uses the packages where they are, and copies none."""
    package, index = deb(tmp_path), tmp_path / "dists/trixie/main/binary-all/Packages"
    index.parent.mkdir(parents=True)
    control = (tmp_path / "package/DEBIAN/control").read_text()
    size, digest = package.stat().st_size, sha256_file(package)
    index.write_text(f"{control}Filename: {package.name}\nSize: {size}\nSHA256: {digest}\n")
    row = f" {sha256_file(index)} {index.stat().st_size} main/binary-all/Packages"
    release = f"Origin: Debian\nCodename: trixie\nComponents: main\nArchitectures: all amd64 arm64\nSHA256:\n{row}\n"
    (tmp_path / "dists/trixie/Release").write_text(release)
    monkeypatch.setattr(debian_root, "_mirror", lambda: f"file:{tmp_path}")
    monkeypatch.setattr(debian_root, "KEYRING", "/dev/null trusted=yes")
    fetched = Debs(tmp_path / "cache", print).fetch(Root("a", "trixie", "extract", ["zz"]), {})
    assert fetched == {"zz": ["1:1.0", digest]}
    assert Debs(tmp_path / "cache", print).missing(fetched) == []
