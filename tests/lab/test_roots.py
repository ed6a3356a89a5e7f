"""Debian roots: the same packages give the same bytes; no changed byte becomes the lock; an archive may move on.

Packages come from the user's cache, or are fetched.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lab.build import parts as builder
from lab.build.cache import cache_home, sha256_file
from lab.build.debian_root import Debs
from lab.build.lock import LOCK, digests_in, key_of, read_lock
from lab.build.versions import load_pins
from lab.errors import PartError
from tests.support.sweeps import sweeping
from tests.support.teams_live import until

ROOT = Path(__file__).resolve().parents[2]
CACHE = cache_home()
PINS = load_pins()
BUILD = """
import json, sys
from pathlib import Path
from lab.build import cache, parts, versions
shop = parts.Workshop(cache.cache_home(), versions.load_pins(), lambda line: print(line), dry=False)
shop.lock["roots"][sys.argv[1]]["packages"] = json.loads(Path(sys.argv[2]).read_text())
shop.root(sys.argv[1])
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A separate cache with the user's packages and package lists."""
    home = tmp_path_factory.mktemp("cache") / "gangplank"
    home.mkdir()
    for name in ("debs", "apt"):
        if (CACHE / name).exists():
            subprocess.run(["cp", "-a", str(CACHE / name), str(home / name)], check=True)
    return home


def workshop(home: Path, lock: dict[str, Any] | None = None) -> tuple[builder.Workshop, list[str]]:
    lines: list[str] = []
    shop = builder.Workshop(home, PINS, lines.append, dry=False)
    shop.lock = copy.deepcopy(lock or read_lock())
    return shop, lines


def current(home: Path, name: str) -> dict[str, Any]:
    """The lock; with what `make relock` would write of a root whose locked packages the archive no longer has."""
    shop, _ = workshop(home)
    folder = shop.root(name).resolve()  # all of its packages are in the cache now
    listed = json.loads((folder / "packages.json").read_text())
    if listed != packages(shop.lock, name):
        digests = digests_in(folder, "root.tar")
        shop.lock["roots"][name] = {"key": key_of(folder), "digests": digests, "packages": listed}
    return shop.lock


@pytest.fixture
def lock(home: Path) -> dict[str, Any]:
    """The lock, with a shell that the archive has."""
    return current(home, "shell")


def packages(lock: dict[str, Any], name: str = "shell") -> dict[str, list[str]]:
    listed: dict[str, list[str]] = lock["roots"][name]["packages"]
    return listed


