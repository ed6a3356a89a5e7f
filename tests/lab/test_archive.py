"""A signed Debian archive on the loopback that moves on: what the lock decides, and what it refuses (faults C1, C7)."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import http.server
import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.build import debian_root
from lab.build import parts as builder
from lab.build.cache import sha256_file
from lab.build.lock import LOCK, read_lock
from lab.build.versions import Pins, Root, Tool
from lab.errors import PartError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
TINY = Root("tiny", "trixie", "extract", ["alpha", "beta"], floors={"alpha": "1.0"})
pytestmark = pytest.mark.skipif(not shutil.which("gpg"), reason="gpg signs the archive of this test")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server without a log."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Archive:
    """A suite `trixie` with the component main, signed by its own key."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.homes = folder / "archive", [folder / "gnupg"]
        self.keyring = folder / "keyring.gpg"
        self.new_key("archive@example.org")
        self.gpg("--output", str(self.keyring), "--export")
        self.packages: dict[tuple[str, str], Path] = {}

    def new_key(self, owner: str) -> None:
        self.homes[-1].mkdir(mode=0o700, parents=True)
        self.gpg("--quick-gen-key", owner, "ed25519", "sign", "never")

    def close(self) -> None:
        """End the agents that gpg has left behind to hold the keys."""
        for home in self.homes:
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True, capture_output=True)

    def gpg(self, *arguments: str) -> None:
        quietly = ["--batch", "--yes", "--quiet", "--passphrase", ""]
        command = ["gpg", "--homedir", str(self.homes[-1]), *quietly, *arguments]
        subprocess.run(command, check=True, capture_output=True)

    def add(self, name: str, version: str, content: str = "", **more: str) -> None:
        tree = self.folder / "build" / name
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "content").write_text(content)
        fields = {"Package": name, "Version": version, "Architecture": "all", "Maintainer": "Test <t@example.org>"}
        control = "".join(f"{key}: {value}\n" for key, value in {**fields, **more, "Description": "test"}.items())
        (tree / "DEBIAN/control").write_text(control)
        deb = self.folder / f"pool/{name}_{version}_all.deb"
        deb.parent.mkdir(exist_ok=True)
        command = ["dpkg-deb", "--build", "--root-owner-group", str(tree), str(deb)]
        subprocess.run(command, check=True, capture_output=True)
        self.packages[name, version] = deb
        self.publish()

    def remove(self, name: str, version: str) -> None:
        self.packages.pop((name, version)).unlink()
        self.publish()

    def publish(self) -> None:
        suite = self.folder / "dists/trixie"
        index = suite / "main/binary-amd64/Packages"
        index.parent.mkdir(parents=True, exist_ok=True)
        entries = []
        for deb in self.packages.values():
            fields = ["dpkg-deb", "-f", str(deb)]
            control = subprocess.run(fields, check=True, capture_output=True, text=True).stdout.strip()
            size, digest = deb.stat().st_size, sha256_file(deb)
            entries.append(f"{control}\nFilename: {deb.relative_to(self.folder)}\nSize: {size}\nSHA256: {digest}\n")
        index.write_text("\n".join(entries))
        sums = f" {hashlib.sha256(index.read_bytes()).hexdigest()} {index.stat().st_size} main/binary-amd64/Packages\n"
        head = "Origin: Debian\nSuite: trixie\nCodename: trixie\nArchitectures: amd64\nComponents: main\n"
        (suite / "Release").write_text(f"{head}Date: Sat, 01 Nov 2025 00:00:00 UTC\nSHA256:\n{sums}")
        self.gpg("--output", str(suite / "InRelease"), "--clear-sign", str(suite / "Release"))

    def digest(self, name: str, version: str) -> str:
        return sha256_file(self.packages[name, version])


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    with contextlib.closing(Archive(tmp_path)) as own:
        own.folder.mkdir()
        handler = functools.partial(Quiet, directory=str(own.folder))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            monkeypatch.setattr(debian_root, "_mirror", lambda: f"http://127.0.0.1:{server.server_port}")
            monkeypatch.setattr(debian_root, "KEYRING", str(own.keyring))
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            monkeypatch.setattr(builder, "build_root", lambda *arguments: arguments[3].write_bytes(b""))
            for name in ("alpha", "beta"):
                own.add(name, "1.0")
            yield own
            server.shutdown()


