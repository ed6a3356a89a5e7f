"""Fault C3: clean builds of a part, in other folders and with empty compiler caches, have the locked bytes.

A small part twice in `make test`. The sweep `reproducible` builds all of them once more: the bytes that they must have
are those of an earlier build, which the lock records. Debian roots are in test_roots.py.
"""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING

import pytest

from lab.build import cache, go_toolchain
from lab.build.lock import digests_in, read_lock
from lab.build.parts import Workshop
from lab.build.versions import load_pins
from tests.support.sweeps import sweeping

if TYPE_CHECKING:
    from pathlib import Path

PINS = load_pins()
SMALL = ["pause"]  # with its image; any other part compiles for minutes without a compiler cache
ALL = [part.name for part in PINS.parts.values() if part.module or part.images]


@pytest.mark.parametrize("name", ALL if sweeping("reproducible") else SMALL)
def test_c3_clean_builds_have_the_locked_digests(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = cache.cache_home()
    go = go_toolchain.find_go(PINS, home, print)
    lock, part, built = read_lock(), PINS.parts[name], []
    folders = [tmp_path / "one", tmp_path / "another-name"]
    for folder in folders if name in SMALL else folders[1:]:
        (folder / "go").mkdir(parents=True)
        (folder / "go" / go.parents[1].name).symlink_to(go.parents[1])
        (folder / "roots").symlink_to(home / "roots")  # of images
        monkeypatch.setenv("GOCACHE", str(folder / "compiled"))
        shop = Workshop(folder, dataclasses.replace(PINS, on_demand=frozenset()), print, dry=False)
        # Without the locked digests: a difference is compared here, not refused there.
        shop.lock = {"parts": {}, "roots": lock["roots"], "images": {}}
        images = {image.name: shop.image(part, image)["digest"] for image in part.images}
        built.append((digests_in(shop.part(part), "bin/*") if part.module else {}, images))
        shutil.rmtree(folder / "compiled", ignore_errors=True)  # gigabytes
    locked = {image.name: lock["images"][image.name]["digests"]["manifest"] for image in part.images}
    assert built == [(lock["parts"].get(name, {}).get("digests", {}), locked)] * len(built)