@pytest.mark.parametrize("name", list(PINS.roots) if sweeping("reproducible") else ["shell"])
def test_builds_give_the_locked_bytes_without_a_network(home: Path, tmp_path: Path, name: str) -> None:
    """Neither the user's settings nor his umask reach the packages' scripts.

    If the archive no longer has the locked packages, these builds must have the bytes of an earlier one.
    """
    Debs(home, print).mmdebstrap(tmp_path / "mmdebstrap")  # its package is in the cache now
    entry = current(home, name)["roots"][name]
    listed = tmp_path / "packages.json"
    listed.write_text(json.dumps(entry["packages"]))
    plain = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    plain |= dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:1")
    users = {"LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "PYTHONDONTWRITEBYTECODE": ""}
    for environment, umask in ((plain, 0o022), (plain | users, 0o077)):
        shutil.rmtree(home / "roots")
        done = subprocess.run(
            [sys.executable, "-c", BUILD, name, str(listed)], cwd=tmp_path, umask=umask, timeout=900,
            env=environment | {"XDG_CACHE_HOME": str(home.parent)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "fetching" not in done.stdout
        (folder,) = (home / "roots").iterdir()
        assert key_of(folder) == entry["key"]
        assert digests_in(folder, "root.tar") == entry["digests"]
    with tarfile.open(folder / "root.tar") as root:
        members = {member.name: member for member in root}
    assert max(member.mtime for member in members.values()) == 0
    assert not [path for path in members if "sources.list" in path or path.startswith("./usr/share/doc/")]


def traces(home: Path) -> list[str]:
    """Processes and mounts of the builds in a cache, and what they left in the folder for temporary files."""
    running = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_text().replace("\0", " ")
            running += [command] if str(home) in command else []
    mounts = Path("/proc/mounts").read_text().splitlines()
    mounted = [line for line in mounts if str(home) in line or "mmdebstrap" in line]
    return running + mounted + [str(path) for path in Path(tempfile.gettempdir()).glob("mmdebstrap.*")]


def test_the_cache_agrees_with_the_lock() -> None:
    """A trainer or a pin that was edited without `make relock` has another key, and is named here."""
    lock, differ = read_lock(), []
    shop = builder.Workshop(CACHE, PINS, print, dry=True)
    for part in PINS.parts.values():
        folder = shop.place(part)
        if part.module and folder.exists():
            entry = {"key": key_of(folder), "digests": digests_in(folder, "bin/*")}
            if lock["parts"].get(part.name) != entry:
                differ.append(part.title)
        for image in part.images:
            with contextlib.suppress(builder.WouldBuildError):  # not built on this machine
                if image.root and key_of(shop.root(image.root)) != lock["roots"][image.root]["key"]:
                    continue  # the archive has moved on
                built = shop.image(part, image)
                entry = {"key": key_of(Path(built["archive"]).parent), "digests": {"manifest": built["digest"]}}
                if lock["images"].get(image.name) != entry:
                    differ.append(image.name)
    assert not differ, "not as lab/lock.json says; run `make relock`"


def test_a_changed_byte_in_a_cached_package_is_fetched_again_and_never_locked(
    home: Path, lock: dict[str, Any]
) -> None:
    version, digest = packages(lock)["openssl"]
    before = LOCK.read_bytes()
    deb = Debs(home, print).path("openssl", version)
    content = bytearray(deb.read_bytes())
    content[-100] ^= 1
    deb.write_bytes(content)
    shutil.rmtree(home / "roots")
    shop, lines = workshop(home, lock)
    folder = shop.root("shell")
    assert any(line.startswith(f"{deb.name}: the cached file has another checksum") for line in lines)
    assert sha256_file(deb) == digest
    assert json.loads((folder / "packages.json").read_text()) == packages(lock)
    assert digests_in(folder, "root.tar") == lock["roots"]["shell"]["digests"]
    assert LOCK.read_bytes() == before


def test_a_killed_build_leaves_no_process_no_mount_and_nothing_outside_of_the_cache(
    home: Path, lock: dict[str, Any], tmp_path: Path
) -> None:
    shutil.rmtree(home / "roots")
    listed = tmp_path / "packages.json"
    listed.write_text(json.dumps(packages(lock)))
    before = traces(home)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(home.parent)}
    with subprocess.Popen([sys.executable, "-c", BUILD, "shell", str(listed)], cwd=tmp_path, env=environment) as build:
        until(lambda: bool(list(home.glob("roots/.*/work/mmdebstrap.*/usr/bin"))), "packages are being unpacked", 120)
        build.kill()
    until(lambda: traces(home) == before, "nothing of it is left", 60)
    folder = workshop(home, lock)[0].root("shell")
    assert digests_in(folder, "root.tar") == lock["roots"]["shell"]["digests"]
    assert not list(home.glob("roots/.*"))


def test_a_changed_byte_in_what_a_killed_apt_left_is_not_used(home: Path, lock: dict[str, Any]) -> None:
    version, digest = packages(lock)["openssl"]
    debs = Debs(home, print)
    deb = debs.path("openssl", version)
    content = bytearray(deb.read_bytes())
    content[-100] ^= 1
    deb.unlink()
    debs._options("trixie")  # makes apt's folders
    left = home / f"apt/trixie/cache/archives/openssl_{version.replace(':', '%3a')}_amd64.deb"
    left.write_bytes(content)
    assert debs.fetch(PINS.roots["shell"], packages(lock)) == packages(lock)
    assert sha256_file(deb) == digest


def test_other_bytes_of_a_locked_version_are_refused(home: Path, lock: dict[str, Any]) -> None:
    version, digest = packages(lock)["openssl"]
    packages(lock)["openssl"] = [version, "0" * 64]
    shop, _ = workshop(home, lock)
    with pytest.raises(PartError, match="the archive has other bytes of a locked version") as refusal:
        shop.root("shell")
    assert f"openssl {version}: got sha256 {digest}, expected {'0' * 64}" in str(refusal.value)
    assert not shop.root_place(PINS.roots["shell"], packages(lock)).exists()


def test_an_archive_that_moved_on_is_built_and_reported_and_the_lock_stays(home: Path, lock: dict[str, Any]) -> None:
    packages(lock)["openssl"] = ["3.0.0-0gone", "0" * 64]
    before = LOCK.read_bytes()
    shop, lines = workshop(home, lock)
    folder = shop.root("shell")
    resolved = json.loads((folder / "packages.json").read_text())
    assert resolved["openssl"] != packages(lock)["openssl"]
    assert set(resolved) >= {"base-files", "busybox-static", "openssl"}
    (line,) = [line for line in lines if "the archive has moved on" in line]
    assert f"openssl 3.0.0-0gone -> {resolved['openssl'][0]}" in line
    assert not Debs(home, print).missing(resolved)
    assert LOCK.read_bytes() == before
    again, _ = workshop(home, lock)  # the next run with the same lock uses the same root
    assert again.root("shell") == folder
    assert again.built == []


def test_an_archive_that_is_older_than_the_lock_is_refused(home: Path, lock: dict[str, Any]) -> None:
    packages(lock)["openssl"] = ["99.0-1", "0" * 64]
    shop, _ = workshop(home, lock)
    refusal = r"got openssl \S+, expected at least the locked 99\.0-1\. Fix: use another mirror.*this one is behind"
    with pytest.raises(PartError, match=refusal):
        shop.root("shell")


def test_a_package_that_the_pins_newly_name_is_fetched_beside_the_locked_ones(
    home: Path, lock: dict[str, Any]
) -> None:
    every = dict(packages(lock))
    del packages(lock)["openssl"]
    shop, lines = workshop(home, lock)
    folder = shop.root("shell")
    assert json.loads((folder / "packages.json").read_text()) == every
    assert any("openssl none -> " in line for line in lines)


def test_a_version_below_the_floor_is_refused_with_the_fix() -> None:
    root = PINS.roots["trainer"]
    Debs._check(root, {}, {name: [floor, ""] for name, floor in root.floors.items()})
    with pytest.raises(PartError, match=r"got python3-torch 2\.6\.0, expected at least its floor 2\.10"):
        Debs._check(root, {}, {name: ["2.6.0", ""] for name in root.floors})
