"""The lab's cache: only finished builds, one build at a time, and errors that name their cause."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.build.cache import building, digest_of, one_at_a_time, run_shown
from lab.errors import PartError, explain

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
HALF = """
import sys, time
from pathlib import Path
from lab.build.cache import building
with building(Path(sys.argv[1])) as draft:
    (draft / "half").write_text("half")
    (draft / "folder").mkdir()
    print(draft, flush=True)
    time.sleep(60)
"""
HOLD = """
import sys
from pathlib import Path
from lab.build.cache import one_at_a_time
with one_at_a_time(Path(sys.argv[1]), lambda line: print("said", line, flush=True)):
    print("in", flush=True)
    sys.stdin.readline()
print("out", flush=True)
"""


@contextlib.contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *(str(argument) for argument in arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_a_killed_build_does_not_count_and_the_next_one_removes_it(tmp_path: Path) -> None:
    target = tmp_path / "parts" / "etcd-1"
    neighbour = tmp_path / "parts" / ".etcd-10.x"
    with child(HALF, target) as process:
        draft = Path(line(process))
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert (draft / "half").exists()
    assert not target.exists()
    neighbour.mkdir()
    with building(target) as again:
        assert not draft.exists()
        assert list(again.iterdir()) == []
        (again / "whole").write_text("whole")
    assert [path.name for path in target.iterdir()] == ["whole"]
    assert sorted(path.name for path in target.parent.iterdir()) == [neighbour.name, target.name]
    assert target.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [KeyboardInterrupt, PartError("what", "where", "fix"), ZeroDivisionError])
def test_a_failed_build_leaves_nothing(tmp_path: Path, error: BaseException | type[BaseException]) -> None:
    def fail() -> None:
        with building(tmp_path / "x") as draft:
            (draft / "half").write_text("half")
            raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_d11_a_full_disk_in_python_is_reported_as_one(tmp_path: Path) -> None:
    full = Path("/dev/full")
    with pytest.raises(PartError, match="the disk is full"), building(tmp_path / "x"), full.open("w") as stream:
        stream.write("x")
    assert list(tmp_path.iterdir()) == []


def test_the_drafts_of_interrupted_builds_are_removed_though_their_parts_are_not_built_again(tmp_path: Path) -> None:
    left, other = tmp_path / "images/.trainer-0123456789abcdef.x_12abcd", tmp_path / "checkouts/.a.json.12345678"
    left.mkdir(parents=True)
    other.mkdir(parents=True)
    with one_at_a_time(tmp_path, print):
        assert (left.exists(), other.exists()) == (False, True)


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PartError, match="XDG_CACHE_HOME"), one_at_a_time(tmp_path / "file", print):
        pass
    with pytest.raises(PartError, match="file"), building(tmp_path / "file" / "x") as draft:
        draft.touch()


def test_d6_two_builds_wait_for_each_other(tmp_path: Path) -> None:
    with child(HOLD, tmp_path) as first:
        assert line(first) == "in"
        with child(HOLD, tmp_path) as second:
            who = re.escape(f"{getpass.getuser()}@{socket.gethostname()}, process {first.pid}, since ")
            said = rf"said another build holds the cache \({who}[0-9: -]+ UTC\): waiting for it"
            assert re.fullmatch(said, line(second))
            assert second.stdout
            assert select.select([second.stdout], [], [], 0.3)[0] == []
            first.communicate("go\n", timeout=10)
            assert line(second) == "in"
            second.communicate("go\n", timeout=10)
            assert (first.returncode, second.returncode) == (0, 0)
    assert (tmp_path / "build.lock").read_text() == "", "nobody is named who holds it no longer"


def test_a_killed_build_frees_the_lock(tmp_path: Path) -> None:
    with child(HOLD, tmp_path) as first:
        assert line(first) == "in"
        first.kill()
    lines: list[str] = []
    with one_at_a_time(tmp_path, lines.append):
        assert lines == []


def test_the_key_follows_values_and_files_but_not_the_order_of_a_mapping(tmp_path: Path) -> None:
    file = tmp_path / "go.sum"
    file.write_text("one")
    key = digest_of({"a": 1, "b": 2}, file)
    assert key == digest_of({"b": 2, "a": 1}, file)
    assert len({key, digest_of({"a": 1, "b": 3}, file), digest_of(file, {"a": 1, "b": 2})}) == 3
    file.write_text("two")
    assert key != digest_of({"a": 1, "b": 2}, file)


# Lines as the tools print them -> what must be reported. The host names are invented.
GO = 'go: x@v1: Get "https://p.example/x": '
OUTPUTS = [
    ("verifying a.example/x@v1.0.0: checksum mismatch\n\tgo.sum: h1:b\n\nSECURITY ERROR\nThis", "pinned checksum"),
    ("E: Failed to fetch http://deb.example/x.deb  Hash Sum mismatch", "does not match its pinned checksum"),
    ("link: mapping output file failed: write /tmp/x: no space left on device", "the disk is full"),
    ("E: You don't have enough free space in /var/cache/apt/archives/.", "the disk is full"),
    ("tar: x: Cannot write: No space left on device", "the disk is full"),
    (GO + "dial tcp: lookup p.example: no such host", "registry does not answer"),
    (GO + "dial tcp 127.0.0.1:1: connect: connection refused", "registry does not answer"),
    (GO + "proxyconnect tcp: dial tcp", "registry does not answer"),
    (GO + "unexpected EOF", "registry does not answer"),
    (GO + "net/http: TLS handshake timeout", "registry does not answer"),
    ("go: x: reading http://p.example/x: 403 Forbidden", "registry does not answer"),
    ("Err:1 http://deb.example x InRelease\n  Temporary failure resolving 'deb.example'", "registry does not answer"),
    ("  Could not connect to deb.example:80 (192.0.2.1). - connect (111: refused)", "registry does not answer"),
    ('ctr: failed to dial "/run/containerd/containerd.sock": context deadline exceeded', "containerd of the lab"),
    ("nsenter: cannot open /run/netns/gangplank-node-0: No such file or directory", "containerd of the lab"),
    ("k8s.io/api/core/v1: /go/pkg/tool/compile: signal: killed", "because memory ran out"),
]


@pytest.mark.parametrize(("output", "cause"), OUTPUTS, ids=[output.splitlines()[-1][:40] for output, _ in OUTPUTS])
def test_a_known_cause_is_reported_with_its_line_and_fix(output: str, cause: str) -> None:
    error = explain(f"building\n{output}\nmore\n", "etcd v3")
    assert cause in error.what
    assert str(error).startswith(f"etcd v3: {error.what}")
    assert ". Fix: " in str(error)
    assert error.what.partition("(")[2].rstrip(")").strip("' ")[:20] in output


def test_an_unknown_cause_shows_the_last_lines() -> None:
    error = explain("\n".join(f"line {number}" for number in range(20)), "etcd v3")
    assert "line 19" in str(error)
    assert "line 11" not in str(error)


def test_a_long_step_reports_progress_and_keeps_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.build.cache.TICK_S", 0.0)
    lines: list[str] = []
    output = run_shown(["sh", "-c", "echo a; echo b >&2"], "x", lines.append, cwd=tmp_path, env={}, unit="packages")
    assert output == "a\nb\n"
    assert lines[-1].startswith("x: 2 packages, ")
    with pytest.raises(PartError, match="bad luck"):
        run_shown(["sh", "-c", "echo bad luck; exit 3"], "x", lines.append, cwd=tmp_path, env={})


def test_an_interrupted_step_ends_with_all_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.build.cache.TICK_S", 0.0)

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    script = "sleep 61.5 & echo $! > child; (sleep 62.5 & echo $! > grandchild; wait) & "
    script += "until test -s grandchild; do sleep 0.02; done; echo started; wait"
    with pytest.raises(KeyboardInterrupt):
        run_shown(["sh", "-c", script], "x", interrupt, cwd=tmp_path, env=dict(os.environ))
    end = time.monotonic() + 5
    for name in ("child", "grandchild"):
        pid = (tmp_path / name).read_text().strip()
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1]:
            assert time.monotonic() < end, f"{name} still runs"
            time.sleep(0.02)
