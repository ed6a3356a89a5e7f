"""Fault C1: `make verify` finds a changed byte in a Go module, and in a chart that was copied out of one."""

from __future__ import annotations

import os
import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest

from lab.build import cache, go_commands, go_toolchain, verify
from lab.build.parts import Workshop
from lab.build.versions import Part, Pins, load_pins

if TYPE_CHECKING:
    from pathlib import Path

GO = go_toolchain.find_go(load_pins(), cache.cache_home(), print)
MODULE, VERSION = "example.org/web", "v1.0.0"
TINY = Part("tiny", VERSION, MODULE, charts={"web": f"{MODULE}/charts/web"})


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A cache with a part of one chart, and a module cache of its own; the module comes from a folder."""
    proxy, own, home = tmp_path / "proxy" / MODULE / "@v", tmp_path / "modules/tiny", tmp_path / "cache"
    proxy.mkdir(parents=True)
    own.mkdir(parents=True)
    (proxy / f"{VERSION}.info").write_text(f'{{"Version": "{VERSION}"}}')
    (proxy / f"{VERSION}.mod").write_text(f"module {MODULE}\n")
    with zipfile.ZipFile(proxy / f"{VERSION}.zip", "w") as archive:
        for name, text in {"go.mod": f"module {MODULE}\n", "charts/web/Chart.yaml": "name: right\n"}.items():
            archive.writestr(f"{MODULE}@{VERSION}/{name}", text)
    for name, value in {"GOMODCACHE": tmp_path / "downloaded", "GOPROXY": f"file://{tmp_path}/proxy"}.items():
        monkeypatch.setenv(name, str(value))
    (own / "go.mod").write_text(f"module gangplank/lab/tiny\n\ngo 1.26\n\nrequire {MODULE} {VERSION}\n")
    env = os.environ | {"GONOSUMDB": MODULE, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    subprocess.run([GO, "mod", "download", MODULE], cwd=own, env=env, check=True)  # it writes go.sum
    for module in (verify, go_commands):
        monkeypatch.setattr(module, "MODULES", tmp_path / "modules")
    (home / "go").mkdir(parents=True)
    (home / "go" / GO.parents[1].name).symlink_to(GO.parents[1])
    shop = Workshop(home, Pins(load_pins().go_version, {}, {"tiny": TINY}, {}), print, dry=False)
    shop.lock = {"parts": {}, "roots": {}, "images": {}}
    shop.part(TINY)
    return shop


def flip(path: Path) -> None:
    path.chmod(0o644)
    path.write_text(path.read_text().replace("right", "sight"))


def test_c1_a_module_and_a_chart_without_changes_have_no_findings(shop: Workshop) -> None:
    assert list(verify.modules(shop)) == []


def test_c1_a_changed_byte_in_a_module_is_found(shop: Workshop, tmp_path: Path) -> None:
    folder = tmp_path / f"downloaded/{MODULE}@{VERSION}"
    flip(folder / "charts/web/Chart.yaml")
    assert list(verify.modules(shop)) == [(folder, f"{MODULE} {VERSION}: modified since its download")]


def test_c1_a_changed_byte_in_a_chart_is_found(shop: Workshop) -> None:
    flip(shop.place(TINY) / "charts/web/Chart.yaml")
    assert list(verify.modules(shop)) == [(shop.place(TINY), f"charts/web: Chart.yaml not as in {MODULE}")]
