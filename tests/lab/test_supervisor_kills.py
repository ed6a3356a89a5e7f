"""D1: a run that starts or changes the lab's programs, killed after each of its steps: the next one puts it right.

A step is a file of the lab that is written or removed, a process that is ended, the start of supervisord, or a change
that it is asked for. A sample of the steps; the sweep `host-kills` tries all of them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import random
import signal
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gangplank.wait import polls
from lab.host import cgroups
from lab.host.processes import kill_members
from tests.lab.test_supervisor import DEADLINE_S, START, configure, ensure, processes
from tests.support.sweeps import sweeping

SEED, SAMPLE = 20261125, 2
KILLED = """
import atexit, os, signal, subprocess, sys
import supervisor.xmlrpc

folder, limit, count = sys.argv[4], int(sys.argv[5]), 0

def take():
    global count
    count += 1
    if count == limit:
        signal.raise_signal(signal.SIGKILL)

def hook(event, arguments):
    writes = event == "os.remove" or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    if event == "os.kill" or (writes and str(arguments[0]).startswith(folder)):
        take()

class Popen(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        take()

class Transport(supervisor.xmlrpc.SupervisorTransport):
    def request(self, host, handler, body, *words, **options):
        answer = super().request(host, handler, body, *words, **options)
        if b"<methodName>supervisor.get" not in body:
            take()
        return answer

subprocess.Popen, supervisor.xmlrpc.SupervisorTransport = Popen, Transport
atexit.register(lambda: print(count))
sys.addaudithook(hook)
"""
OLD = {"kept": "sleep 901", "changed": "sleep 902", "removed": "sleep 903"}
NEW = {"kept": "sleep 901", "changed": "sleep 904", "added": "sleep 905"}
SCENES = {"start": {}, "change": OLD, "heal": NEW}  # which programs run before


@contextlib.contextmanager
def own_cgroup() -> Any:
    """A name instead of `gangplank`; what runs there is ended, and the cgroup removed."""
    before, cgroups.SLICE = cgroups.SLICE, f"gangplank-test-{os.getpid()}"
    try:
        yield cgroups.SLICE
    finally:
        kill_members(cgroups.SYSTEM)
        cgroups.remove_cgroup()
        cgroups.SLICE = before


def killed(scene: str, limit: int) -> dict[str, Any]:
    """A run that is killed at a step, 0 for none, and what the runs after it came to."""
    with own_cgroup() as name, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = (name, folder / "supervisord.conf", folder / "socket")
        if before := SCENES[scene]:
            configure(folder, **before)
            assert ensure(START, *words).returncode == 0
            wait_for(folder, before)
        if scene == "heal":
            os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
        configure(folder, **NEW)
        first = ensure(KILLED + START, *words, place, str(limit))
        second = ensure(START, *words)
        wait_for(folder, NEW)
        third = ensure(START, *words)
        return {
            "first": first.returncode, "steps": first.stdout.split()[-1:], "second": second.returncode,
            "third": json.loads(third.stdout), "live": live(),
        }  # fmt: skip


def wait_for(folder: Path, programs: dict[str, str]) -> None:
    """Wait until these programs run, as supervisord says."""
    states: dict[str, str] = {}
    for _ in polls(DEADLINE_S, 0.05):
        states = {item["name"].partition("-")[0]: item["statename"] for item in processes(folder / "socket")}
        if states == dict.fromkeys(programs, "RUNNING"):
            return
    pytest.fail(f"they are {states}")


def live() -> list[str]:
    """The command of each process in the cgroup."""
    commands = []
    for pid in cgroups.members(cgroups.SYSTEM):
        with contextlib.suppress(OSError):
            commands.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
    return sorted("supervisord" if "supervisor.supervisord" in command else command for command in commands)


@functools.cache
def steps(scene: str) -> int:
    """How many steps a run takes that nothing kills."""
    report = killed(scene, 0)
    assert report["first"] == 0, report
    return int(report["steps"][0])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A sample of the steps; in the sweep all of them, whose number only a run can say."""
    if sweeping("host-kills"):
        counts = [(scene, steps(scene)) for scene in SCENES]
        cases = [(scene, Fraction(n, all_of)) for scene, all_of in counts for n in range(1, all_of + 1)]
        names = [f"D1 {scene} {share * steps(scene)}" for scene, share in cases]
    else:
        chance = random.Random(SEED)
        cases = [(scene, Fraction(n, 100)) for scene in SCENES for n in sorted(chance.sample(range(1, 101), SAMPLE))]
        names = [f"D1 {scene} at {share * 100} percent" for scene, share in cases]
    metafunc.parametrize(("scene", "share"), cases, ids=names)


def test_d1_a_killed_start_or_change_of_the_labs_programs_converges(scene: str, share: Fraction) -> None:
    report = killed(scene, math.ceil(share * steps(scene)))
    assert report["first"] == -signal.SIGKILL, report
    assert report["second"] == 0, report
    assert report["live"] == sorted([*NEW.values(), "supervisord"]), "each program runs once"
    assert not any(report["third"].values()), report["third"]
