"""Debian roots: the same packages give the same bytes, with no network; an archive that moved on is no error.

Takes packages from the user's cache where they are there; else they are fetched.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from lab import build as builder
from lab.cache import cache_home, sha256_file
from lab.debian import Debs
from lab.errors import PartError
from lab.pins import load_pins

if TYPE_CHECKING:
    from pathlib import Path

CACHE = cache_home()
LOCK = json.loads(builder.LOCK.read_text())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the test's own with the user's packages and package lists."""
    made = tmp_path_factory.mktemp("cache") / "gangplank"
    made.mkdir()
    for name in ("debs", "apt"):
        if (CACHE / name).exists():
            subprocess.run(["cp", "-a", str(CACHE / name), str(made / name)], check=True)
    return made


def workshop(home: Path, lock: dict[str, object] | None = None) -> tuple[builder.Workshop, list[str]]:
    said: list[str] = []
    shop = builder.Workshop(home, load_pins(), said.append, dry=False)
    shop.lock = copy.deepcopy(lock or LOCK)
    return shop, said


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")


def test_two_builds_give_the_same_bytes_without_a_network(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Debs(home, print).mmdebstrap()
    workshop(home)[0].root("shell")
    offline(monkeypatch)
    sums = []
    for _ in range(2):
        shutil.rmtree(home / "roots")
        shop, said = workshop(home)
        made = shop.root("shell")
        sums.append(sha256_file(made / "root.tar"))
        assert not any("fetching" in line for line in said)
        assert shop.lock == LOCK
    assert sums[0] == sums[1]
    with tarfile.open(made / "root.tar") as root:
        names = {member.name for member in root}
        assert max(member.mtime for member in root) == 0
    assert "./usr/bin/busybox" in names
    assert not [name for name in names if "sources.list" in name or name.startswith("./usr/share/doc/")]


def test_an_archive_that_moved_on_is_built_told_and_locked(home: Path) -> None:
    moved = copy.deepcopy(LOCK)
    moved["roots"]["shell"]["openssl"] = ["3.0.0-0gone", "0" * 64]
    shop, said = workshop(home, moved)
    made = shop.root("shell")
    found = shop.lock["roots"]["shell"]
    assert found == json.loads((made / "lock.json").read_text())
    assert found["openssl"] != moved["roots"]["shell"]["openssl"]
    assert set(found) >= {"base-files", "busybox-static", "openssl"}
    (told,) = [line for line in said if "the archive has moved on" in line]
    assert f"openssl 3.0.0-0gone -> {found['openssl'][0]}" in told
    assert not Debs(home, print).missing(found)
    again, _ = workshop(home, moved)  # the next clone with the old lock: found, not built
    assert again.root("shell") == made
    assert again.built == []


def test_a_package_that_the_pins_newly_name_is_fetched_beside_the_locked_ones(home: Path) -> None:
    before = copy.deepcopy(LOCK)
    del before["roots"]["shell"]["openssl"]
    shop, said = workshop(home, before)
    shop.root("shell")
    assert shop.lock["roots"]["shell"] == LOCK["roots"]["shell"]
    assert any("openssl none -> " in line for line in said)


def test_a_version_below_the_floor_is_refused_with_the_cure() -> None:
    root = load_pins().roots["trainer"]
    Debs._check_floors(root, {name: [floor, ""] for name, floor in root.floors.items()})
    with pytest.raises(PartError, match=r"python3-torch 2\.6\.0 is below the floor 2\.10"):
        Debs._check_floors(root, {name: ["2.6.0", ""] for name in root.floors})
