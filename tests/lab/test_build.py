"""Failing builds, with the real go and real signals: one message, nothing half-built, and the next run continues."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.build import cache, go_toolchain, versions
from lab.build import parts as builder
from tests.support.processes import descendants
from tests.support.teams_live import until

ROOT = Path(__file__).resolve().parents[2]
# lab.build.parts with one tiny part; its node has no root file system.
BUILD = """
import sys
from pathlib import Path
from lab.build import go_commands, lock, parts, versions
folder = Path(sys.argv[1])
module = sys.argv[2]
part = versions.Part("tiny", "v1", module, commands={"also": module, "tiny": module})
real = versions.load_pins()
root = versions.Root("node", "trixie", "essential", [])
pins = versions.Pins(real.go_version, real.go_sha256, {"tiny": part}, {"node": root})
parts.load_pins = lambda: pins
lock.LOCK = folder / "lock.json"
go_commands.MODULES = folder / "modules"
parts.LAB = folder
sys.exit(parts.main(["tiny"]))
"""
OURS = "gangplank/lab/tiny"
GO = go_toolchain.find_go(versions.load_pins(), cache.cache_home(), print)
MAIN = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("tiny") }\n'


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    folder = tmp_path / "modules" / "tiny"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text(f"module {OURS}\n\ngo 1.26\n")
    (folder / "main.go").write_text(MAIN)
    return tmp_path


def environment(folder: Path, **more: str) -> dict[str, str]:
    """With a cache that has the pinned Go toolchain and nothing else."""
    own = folder / "cache/gangplank/go" / GO.parents[1].name
    if not own.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        own.symlink_to(GO.parents[1])
    return dict(os.environ) | {"XDG_CACHE_HOME": str(folder / "cache")} | {"PYTHONDONTWRITEBYTECODE": "1"} | more


def command(folder: Path, module: str = OURS, first: str = "") -> list[str]:
    return [sys.executable, "-c", first + BUILD, str(folder), module]


def run(
    folder: Path, module: str = OURS, before: str = "", first: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    argv = command(folder, module, first)
    if before:
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", before + '\nexec "$@"', "sh", *argv]
    return subprocess.run(
        argv, cwd=ROOT, env=environment(folder, **more), capture_output=True, text=True, check=False, timeout=900
    )


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache/gangplank/parts").glob("*"))


def test_a_tiny_part_is_built_once(tiny: Path) -> None:
    first = run(tiny)
    assert first.returncode == 0, first.stderr
    (name,) = parts(tiny)
    binary = tiny / "cache/gangplank/parts" / name / "bin/tiny"
    assert subprocess.run([binary], capture_output=True, text=True, check=True).stdout == "tiny\n"
    assert binary.samefile(binary.with_name("also")), "commands of one package are one file"
    again = run(tiny)
    assert (again.returncode, again.stderr) == (0, "")
    assert sorted(path.name for path in binary.parents[1].iterdir()) == ["bin", "digests.json"]


# Another checkout's build, which cannot read this checkout's note yet, removes what that will name.
SWEPT = """
import shutil
from lab.build import parts
def note(home, result, write=parts.note):
    if not result["built"]:
        shutil.rmtree(home / "parts")
    return write(home, result)
