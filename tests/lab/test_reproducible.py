"""Fault C3: two clean builds of a small part, in two folders with empty compiler caches, have the locked bytes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from lab.build import cache, go_toolchain
from lab.build.lock import digests_in, read_lock
from lab.build.parts import Workshop
from lab.build.versions import load_pins

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("pause",)  # with its image; any other part compiles for minutes without a compiler cache


@pytest.mark.parametrize("name", SMALL)
def test_c3_two_clean_builds_have_the_locked_digests(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = load_pins()
    go = go_toolchain.find_go(pins, cache.cache_home(), print)
    built = []
    for folder in (tmp_path / "one", tmp_path / "another-name"):
        (folder / "go").mkdir(parents=True)
        (folder / "go" / go.parents[1].name).symlink_to(go.parents[1])
        monkeypatch.setenv("GOCACHE", str(folder / "compiled"))
        shop = Workshop(folder, dataclasses.replace(pins, on_demand=frozenset()), print, dry=False)
        shop.lock = {"parts": {}, "roots": {}, "images": {}}  # so that a difference is compared here, not refused there
        part = pins.parts[name]
        images = {image.name: shop.image(part, image)["digest"] for image in part.images}
        built.append((digests_in(shop.part(part), "bin/*"), images))
    lock = read_lock()
    locked = {image.name: lock["images"][image.name]["digests"]["manifest"] for image in pins.parts[name].images}
    assert built[0] == built[1] == (lock["parts"][name]["digests"], locked)
