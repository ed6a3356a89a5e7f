"""`make verify`: a changed byte anywhere in the cache is named and removed (fault C1)."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import platform
import shutil
from typing import TYPE_CHECKING

import pytest

from lab.build import verify
from lab.build.cache import sha256_file
from lab.build.lock import digests_in, key_of, record
from lab.build.oci_archive import manifest_digest, write_image, write_layer
from lab.build.parts import Workshop
from lab.build.versions import Part, Pins, Tool, load_pins

if TYPE_CHECKING:
    from pathlib import Path

PART = Part("tiny", "v1", "gangplank/lab/tiny", commands={"tiny": "gangplank/lab/tiny"})


def venv(home: Path) -> None:
    """A shared virtual environment with one package, as pip leaves it."""
    site = home / "venv/0a/lib/python3.11/site-packages"
    package, listing = site / "alpha/__init__.py", site / "alpha-1.dist-info/RECORD"
    for path in (package, listing, site.parents[2] / "bin/alpha", site / "alpha/__pycache__/__init__.cpython-311.pyc"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"right")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"right").digest()).decode().rstrip("=")
    hashed = [f"{name},sha256={digest},5" for name in ("alpha/__init__.py", "../../../bin/alpha")]
    listing.write_text("\n".join([*hashed, "alpha-1.dist-info/RECORD,,"]))
    (site.parents[2] / "complete").touch()
    (home / "venv/lock").touch()


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
    digest = write_image(archive, "example.org/tiny:1", [layer], {})
    (archive.parent / "image.json").write_text(json.dumps({"name": "example.org/tiny:1", "digest": digest}))
    write_layer(tar, {"/tiny": binary})
    venv(home)
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
    monkeypatch.setattr(verify, "RUN", tmp_path / "run")
    return tmp_path / "lab"


def test_a_cache_without_changes_has_no_findings(shop: Workshop) -> None:
    assert [*verify.verify(shop, print)] == []


def other_image(archive: Path) -> None:
    """A whole image with other bytes."""
    archive.with_name("x").write_bytes(b"wrong")
    layer = write_layer(archive.with_name("layer"), {"/x": archive.with_name("x")})
    write_image(archive, "example.org/tiny:1", [layer], {})


@pytest.mark.parametrize(("pattern", "what"), [
    ("go/1.26.6/bin/go", "go/1.26.6"), ("parts/tiny-*/bin/tiny", "parts/tiny-"), ("debs/*.deb", "debs/alpha"),
    ("roots/*/root.tar", "roots/shell"), ("images/*/image.tar", "images/tiny"),
    ("venv/*/lib/*/site-packages/alpha/__init__.py", "venv/0a"), ("venv/*/bin/alpha", "venv/0a"),
])  # fmt: skip
def test_c1_a_changed_byte_is_named_and_removed(shop: Workshop, pattern: str, what: str) -> None:
    (path,) = shop.home.glob(pattern)
    content = bytearray(path.read_bytes())
    content[content.index(b"right")] ^= 1
    path.write_bytes(content)
    (line,) = [*verify.verify(shop, print)]
    assert line.startswith(f"{shop.home}/{what}")
    assert f"Fix: removed; {'make setup' if what == 'venv/0a' else 'the next build'}" in line
    assert not path.exists()
    assert [*verify.verify(shop, print)] == []


def store(shop: Workshop) -> Path:
    """An image store with one blob."""
    blob = shop.home / "stores/ab/io.containerd.content.v1.content/blobs/sha256/x"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"layer")
    (shop.home / "stores/ab/images.json").write_text("{}")
    return blob.rename(blob.with_name(sha256_file(blob)))


def test_c1_a_store_with_a_changed_blob_is_removed(shop: Workshop) -> None:
    blob = store(shop)
    assert [*verify.verify(shop, print)] == []
    blob.write_bytes(b"lever")
    (line,) = [*verify.verify(shop, print)]
    assert line.startswith(f"{shop.home}/stores/ab: blob {blob.name}: got ")
    assert not (shop.home / "stores/ab").exists()


@pytest.mark.parametrize("sign", ["lab", "run", "a node's link"])
def test_c1_nothing_is_removed_while_a_lab_runs_from_it(shop: Workshop, state: Path, sign: str, tmp_path: Path) -> None:
    blob = store(shop)
    if sign in {"lab", "run"}:  # the default folder; a lab in any folder, while it runs
        state.with_name(sign).mkdir()
    else:
        (tmp_path / "node-store.json").hardlink_to(shop.home / "stores/ab/images.json")
    blob.write_bytes(b"lever")
    (deb,) = shop.home.glob("debs/*.deb")
    deb.write_bytes(b"other")
    lines = [*verify.verify(shop, print)]
    assert len(lines) == 2
    assert all(line.endswith(". Fix: make down, then make verify again: a lab runs from it") for line in lines)
    assert blob.exists()
    assert deb.exists()


@pytest.mark.parametrize("locked", [True, False], ids=["by the lock", "by its own record"])
def test_c1_another_whole_image_is_removed(shop: Workshop, locked: bool) -> None:
    if not locked:
        of_other_inputs(shop)
    (path,) = shop.home.glob("images/*/image.tar")
    other_image(path)
    (line,) = [*verify.verify(shop, print)]
    assert ": got sha256:" in line
    assert not path.exists()


def test_c1_an_unpacked_tree_that_differs_from_its_archive_is_removed(shop: Workshop) -> None:
    (tar,) = shop.home.glob("roots/*/root.tar")
    (tar.parent / "tree").mkdir()
    (line,) = [*verify.verify(shop, print)]
    assert "tiny" in line
    assert not tar.exists()


def test_an_added_program_is_named(shop: Workshop) -> None:
    (shop.place(PART) / "bin/evil").write_text("")
    (line,) = [*verify.verify(shop, print)]
    assert "bin/evil: got " in line
    assert "expected nothing" in line


def of_other_inputs(shop: Workshop) -> None:
    """Make all that is in the cache of other inputs than the lock's, as an archive that moved on and an edit do."""
    (root,), (part,) = shop.home.glob("roots/*"), shop.home.glob("parts/*")
    (deb,) = shop.home.glob("debs/*.deb")
    (root / "packages.json").write_text(json.dumps({"alpha": ["1:1.0", sha256_file(deb)]}))
    record(root, digests_in(root, "root.tar"))
    record(part, digests_in(part, "bin/*"))
    shop.lock = {"parts": {}, "roots": {}, "images": {}}