parts.note = note
"""


def test_d15_what_another_build_removes_before_this_one_says_that_it_uses_it_is_built_again(tiny: Path) -> None:
    assert run(tiny).returncode == 0
    (folder,) = parts(tiny)
    shutil.rmtree(tiny / "cache/gangplank/checkouts")
    done = run(tiny, first=SWEPT)
    assert done.returncode == 0, done.stderr
    assert parts(tiny) == [folder]


def lock_with(folder: Path, digest: str) -> Path:
    """Lock the part that was built with this digest of its one program, which has two names."""
    lock = folder / "lock.json"
    digests = {"bin/also": digest, "bin/tiny": digest}
    entry = {"key": parts(folder)[0].rpartition("-")[2], "digests": digests}
    lock.write_text(json.dumps({"parts": {"tiny": entry}}))
    return lock


def test_a_second_build_has_the_locked_bytes_and_leaves_the_lock_as_it_is(tiny: Path) -> None:
    assert run(tiny).returncode == 0
    folder = tiny / "cache/gangplank/parts" / parts(tiny)[0]
    lock = lock_with(tiny, cache.sha256_file(folder / "bin/tiny"))
    before = lock.read_bytes()
    shutil.rmtree(folder)
    done = run(tiny, GOCACHE=str(tiny / "another"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("[1/1] tiny v1 done\n")
    assert lock.read_bytes() == before


def test_a_build_with_other_bytes_than_the_lock_is_refused(tiny: Path) -> None:
    assert run(tiny).returncode == 0
    folder = tiny / "cache/gangplank/parts" / parts(tiny)[0]
    built = cache.sha256_file(folder / "bin/tiny")
    lock_with(tiny, "0" * 64)
    shutil.rmtree(folder)
    done = run(tiny)
    assert done.returncode == 1
    assert "error: tiny v1: other bytes than lab/lock.json, from the same pins:\n" in done.stderr
    assert f"bin/tiny: got {built}, expected {'0' * 64}\n" in done.stderr
    assert parts(tiny) == []


@pytest.mark.parametrize("locked", [True, False], ids=["by the lock", "by its own record"])
def test_c1_a_flipped_byte_of_a_cached_program_is_built_again(tiny: Path, locked: bool) -> None:
    assert run(tiny).returncode == 0
    binary = tiny / "cache/gangplank/parts" / parts(tiny)[0] / "bin/tiny"
    content = binary.read_bytes()
    digest = cache.sha256_file(binary)
    if locked:
        lock_with(tiny, digest)
    altered = content[:-1] + bytes([content[-1] ^ 1])
    binary.write_bytes(altered)
    done = run(tiny)
    assert done.returncode == 0, done.stderr
    difference = f"bin/also: got {hashlib.sha256(altered).hexdigest()}, expected {digest}"  # the first of its two names
    assert f"tiny v1: altered in the cache, so it is built again: {difference}\n" in done.stderr
    assert done.stderr.count("altered") == 1
    assert binary.read_bytes() == content
    assert run(tiny).stderr == ""


def dependent(folder: Path) -> str:
    """Make `tiny` one of upstream's pinned modules, with the project's own go.mod and go.sum; return its name."""
    shutil.rmtree(folder / "modules/tiny")
    shutil.copytree(ROOT / "lab/modules/coredns", folder / "modules/tiny")
    return "github.com/coredns/coredns"


def test_a_registry_that_does_not_answer_is_reported(tiny: Path) -> None:
    module = dependent(tiny)
    done = run(tiny, module, GOPROXY="http://127.0.0.1:1", GOMODCACHE=str(tiny / "empty"), GONOPROXY="none")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1].startswith("error: tiny v1: a package registry does not answer (")
    assert "connection refused" in done.stderr
    assert "Traceback" not in done.stderr
    assert parts(tiny) == []


def test_a_checksum_that_differs_is_reported_and_nothing_is_used(tiny: Path) -> None:
    module = dependent(tiny)
    sums = tiny / "modules/tiny/go.sum"
    lines = sums.read_text().splitlines()
    wrong = [line.rsplit(":", 1)[0] + ":" + "A" * 43 + "=" if line.startswith(f"{module} ") else line for line in lines]
    assert wrong != lines
    sums.write_text("\n".join(wrong) + "\n")
    done = run(tiny, module)
    assert done.returncode == 1
    assert "error: tiny v1: a download does not match its pinned checksum; nothing of it was used (" in done.stderr
    assert "Traceback" not in done.stderr
    assert parts(tiny) == []


def test_d11_a_full_disk_is_reported_and_nothing_half_built_stays(tiny: Path) -> None:
    home = tiny / "cache/gangplank"
    before = f"""mkdir -p {tiny}/cache; mount -t tmpfs -o size=1m full {tiny}/cache
        mkdir -p {home}/go; ln -s {GO.parents[1]} {home}/go/
        "$@" || code=$?; find {home}/parts; exit $code"""
    done = run(tiny, before=before)
    assert done.returncode == 1
    assert "error: tiny v1: the disk is full (" in done.stderr
    assert ". Fix: free some space" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.split() == [f"{tiny}/cache/gangplank/parts"]
    assert run(tiny).returncode == 0


def test_ctrl_c_ends_everything_and_the_next_run_continues(tiny: Path) -> None:
    env = environment(tiny, GOCACHE=str(tiny / "gocache"))  # empty: the standard library is compiled, too
    with subprocess.Popen(
        command(tiny),
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        end = time.monotonic() + 600
        while len(children := descendants(process.pid)) < 2:  # go, and a compiler that it started
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err == "tiny v1: building\n\ninterrupted; finished parts are kept. Run it again to continue\n"
    assert out == ""
    assert parts(tiny) == []
    while alive := [pid for pid in children if Path(f"/proc/{pid}/exe").exists()]:
        assert time.monotonic() < end, f"{alive} still run"
        time.sleep(0.02)
    assert run(tiny).returncode == 0
    assert len(parts(tiny)) == 1


def test_of_the_users_file_of_settings_the_proxy_alone_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "env"
    written = {"GOPROXY": "http://mirror.example", "GOSUMDB": "off", "GOAMD64": "v4", "GOFLAGS": "-tags=evil"}
    settings.write_text("".join(f"{name}={value}\n" for name, value in written.items()))
    monkeypatch.delenv("GOPROXY", raising=False)
    monkeypatch.setenv("GOENV", str(settings))
    monkeypatch.setenv("GOAMD64", "v3")
    go_toolchain._proxy.cache_clear()
    command = [str(GO), "env", "GOPROXY", "GOSUMDB", "GOAMD64", "GOFLAGS"]
    done = subprocess.run(command, env=go_toolchain.go_environment(GO), capture_output=True, text=True, check=True)
    go_toolchain._proxy.cache_clear()
    flags = "-mod=readonly -trimpath -buildvcs=false"
    assert done.stdout.splitlines() == ["http://mirror.example", "sum.golang.org", "v1", flags]


STORE = """
import signal, sys
from pathlib import Path
from lab.build import image_store
with image_store._containerd(Path(sys.argv[1]), Path(sys.argv[2])):
    Path(sys.argv[3]).touch()
    signal.pause()
"""


def test_d15_a_killed_build_of_an_image_store_leaves_no_containerd(tmp_path: Path) -> None:
    root, ready = tmp_path / "store", tmp_path / "ready"
    binaries = builder.build(["containerd"], print, roots=())["bin"]["containerd"]
    command = [sys.executable, "-c", STORE, str(root), binaries, str(ready)]
    with subprocess.Popen(command, cwd=ROOT) as build:
        until(ready.exists, "its containerd answers")
        started = descendants(build.pid)
        build.kill()
    assert started
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "all of it has ended")
