"""The lab's supervisord in a cgroup of the test's own: how it restarts programs, and that nothing of it gets lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import xmlrpc.client
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
from supervisor.xmlrpc import SupervisorTransport

from gangplank.wait import polls
from lab.host import cgroups
from lab.host.processes import kill_members

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "roles/lab_cluster/templates"
DEADLINE_S = 90


START = """
import json, sys
from pathlib import Path
from lab.host import cgroups, supervisor

cgroups.SLICE = sys.argv[1]
print(json.dumps(supervisor.ensure(Path(sys.argv[2]), Path(sys.argv[3]))[1]))
"""
KILLED = """
import os, signal, subprocess

class Popen(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

subprocess.Popen = Popen
"""
# supervisord, each time that it looks for programs that ended, is LATE_S seconds late, as on a busy machine.
BUSY = """
from lab.host import supervisor

late = "import time; reap = supervisord.Supervisor.reap; "
late += "supervisord.Supervisor.reap = lambda self, **options: (time.sleep(LATE_S), reap(self, **options))[1]\\n"
supervisor.START = supervisor.START.replace("supervisord.main", late + "supervisord.main")
"""


def ensure(script: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script as the run that starts supervisord, which outlives it."""
    command = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=DEADLINE_S)


@pytest.fixture
def own_cgroup(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A name instead of `gangplank`; what runs there is ended, and the cgroup removed."""
    monkeypatch.setattr(cgroups, "SLICE", f"gangplank-test-{os.getpid()}")
    yield cgroups.SLICE
    kill_members(cgroups.SYSTEM)
    cgroups.remove_cgroup()


def configure(folder: Path, **programs: str) -> Path:
    """A configuration with these programs, with every setting that the role gives them."""
    environment = jinja2.Environment(autoescape=False)  # noqa: S701  no HTML
    environment.filters["hash"] = lambda text, _: str(len(text))  # Ansible's own
    template = environment.from_string((TEMPLATES / "programs.conf.j2").read_text())
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    node = {"name": "none", "address": ""}
    text = template.render(
        node=node, suffix="", programs=programs, configs={}, trust="", lab_cluster_folder=folder
    )
    text = re.sub(r"command=nsenter .*? -- ", "command=", text)
    head = (
        f"[unix_http_server]\nfile={folder}/socket\n[supervisord]\nlogfile={folder}/supervisord.log\n"
        f"pidfile={folder}/pid\n[rpcinterface:supervisor]\n"
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
    )
    config = folder / "supervisord.conf"
    config.write_text(head + text)
    return config


def processes(socket: Path) -> list[dict[str, Any]]:
    """What supervisord says of its programs."""
    transport = SupervisorTransport(None, None, f"unix://{socket}")
    with contextlib.closing(transport):
        server: Any = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor
        return list(server.getAllProcessInfo())


def wait(state: str, socket: Path) -> dict[str, Any]:
    """What supervisord says of its program, once it is in this state."""
    for _ in polls(DEADLINE_S, 0.05):
        (program,) = processes(socket)
        if program["statename"] == state:
            return program
    return pytest.fail(f"it is {program}, expected {state} within {DEADLINE_S} s")


@pytest.mark.parametrize("machine", ["", BUSY.replace("LATE_S", "0.2")], ids=["idle", "busy"])
def test_d11_a_program_that_ends_at_once_is_started_after_growing_pauses_until_the_next_run(
    tmp_path: Path, own_cgroup: str, machine: str
) -> None:
    crashes = f"sh -c 'test -e {tmp_path}/repaired && exec sleep 900'"
    config, socket = configure(tmp_path, crashes=crashes), tmp_path / "socket"
    assert ensure(machine + START, own_cgroup, config, socket).returncode == 0
    assert wait("BACKOFF", socket)["spawnerr"] == "Exited too quickly (process log may have details)"
    again = ensure(START, own_cgroup, config, socket)
    assert json.loads(again.stdout)["revived"] == ["crashes"], "it may have ended once more before supervisord looks"
    wait("BACKOFF", socket)
    (tmp_path / "repaired").touch()
    wait("BACKOFF", socket)
    again = ensure(START, own_cgroup, config, socket)
    assert json.loads(again.stdout)["revived"] == ["crashes"], "the next run does not wait for the end of the pause"
    wait("RUNNING", socket)


def test_d11_a_program_whose_end_supervisord_sees_late_does_not_end_the_next_run(
    tmp_path: Path, own_cgroup: str
) -> None:
    config, socket = configure(tmp_path, crashes="false"), tmp_path / "socket"
    assert ensure(BUSY.replace("LATE_S", "1.2") + START, own_cgroup, config, socket).returncode == 0
    assert wait("EXITED", socket)["spawnerr"] == "Bad exit code 1", "it seems to have run for more than a second"
    again = ensure(START, own_cgroup, config, socket)
    assert again.returncode == 0, again.stderr


def test_d15_a_program_that_a_killed_run_has_just_stopped_runs_again(tmp_path: Path, own_cgroup: str) -> None:
    stays = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(900)"
    config, socket = configure(tmp_path, stays=f'{sys.executable} -c "{stays}"'), tmp_path / "socket"
    assert ensure(START, own_cgroup, config, socket).returncode == 0
    before = wait("RUNNING", socket)["pid"]
    stop = "import sys; from pathlib import Path; from lab.host.supervisor import connect; "
    assert ensure(f"{stop} connect(Path(sys.argv[1])).stopProcess('stays', False)", socket).returncode == 0
    assert wait("STOPPING", socket)["pid"] == before
    again = ensure(START, own_cgroup, config, socket)
    assert json.loads(again.stdout)["revived"] == ["stays"], again.stderr
    assert wait("RUNNING", socket)["pid"] != before


def test_d11_a_program_that_cannot_be_started_is_named_with_the_reason(tmp_path: Path, own_cgroup: str) -> None:
    config, socket = configure(tmp_path, crashes="false"), tmp_path / "socket"
    assert ensure(START, own_cgroup, config, socket).returncode == 0
    wait("BACKOFF", socket)
    log = tmp_path / "logs/crashes.log"
    log.unlink()
    log.mkdir()
    again = ensure(START, own_cgroup, config, socket)
    assert "supervisord: got crashes: unknown error making dispatchers for 'crashes': EISDIR" in again.stderr


def test_d15_a_supervisord_whose_maker_was_killed_right_after_its_start_is_in_the_cgroup(
    tmp_path: Path, own_cgroup: str
) -> None:
    config, socket = configure(tmp_path, stays="sleep 900"), tmp_path / "socket"
    done = ensure(KILLED + START, own_cgroup, config, socket)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    try:
        assert pid in cgroups.members(cgroups.SYSTEM), "else `make down` would not find it"
    finally:
        os.kill(pid, signal.SIGKILL)


# It leaves two pages of its folder free, then its program prints: first to a full disk, then with space again.
FULL = """
import os, subprocess, sys, time
from pathlib import Path
from gangplank.wait import polls
from lab.host import cgroups, supervisor
from tests.lab.test_supervisor import DEADLINE_S, configure, processes

def wait(check):
    assert any(check() for _ in polls(DEADLINE_S, 0.02)), processes(socket)

cgroups.SLICE, folder, outside, rotated = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "full", str(folder)], check=True)
start, turns, log, socket = outside / "start", outside / "turns", folder / "logs/prints.log", folder / "socket"
loop = f"while head -c 1000 /dev/zero; do echo >> {turns}; sleep 0.002; done"
config = configure(folder, prints=f"sh -c 'until test -e {start}; do sleep 0.01; done; {loop}'")
config.write_text(config.read_text().replace("10MB", rotated))
supervisor.ensure(config, socket)
(folder / "filler").write_bytes(4096 * (os.statvfs(folder).f_bavail - 2) * b"x")
start.touch()
wait(lambda: turns.exists() and turns.stat().st_size > 160)  # more than a pipe holds: supervisord reads it
assert os.statvfs(folder).f_bavail == 0
(folder / "filler").unlink()
space = time.time_ns()
wait(lambda: log.exists() and log.stat().st_mtime_ns > space)
(program,) = processes(socket)
print("stops", program["stop"])
"""


@pytest.mark.parametrize("rotated", ["10MB", "11KB"])  # the second has to be replaced while the disk is full
def test_d11_supervisord_and_its_programs_outlast_a_full_disk(tmp_path: Path, own_cgroup: str, rotated: str) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    isolated = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", FULL]
    words = [own_cgroup, str(folder), str(tmp_path), rotated]
    done = subprocess.run([*isolated, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "stops 0\n"), done.stderr
