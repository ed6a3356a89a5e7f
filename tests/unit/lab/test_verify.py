"""`make verify`: a changed byte anywhere in the cache is named and removed (fault C1)."""

from __future__ import annotations

import dataclasses
import platform
from typing import TYPE_CHECKING

import pytest

from lab.build import verify
from lab.build.cache import sha256_file
from lab.build.lock import digests_in, key_of
from lab.build.oci_archive import manifest_digest, write_image, write_layer
from lab.build.parts import Workshop
from lab.build.versions import Part, Pins, load_pins

if TYPE_CHECKING:
    from pathlib import Path

PART = Part("tiny", "v1", "gangplank/lab/tiny", commands={"tiny": "gangplank/lab/tiny"})


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """A cache with one of each kind, as its lock says."""
    home = tmp_path / "cache"
    go = home / "go/1.26.6/bin/go"
    shop = Workshop(home, Pins("1.26.6", {}, {"tiny": PART}, {}), print, dry=False)
    binary, deb = shop.place(PART) / "bin/tiny", home / "debs/alpha_1%3a1.0.deb"
    tar, archive = home / "roots/shell-0a/root.tar", home / "images/tiny-1b/image.tar"
    for path in (go, binary, deb, tar, archive):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"right" * 100)
    layer = write_layer(tmp_path / "layer.tar", {"/tiny": binary})
    write_image(archive, "example.org/tiny:1", [layer], {})
    write_layer(tar, {"/tiny": binary})
    shop.pins = dataclasses.replace(shop.pins, go_tree={platform.machine(): verify.tree_digest(go.parents[1])})
    part = {"key": key_of(shop.place(PART)), "digests": digests_in(shop.place(PART), "bin/*")}
    packages = {"alpha": ["1:1.0", sha256_file(deb)]}
    root = {"key": "0a", "digests": digests_in(tar.parent, "root.tar"), "packages": packages}
    image = {"key": "1b", "digests": {"manifest": manifest_digest(archive)}}
    shop.lock = {"parts": {"tiny": part}, "roots": {"shell": root}, "images": {"example.org/tiny:1": image}}
    return shop


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folder of a lab would be."""
    monkeypatch.setattr(verify, "STATE", tmp_path / "lab")
    return tmp_path / "lab"


def test_a_cache_without_changes_has_no_findings(shop: Workshop) -> None:
    assert verify.verify(shop, print) == []


def other_image(archive: Path) -> None:
    """A whole image with other bytes."""
    archive.with_name("x").write_bytes(b"wrong")
    layer = write_layer(archive.with_name("layer"), {"/x": archive.with_name("x")})
    write_image(archive, "example.org/tiny:1", [layer], {})


@pytest.mark.parametrize(("pattern", "what"), [
    ("go/1.26.6/bin/go", "go/1.26.6"), ("parts/tiny-*/bin/tiny", "parts/tiny-"), ("debs/*.deb", "debs/alpha"),
    ("roots/*/root.tar", "roots/shell"), ("images/*/image.tar", "images/tiny"),
])  # fmt: skip
def test_c1_a_changed_byte_is_named_and_removed(shop: Workshop, pattern: str, what: str) -> None:
    (path,) = shop.home.glob(pattern)
    content = bytearray(path.read_bytes())
    content[content.index(b"right")] ^= 1
    path.write_bytes(content)
    (line,) = verify.verify(shop, print)
    assert line.startswith(f"{shop.home}/{what}")
    assert "Fix: removed; the next build" in line
    assert not path.exists()
    assert verify.verify(shop, print) == []


def store(shop: Workshop) -> Path:
    """An image store with one blob."""
    blob = shop.home / "stores/ab/io.containerd.content.v1.content/blobs/sha256/x"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"layer")
    (shop.home / "stores/ab/images.json").write_text("{}")
    return blob.rename(blob.with_name(sha256_file(blob)))


def test_c1_a_store_with_a_changed_blob_is_removed(shop: Workshop) -> None:
    blob = store(shop)
    assert verify.verify(shop, print) == []
    blob.write_bytes(b"lever")
    (line,) = verify.verify(shop, print)
    assert line.startswith(f"{shop.home}/stores/ab: blob {blob.name}: got ")
    assert not (shop.home / "stores/ab").exists()


@pytest.mark.parametrize("sign", ["its folder", "a node's link"])
def test_c1_nothing_is_removed_while_a_lab_runs_from_it(shop: Workshop, state: Path, sign: str, tmp_path: Path) -> None:
    blob = store(shop)
    if sign == "its folder":
        state.mkdir()
    else:
        (tmp_path / "node-store.json").hardlink_to(shop.home / "stores/ab/images.json")
    blob.write_bytes(b"lever")
    (deb,) = shop.home.glob("debs/*.deb")
    deb.write_bytes(b"other")
    lines = verify.verify(shop, print)
    assert len(lines) == 2
    assert all(line.endswith(". Fix: make down, then make verify again: a lab runs from it") for line in lines)
    assert blob.exists()
    assert deb.exists()


def test_c1_another_whole_image_is_removed(shop: Workshop) -> None:
    (path,) = shop.home.glob("images/*/image.tar")
    other_image(path)
    (line,) = verify.verify(shop, print)
    assert ": got sha256:" in line
    assert not path.exists()


def test_c1_an_unpacked_tree_that_differs_from_its_archive_is_removed(shop: Workshop) -> None:
    (tar,) = shop.home.glob("roots/*/root.tar")
    (tar.parent / "tree").mkdir()
    (line,) = verify.verify(shop, print)
    assert "tiny" in line
    assert not tar.exists()


def test_an_added_program_is_named(shop: Workshop) -> None:
    (shop.place(PART) / "bin/evil").write_text("")
    (line,) = verify.verify(shop, print)
    assert "bin/evil: got " in line
    assert "expected nothing" in line


@pytest.mark.parametrize("kind", ["dir", "zip"])
def test_a_changed_module_is_recognised_in_gos_words(kind: str) -> None:
    text = f"sigs.k8s.io/yaml v1.6.0: {kind} has been modified (/go/pkg/mod/x)\n"
    assert verify.MODIFIED.findall(text) == [("sigs.k8s.io/yaml", "v1.6.0", "/go/pkg/mod/x")]


def test_the_pins_have_the_tree_of_the_toolchain() -> None:
    pins = load_pins()
    assert pins.go_tree.keys() == pins.go_sha256.keys()
    assert all(len(digest) == 64 for digest in pins.go_tree.values())
