"""D1: an interrupted removal in the cache leaves no half of a folder that counts as finished."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from lab.build import parts, verify
from lab.build.cache import one_at_a_time
from lab.build.image_store import make_store
from lab.build.parts import Workshop, sweep_images
from lab.build.versions import Part, Pins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Work: TypeAlias = Callable[[], object]

TINY = Part("tiny", "v1", "gangplank/lab/tiny", commands={"tiny": "gangplank/lab/tiny"})


def filled(folder: Path, *names: str) -> Path:
    """A folder with a file of these names, each of which has its name as content."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def an_image(home: Path, _: pytest.MonkeyPatch) -> tuple[Path, Work]:
    """An archive that no checkout uses, and the sweep that removes it."""
    folder = filled(home / f"images/trainer-{'a' * 16}", "image.json", "image.tar")
    return folder, lambda: sweep_images(home, ["trainer"], [])


def a_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Work]:
    """A store that no node has, and the making of the next one."""
    monkeypatch.setattr("lab.build.image_store._containerd", lambda *_: contextlib.nullcontext([]))
    bolt, layers = (f"root/io.containerd.{name}" for name in ("metadata.v1.bolt", "snapshotter.v1.overlayfs"))
    store = filled(home / "stores/1", f"{bolt}/meta.db", f"{layers}/metadata.db", f"{layers}/snapshots/1/fs/bin/sh")
    (store / "images.json").write_text(json.dumps({"a:1": "sha256:1"}))
    image = {"name": "a:1", "archive": "a.tar", "digest": "sha256:1"}
    return store, lambda: make_store(home / "stores/2", [image], home, print)


def a_part(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Work]:
    """A part that was altered, and the build that replaces it."""
    monkeypatch.setattr(parts, "build_commands", lambda *arguments: filled(arguments[2], "bin/tiny"))
    shop = Workshop(home, Pins("1", {}, {"tiny": TINY}, {}), print, dry=False)
    shop.lock, shop.__dict__["go"] = {"parts": {}, "roots": {}, "images": {}}, home / "go"
    folder = filled(shop.place(TINY), "charts/a", "bin/tiny")
    (folder / "digests.json").write_text(json.dumps({"bin/tiny": "of other bytes"}))
    return folder, lambda: shop.part(TINY)


def an_altered_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Work]:
    """Packages that `make verify` removes."""
    folder = filled(home / "venv/0a", "bin/a", "complete")

    def venvs(_: Workshop) -> Iterator[verify.Finding]:
        yield folder, "altered"

    for name, value in {"CHECKS": (venvs,), "STATE": home / "lab", "RUN": home / "run"}.items():
        monkeypatch.setattr(verify, name, value)
    shop = Workshop(home, Pins("1", {}, {}, {}), print, dry=False)
    return folder, lambda: [*verify.verify(shop, print)]


@pytest.mark.parametrize("kind", [an_image, a_store, a_part, an_altered_folder])
def test_d1_an_interrupted_removal_takes_the_name_first_and_the_next_run_the_rest(
    kind: Callable[..., tuple[Path, Work]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, work = kind(tmp_path, monkeypatch)
    before = {path.relative_to(folder) for path in folder.rglob("*")}
    removed: list[Path] = []
    rmtree = shutil.rmtree

    def interrupted(path: Path, **options: Any) -> None:
        """Remove one file, for the first folder with one."""
        files = sorted(file for file in Path(path).rglob("*") if file.is_file())
        if removed or not files:
            rmtree(path, **options)
            return
        removed.append(path)
        files[0].unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            work()
    assert removed
    assert not folder.exists() or {path.relative_to(folder) for path in folder.rglob("*")} == before
    with one_at_a_time(tmp_path, print):
        assert list(tmp_path.glob("*/.*.gone")) == []


def test_d1_a_new_store_is_finished_before_the_old_one_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, work = a_store(tmp_path, monkeypatch)

    def refuse(path: Path, **_: bool) -> None:
        if Path(path).exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(KeyboardInterrupt):
            work()
    assert (store.with_name("2") / "root/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/bin/sh").exists()
    assert not store.exists()
