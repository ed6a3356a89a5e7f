"""What the lab asks of its supervisord: a real one, with a program of its own."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.wait import polls
from lab.host import supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    with pytest.raises(Exception, match="BAD_NAME"):
        supervisor.apply(socket)
