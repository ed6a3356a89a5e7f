"""The lab's supervisord (the PyPI package `supervisor`): started once, controlled through its unix socket."""

from __future__ import annotations

import http.client
import socket as sockets
import subprocess
import sys
import xmlrpc.client
from pathlib import Path
from typing import Any

from gangplank.errors import Problem
from gangplank.wait import late, polls
from lab.errors import LabError
from lab.host.cgroups import SYSTEM, ensure_cgroup, join_cgroup
from lab.host.namespaces import RUN
from lab.host.processes import kill_members

POLL_S = 0.05
DOWN = ("STOPPED", "EXITED", "FATAL", "BACKOFF")  # BACKOFF: it ended at once, and the pauses before it grow
BY_ITSELF = (60, 70)  # supervisor.xmlrpc.Faults ALREADY_STARTED and NOT_RUNNING: it was started, or ended, meanwhile
SPAWN_ERROR = 50  # supervisor.xmlrpc.Faults
ENDED = ("Exited too quickly", "Bad exit code")  # how `spawnerr` begins if the program ran: supervisord tries it again
STILL_RUNNING = 91  # supervisor.xmlrpc.Faults
SEE_LOG = "correct what logs/supervisord.log in the lab's folder reports, then run it again"
ANSWER_S = 15.0  # supervisord starts and reads in milliseconds; to end a program, it waits for stopwaitsecs
FAILURES = (OSError, http.client.HTTPException, xmlrpc.client.Error)  # of a request
END_S = 30  # more than stopwaitsecs, after which supervisord kills a program
OUTPUT = "supervisord.out"  # beside its configuration, from its first start
MODULE = "supervisor.supervisord"
# On a full disk, supervisord would print its error to that disk and end. A log that is too long is replaced later.
START = """
import contextlib, sys
from supervisor import loggers, supervisord

def replace(handler, replaced=loggers.RotatingFileHandler.doRollover):
    with contextlib.suppress(OSError, ValueError):
        if handler.stream.closed:
            handler.stream = open(handler.baseFilename, "ab")
        handler.flush()
        replaced(handler)

loggers.Handler.handleError = lambda handler: None
loggers.RotatingFileHandler.doRollover = replace
supervisord.main(sys.argv[2:])
"""
PID = RUN / "supervisord.pid"  # as supervisord.conf.j2 has it


class Connection(http.client.HTTPConnection):
    """Through a unix socket, with a time limit: a supervisord that is stopped would hold a run forever."""

    def __init__(self, path: Path) -> None:
        """Take the socket's path."""
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        """Open the socket; raises OSError."""
        self.sock = sockets.socket(sockets.AF_UNIX)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(str(self.path))


def connect(socket: Path) -> Any:
    """The XML-RPC interface of the supervisord behind `socket`; each request may raise one of FAILURES."""
    from supervisor.xmlrpc import SupervisorTransport

    transport = SupervisorTransport(None, None, f"unix://{socket}")
    transport._get_connection = lambda: Connection(socket)  # its own has no time limit
    return xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor


def answers(socket: Path) -> bool:
    """Whether a supervisord answers on the socket; a killed one leaves the socket file behind."""
    if not socket.exists():
        return False
    try:
        return bool(connect(socket).getState()["statename"] == "RUNNING")
    except FAILURES:
        return False


def running_config(pid_file: Path) -> Path | None:
    """The configuration of the supervisord that runs, from its command; None if none does."""
    try:
        words = Path(f"/proc/{int(pid_file.read_text())}/cmdline").read_bytes().decode().split("\0")
        own = words[words.index(MODULE) :]
        return Path(own[own.index("-c") + 1])
    except (OSError, ValueError, IndexError):
        return None


def refuse_other(folder: Path, pid_file: Path = PID) -> None:
    """Raise LabError if the lab of this machine runs from another folder: its nodes would be made again, empty."""
    config = running_config(pid_file)
    if config and (other := config.parents[1]).resolve() != folder.resolve():
        down = f"ansible-playbook -i inventories/lab playbooks/lab-down.yml -e lab_cluster_folder={other}"
        fix = f"name that folder, or remove its lab first: {down}"
        expected = f"{other}, from which this machine's lab runs"
        raise LabError(str(Problem("lab_cluster_folder", str(folder), expected, fix)))


def start(config: Path, socket: Path, deadline_s: float = 60.0) -> None:
    """Start supervisord in its cgroup, outside the caller's session and environment; wait until it answers."""
    ensure_cgroup(SYSTEM)
    socket.unlink(missing_ok=True)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    program = [sys.executable, "-c", START, MODULE, "--nodaemon", "-c", str(config)]  # MODULE: `running_config`
    log = config.parent / OUTPUT
    with log.open("wb") as out:
        process = subprocess.Popen(
            program,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=lambda: join_cgroup(SYSTEM),  # noqa: PLW1509  by itself: this process may be killed right now
        )
    for _ in polls(deadline_s, POLL_S):
        if answers(socket):
            return
        if process.poll() is not None:
            break
    lines = " | ".join(log.read_text(errors="replace").strip().splitlines()[-5:])
    state = "none" if process.poll() is None else f"exit status {process.returncode}"
    fix = "correct what its last lines report, then run it again"
    raise LabError(late("supervisord", f"{state} ({lines or 'it printed nothing'})", "an answer", deadline_s, fix))