def lock_of(archive: Archive, **versions: str) -> dict[str, Any]:
    packages = {name: [version, archive.digest(name, version)] for name, version in versions.items()}
    return read_lock() | {"roots": {"tiny": {"packages": packages}}}


def build(folder: Path, lock: dict[str, Any], root: Root = TINY) -> tuple[dict[str, list[str]], list[str]]:
    """The packages of the root that a clean cache builds by this lock, and the printed lines."""
    lines: list[str] = []
    shop = builder.Workshop(folder / "cache", Pins("1", {}, {}, {"tiny": root}), lines.append, dry=False)
    (folder / "cache").mkdir(exist_ok=True)
    shop.lock = copy.deepcopy(lock)
    before = LOCK.read_bytes()
    packages = json.loads((shop.root("tiny") / "packages.json").read_text())
    assert LOCK.read_bytes() == before, "only `make relock` writes the lock"
    assert shop.lock == lock
    return packages, lines


def moved(lines: list[str]) -> list[str]:
    return [line for line in lines if "moved on" in line]


def test_c1_the_locked_versions_are_taken_although_newer_ones_exist(archive: Archive, tmp_path: Path) -> None:
    lock = lock_of(archive, alpha="1.0", beta="1.0")
    for name in ("alpha", "beta"):
        archive.add(name, "1.1")
    packages, lines = build(tmp_path, lock)
    assert packages == lock["roots"]["tiny"]["packages"]
    assert moved(lines) == []


def test_c1_only_the_dropped_version_is_replaced_by_the_newest(archive: Archive, tmp_path: Path) -> None:
    lock = lock_of(archive, alpha="1.0", beta="1.0")
    for name, version in (("alpha", "1.1"), ("alpha", "1.2"), ("beta", "1.1")):
        archive.add(name, version)
    archive.remove("alpha", "1.0")
    packages, lines = build(tmp_path, lock)
    versions = {"alpha": "1.2", "beta": "1.0"}
    assert packages == {name: [version, archive.digest(name, version)] for name, version in versions.items()}
    assert moved(lines) == ["tiny: the archive has moved on: alpha 1.0 -> 1.2"]
    status = ["git", "status", "--porcelain", "lab/lock.json"]
    assert subprocess.run(status, cwd=ROOT, capture_output=True, check=True).stdout == b""


def test_c1_other_bytes_of_the_locked_version_are_refused(archive: Archive, tmp_path: Path) -> None:
    lock = lock_of(archive, alpha="1.0", beta="1.0")
    archive.add("alpha", "1.0", "altered")
    with pytest.raises(PartError, match="other bytes of a locked version") as refusal:
        build(tmp_path, lock)
    expected = lock["roots"]["tiny"]["packages"]["alpha"][1]
    assert f"alpha 1.0: got sha256 {archive.digest('alpha', '1.0')}, expected {expected}" in str(refusal.value)
    assert list((tmp_path / "cache/debs").iterdir()) == []


def test_c1_other_bytes_are_refused_although_another_package_moved_on(archive: Archive, tmp_path: Path) -> None:
    lock = lock_of(archive, alpha="1.0", beta="1.0")
    archive.add("alpha", "1.0", "altered")
    archive.add("beta", "1.1")
    archive.remove("beta", "1.0")
    with pytest.raises(PartError, match="other bytes of a locked version"):
        build(tmp_path, lock)


@pytest.mark.usefixtures("archive")
def test_c1_a_newest_version_below_its_floor_is_refused(tmp_path: Path) -> None:
    root = Root("tiny", "trixie", "extract", ["alpha", "beta"], floors={"alpha": "2.0"})
    with pytest.raises(PartError, match=r"got alpha 1\.0, expected at least its floor 2\.0"):
        build(tmp_path, read_lock() | {"roots": {}}, root)


