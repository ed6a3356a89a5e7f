"""What a long task prints reaches a pipe when it happens, not when its playbook ends."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from tests.support.processes import kill_with_descendants

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOK = "- {hosts: localhost, gather_facts: false, tasks: [{gangplank.gangplank.lab_build: {parts: [pause]}}]}"


def read_until(stream: int, text: bytes, limit_s: float) -> bytes:
    """What has arrived when `text` has, when the stream has ended, or when the time is up."""
    end, output = time.monotonic() + limit_s, b""
    while text not in output and select.select([stream], [], [], max(0, end - time.monotonic()))[0]:
        chunk = os.read(stream, 65536)
        if not chunk:
            break
        output += chunk
    return output


def test_progress_is_seen_through_a_pipe_while_the_task_runs(tmp_path: Path) -> None:
    (tmp_path / "book.yml").write_text(PLAYBOOK)
    cache = tmp_path / ".cache/gangplank"
    cache.mkdir(parents=True)
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", str(tmp_path / "book.yml")]
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}  # no PYTHONUNBUFFERED
    with (cache / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the task says that it waits for this, and waits
        with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as play:
            assert play.stdout
            try:
                output = read_until(play.stdout.fileno(), b"another build holds the cache", 20)
                assert b"another build holds the cache" in output, output.decode()
                assert play.poll() is None
            finally:
                kill_with_descendants(play.pid)  # the task would build