def _end(server: Any, names: list[str]) -> None:
    """End these programs at once, and have supervisord forget them; raises LabError at the time limit.

    supervisord notices the end of a program at the next request, or after a second: a request that waits costs that.
    """
    for name in names:
        server.stopProcessGroup(name, False)
    remaining = list(names)
    for _ in polls(END_S, POLL_S):
        for name in list(remaining):
            try:
                server.removeProcessGroup(name)
            except xmlrpc.client.Fault as fault:
                if fault.faultCode != STILL_RUNNING:
                    raise
            else:
                remaining.remove(name)
        if not remaining:
            return
    raise LabError(late(f"supervisord, {', '.join(remaining)}", "a program that runs", "its end", END_S, SEE_LOG))


def apply(socket: Path) -> dict[str, list[str]]:
    """Make supervisord follow its files: start new and stopped programs, restart changed ones, end removed ones.

    Raises LabError if it refuses, or ends meanwhile.
    """
    try:
        return _apply(connect(socket))
    except FAILURES as error:
        got = getattr(error, "faultString", error)  # it names the program
        expected = "it to run the programs of supervisor/*.conf in the lab's folder"
        raise LabError(str(Problem("supervisord", str(got), expected, SEE_LOG))) from error


def _apply(server: Any) -> dict[str, list[str]]:
    added, changed, removed = server.reloadConfig()[0]
    for name in added:
        server.addProcessGroup(name)
    _end(server, [*changed, *removed])  # while the new ones start
    for name in changed:
        server.addProcessGroup(name)
    revived = []
    for process in _settled(server):
        if process["statename"] in DOWN and process["name"] not in [*added, *changed]:
            _revive(server, process["name"], process["statename"])
            revived.append(process["name"])
    return {"added": added, "changed": changed, "removed": removed, "revived": revived}


def _settled(server: Any) -> list[dict[str, Any]]:
    """All programs, once none is about to end: what a run has stopped that was killed then would stay so."""
    for _ in polls(END_S, POLL_S):
        processes: list[dict[str, Any]] = server.getAllProcessInfo()
        ending = [process["name"] for process in processes if process["statename"] == "STOPPING"]
        if not ending:
            return processes
    raise LabError(late(f"supervisord, {', '.join(ending)}", "a program that runs", "its end", END_S, SEE_LOG))


def _revive(server: Any, name: str, state: str) -> None:
    """Start a program that does not run; one that ends at once again stays with supervisord, which retries it."""
    try:
        if state == "BACKOFF":  # which counts as running
            server.stopProcess(name)
        server.startProcess(name, False)
    except xmlrpc.client.Fault as fault:
        if fault.faultCode in BY_ITSELF:
            return
        if fault.faultCode != SPAWN_ERROR:
            raise
        error = str(server.getProcessInfo(name)["spawnerr"])
        if error and not error.startswith(ENDED):
            raise xmlrpc.client.Fault(SPAWN_ERROR, f"{name}: {error}") from fault


def start_times(socket: Path, program: str) -> dict[str, float]:
    """When the program of each node was last started, by node, in seconds since 1970; raises LabError.

    The names are those of programs.conf.j2: <program>-<node>.
    """
    try:
        programs = connect(socket).getAllProcessInfo()
    except FAILURES as error:
        problem = Problem(str(socket), str(error), "an answer of the lab's supervisord", "run it again")
        raise LabError(str(problem)) from error
    start = f"{program}-"
    names = [(item["name"], float(item["start"])) for item in programs]
    return {name.removeprefix(start): when for name, when in names if name.startswith(start)}


def healed(revived: list[str], *, lost: bool) -> list[str]:
    """What to say of programs that did not run; `lost` if supervisord itself did not either, though it had before.

    >>> healed(["etcd"], lost=False)
    ['etcd did not run; it is started again']
    >>> healed([], lost=True)
    ['no supervisord answered; it is started again with its programs']
    """
    lines = ["no supervisord answered; it is started again with its programs"] if lost else []
    return [*lines, *(f"{name} did not run; it is started again" for name in revived)]


def ensure(config: Path, socket: Path) -> tuple[bool, dict[str, list[str]]]:
    """Start supervisord if none answers, and make it follow its files; whether it was started, and what `apply` did."""
    running = answers(socket) or answers(socket)  # a machine can be busy for once: all programs would be killed
    if not running:
        # Programs of a killed supervisord still hold ports and databases; containers' shims may stay.
        kill_members(SYSTEM)
        start(config, socket)
    return not running, apply(socket)