@pytest.mark.parametrize("pattern", ["parts/*/bin/tiny", "debs/*.deb", "roots/*/root.tar"])
def test_c1_a_changed_byte_of_what_the_lock_does_not_have_is_named(shop: Workshop, pattern: str) -> None:
    of_other_inputs(shop)
    assert [*verify.verify(shop, print)] == []
    (path,) = shop.home.glob(pattern)
    path.write_bytes(path.read_bytes().replace(b"right", b"wrong", 1))
    (line,) = [*verify.verify(shop, print)]
    assert ": got " in line
    assert ", expected " in line
    assert not path.exists()


def test_c1_what_has_no_recorded_hash_is_removed(shop: Workshop) -> None:
    of_other_inputs(shop)
    for path in ("roots/shell-0a/digests.json", "roots/shell-0a/packages.json", "images/tiny-1b/image.json"):
        (shop.home / path).write_text("torn")
    (shop.place(PART) / "digests.json").unlink()
    lines = [*verify.verify(shop, print)]
    names = sorted(line.partition(": it has no recorded hash. Fix: removed")[0] for line in lines)
    folders = [shop.home / "debs/alpha_1%3a1.0.deb", shop.home / "images/tiny-1b", shop.place(PART)]
    assert names == sorted(map(str, [*folders, shop.home / "roots/shell-0a"]))


def test_c1_the_package_of_mmdebstrap_is_compared_with_its_pin(shop: Workshop) -> None:
    deb = shop.home / "debs/mmdebstrap_1.3.deb"
    deb.write_bytes(b"right")
    tool = Tool("mmdebstrap", "bookworm", "1.3", sha256_file(deb))
    shop.pins = dataclasses.replace(shop.pins, mmdebstrap=tool)
    assert [*verify.verify(shop, print)] == []
    deb.write_bytes(b"wrong")
    (line,) = [*verify.verify(shop, print)]
    assert line.startswith(f"{deb}: got ")


def test_c1_an_added_python_module_is_named(shop: Workshop) -> None:
    (site,) = shop.home.glob("venv/*/lib/*/site-packages")
    (site / "evil.pth").write_text("import evil")
    (line,) = [*verify.verify(shop, print)]
    assert line.startswith(f"{shop.home}/venv/0a: evil.pth not as RECORD says")


def test_what_nothing_here_makes_is_named_and_stays(shop: Workshop) -> None:
    others = [shop.home / name for name in ("mine", "go/1.25.0", "apt/mmdebstrap")]
    for path in others:
        path.mkdir(parents=True)
    lines = [*verify.verify(shop, print)]
    said = ": nothing here makes it. Fix: remove it if you do not need it"
    assert sorted(lines) == sorted(f"{path}{said}" for path in others)
    assert all(path.exists() for path in others)
    for path in others:
        shutil.rmtree(path)
    assert [*verify.verify(shop, print)] == []


@pytest.mark.parametrize("kind", ["dir", "zip"])
def test_a_changed_module_is_recognised_in_gos_words(kind: str) -> None:
    text = f"sigs.k8s.io/yaml v1.6.0: {kind} has been modified (/go/pkg/mod/x)\n"
    assert verify.MODIFIED.findall(text) == [("sigs.k8s.io/yaml", "v1.6.0", "/go/pkg/mod/x")]


def test_the_pins_have_the_tree_of_the_toolchain() -> None:
    pins = load_pins()
    assert pins.go_tree.keys() == pins.go_sha256.keys()
    assert all(len(digest) == 64 for digest in pins.go_tree.values())