def test_c7_an_older_archive_is_refused(archive: Archive, tmp_path: Path) -> None:
    archive.add("alpha", "1.1")
    lock = lock_of(archive, alpha="1.1", beta="1.0")
    archive.remove("alpha", "1.1")
    with pytest.raises(PartError, match=r"got alpha 1\.0, expected at least the locked 1\.1"):
        build(tmp_path, lock)


@pytest.mark.parametrize("forgery", ["another key", "an altered index", "no signature"])
def test_c7_a_replacement_is_taken_only_from_a_signed_archive(archive: Archive, tmp_path: Path, forgery: str) -> None:
    lock = lock_of(archive, alpha="1.0", beta="1.0")
    archive.add("alpha", "1.1")
    archive.remove("alpha", "1.0")
    suite = archive.folder / "dists/trixie"
    if forgery == "another key":
        archive.homes.append(tmp_path / "other/gnupg")
        archive.new_key("forger@example.org")
        archive.publish()
    elif forgery == "an altered index":
        signed = (suite / "InRelease").read_text()
        (suite / "InRelease").write_text(signed.replace("Origin: Debian", "Origin: Debiam"))
    else:
        (suite / "InRelease").unlink()
    with pytest.raises(PartError):
        build(tmp_path, lock)
    assert not (tmp_path / "cache/roots").exists()


def unpack(folder: Path, tool: Tool) -> tuple[str, list[str]]:
    """What a pinned package has in its file `content`, and the printed lines."""
    lines: list[str] = []
    (folder / "cache").mkdir(exist_ok=True)
    shutil.rmtree(folder / "unpacked", ignore_errors=True)
    debian_root.Debs(folder / "cache", lines.append).unpack(tool, folder / "unpacked")
    return (folder / "unpacked/content").read_text(), lines


def tool_of(archive: Archive) -> Tool:
    """A version of `alpha` with a content of its own, which depends on a package that the archive lacks."""
    archive.add("alpha", "1.1", "right", Depends="perl")
    return Tool("alpha", "trixie", "1.1", archive.digest("alpha", "1.1"))


def test_c1_a_pinned_tool_is_fetched_once_although_newer_ones_exist(archive: Archive, tmp_path: Path) -> None:
    tool = tool_of(archive)
    archive.add("alpha", "1.2", "newer")
    assert unpack(tmp_path, tool)[0] == "right"
    shutil.rmtree(archive.folder)
    assert unpack(tmp_path, tool) == ("right", [])


def test_c1_a_flipped_byte_of_a_cached_tool_is_fetched_again(archive: Archive, tmp_path: Path) -> None:
    tool = tool_of(archive)
    unpack(tmp_path, tool)
    (deb,) = (tmp_path / "cache/debs").iterdir()
    content = bytearray(deb.read_bytes())
    content[-100] ^= 1
    deb.write_bytes(content)
    text, lines = unpack(tmp_path, tool)
    assert text == "right"
    assert lines[0] == "alpha_1.1.deb: the cached file has another checksum; removed"
    assert sha256_file(deb) == tool.sha256


def test_c1_other_bytes_of_a_pinned_tool_are_refused(archive: Archive, tmp_path: Path) -> None:
    tool = tool_of(archive)
    archive.add("alpha", "1.1", "wrong")
    with pytest.raises(PartError, match=rf"alpha 1\.1: got sha256 .*, expected {tool.sha256}"):
        unpack(tmp_path, tool)
    assert not (tmp_path / "unpacked").exists()


def test_c1_a_tool_that_the_archive_has_dropped_is_replaced_by_a_newer_one_only(
    archive: Archive, tmp_path: Path
) -> None:
    tool = tool_of(archive)
    archive.remove("alpha", "1.1")
    with pytest.raises(PartError, match=r"got alpha 1\.0, expected at least the locked 1\.1"):
        unpack(tmp_path, tool)
    archive.add("alpha", "1.2", "newer")
    later = tmp_path / "later"  # apt takes an archive's list for the same if both are of one second
    later.mkdir()
    text, lines = unpack(later, tool)
    assert text == "newer"
    assert lines[-1] == "alpha: the archive has moved on: 1.1 -> 1.2"
    assert list((later / "cache/debs").iterdir()) == []
