"""What the lab asks of its supervisord: a real one, with a program of its own."""

from __future__ import annotations

import fnmatch
import gc
import os
import signal
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.wait import polls
from lab.errors import LabError
from lab.host import supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]

# supervisor's own transport leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)

CONFIG = """
[supervisord]
logfile = {folder}/log
pidfile = {folder}/pid
[unix_http_server]
file = {folder}/socket
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[program:sleeper]
command = sleep 600
"""


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """The socket of a supervisord whose program runs."""
    (tmp_path / "conf").write_text(CONFIG.format(folder=tmp_path))
    command = [sys.executable, "-m", "supervisor.supervisord", "--nodaemon", "-c", str(tmp_path / "conf")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in polls(30, 0.05):
                if supervisor.answers(tmp_path / "socket"):
                    break
            for _ in polls(30, 0.05):
                if supervisor.connect(tmp_path / "socket").getProcessInfo("sleeper")["statename"] == "RUNNING":
                    break
            yield tmp_path / "socket"
        finally:
            process.terminate()
            gc.collect()  # while these warnings are ignored


def test_d_a_program_that_supervisord_restarted_meanwhile_is_no_failure(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = supervisor.connect(socket)

    class Late:
        """What supervisord said before it restarted the program."""

        def __getattr__(self, name: str) -> Any:
            return getattr(server, name)

        def getAllProcessInfo(self) -> list[dict[str, Any]]:  # noqa: N802  supervisor's name
            return [info | {"statename": "EXITED"} for info in server.getAllProcessInfo()]

    monkeypatch.setattr(supervisor, "connect", lambda _socket: Late())
    assert supervisor.apply(socket)["revived"] == ["sleeper"]


def test_a_program_that_cannot_be_started_is_a_failure(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = supervisor.connect(socket)

    class Wrong:
        def __getattr__(self, name: str) -> Any:
            return getattr(server, name)

        def getAllProcessInfo(self) -> list[dict[str, str]]:  # noqa: N802  supervisor's name
            return [{"name": "nobody", "statename": "EXITED"}]

    monkeypatch.setattr(supervisor, "connect", lambda _socket: Wrong())
    with pytest.raises(LabError, match="supervisord: got BAD_NAME: nobody, expected it to run the programs"):
        supervisor.apply(socket)


def test_d_a_supervisord_that_is_stopped_is_one_message(
    socket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "ANSWER_S", 0.2, raising=False)
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        assert not supervisor.answers(socket), "else a run waits for it without a word"
        for request in (supervisor.apply, lambda place: supervisor.start_times(place, "sleeper")):
            with pytest.raises(LabError, match=r"got timed out, expected .*supervisor"):
                request(socket)
    finally:
        os.kill(pid, signal.SIGCONT)


class Broken(socketserver.StreamRequestHandler):
    """It breaks off its answer, as a supervisord that is killed meanwhile."""

    def handle(self) -> None:
        while b"</methodCall>" not in self.rfile.readline():
            pass
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n<?xml")


def test_d_an_answer_that_breaks_off_is_one_message(tmp_path: Path) -> None:
    place = tmp_path / "socket"
    with socketserver.UnixStreamServer(str(place), Broken) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            assert not supervisor.answers(place)
            for request in (supervisor.apply, lambda place: supervisor.start_times(place, "sleeper")):
                with pytest.raises(LabError, match=r"got IncompleteRead.*, expected .*supervisor"):
                    request(place)
        finally:
            server.shutdown()


def test_supervisord_reads_the_programs_of_every_node_whatever_its_name_is() -> None:
    template = ROOT / "roles/lab_cluster/templates/supervisord.conf.j2"
    pattern = template.read_text().splitlines()[-1].rpartition("/")[2]
    names = ("node-0.conf", "node0.conf", "gpu-a1.conf", "control-plane.conf", "supervisord.conf")
    assert [fnmatch.fnmatch(name, pattern) for name in names] == [True, True, True, False, False]


def test_a_lab_that_runs_from_another_folder_is_not_replaced(tmp_path: Path) -> None:
    """Its nodes would be made again over another folder: an empty cluster, while the data are in the old one."""
    template = ROOT / "roles/lab_cluster/templates/supervisord.conf.j2"
    assert f"pidfile={supervisor.PID}\n" in template.read_text()
    config, pid_file = tmp_path / "one/supervisor/supervisord.conf", tmp_path / "pid"
    supervisor.refuse_other(tmp_path / "two", pid_file)
    sleep = [sys.executable, "-c", "import time; time.sleep(60)", supervisor.MODULE, "--nodaemon", "-c", str(config)]
    with subprocess.Popen(sleep) as process:
        pid_file.write_text(f"{process.pid}\n")
        try:
            for _ in polls(10, 0.01):  # the kernel shows its command a moment after Popen returns
                if supervisor.running_config(pid_file):
                    break
            supervisor.refuse_other(tmp_path / "one", pid_file)
            expected = f"got {tmp_path}/two, expected {tmp_path}/one, from which this machine's lab runs"
            with pytest.raises(LabError, match=expected):
                supervisor.refuse_other(tmp_path / "two", pid_file)
        finally:
            process.kill()
    supervisor.refuse_other(tmp_path / "two", pid_file)


PARTNER = """
import pathlib, signal, sys, time

folder, own, other = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def end(*_):
    (folder / f"{own}.asked").touch()
    while not (folder / f"{other}.asked").exists():
        time.sleep(0.01)
    (folder / f"{own}.ended").touch()
    sys.exit()

signal.signal(signal.SIGTERM, end)
(folder / f"{own}.ready").touch()
time.sleep(600)
"""


def test_changed_programs_end_at_the_same_time_while_new_ones_start(socket: Path, tmp_path: Path) -> None:
    (tmp_path / "partner.py").write_text(PARTNER)
    before = (tmp_path / "conf").read_text()

    def partners(stopwait_s: int) -> str:
        lines = [
            f"[program:{own}]\ncommand = {sys.executable} {tmp_path}/partner.py {tmp_path} {own} {other}\n"
            f"stopwaitsecs = {stopwait_s}\n"
            for own, other in (("left", "right"), ("right", "left"))
        ]
        return "".join(lines)

    (tmp_path / "conf").write_text(before + partners(8))
    assert sorted(supervisor.apply(socket)["added"]) == ["left", "right"]
    assert any(len(list(tmp_path.glob("*.ready"))) == 2 for _ in polls(30, 0.05))
    (tmp_path / "conf").write_text(before + partners(9) + "[program:new]\ncommand = sleep 600\n")
    result = supervisor.apply(socket)
    assert (sorted(result["changed"]), result["added"]) == (["left", "right"], ["new"])
    assert {path.name for path in tmp_path.glob("*.ended")} == {"left.ended", "right.ended"}, "one waited to be killed"
    (tmp_path / "conf").write_text(before)
    assert sorted(supervisor.apply(socket)["removed"]) == ["left", "new", "right"]
    assert [info["name"] for info in supervisor.connect(socket).getAllProcessInfo()] == ["sleeper"]
