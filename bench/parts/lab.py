"""Time from nothing to a finished training on warm caches, compared with a bare shell loop.

The peer starts the same programs with the same files, in order, each as soon as the previous one answers. It creates no
certificate, no namespace and no file, so it is the floor: the least time that any tool needs.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from bench.figures import Beside, figure, merged
from bench.part import INVENTORY, ROOT, STATE, BenchError, Lab, Part
from lab.host.cgroups import SYSTEM
from lab.host.processes import kill_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("From nothing running to a finished training", minutes=4, lab=Lab.DOWN)
ROUNDS = 3
NODE_PROGRAMS = ("containerd-", "kubelet-", "kube-proxy-")  # of each node, in the order in which they start
LIKE_FLOOR, AGAIN = 1.25, 0.2
FLOOR_S = 90  # how long the bare shell loop may take
PLAYBOOKS = ["playbooks/lab.yml", "playbooks/site.yml", "playbooks/train.yml", "-e", "@jobs/digits.yml"]
# Printed by Ansible when the step before is done; tests/repository/test_playbooks.py compares them with the roles.
MARKS = {
    "TASK [lab_cluster : Network |": "nodes Ready",
    "TASK [storage : Validate |": "Volcano accepts jobs",
    "TASK [training_job : Submit |": "job submitted",
}


def playbook(*arguments: str) -> tuple[dict[str, float], list[str]]:
    """Run ansible-playbook; return the seconds until each mark and until the end, and the printed lines."""
    started, marks, lines = time.monotonic(), {}, []
    command = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", INVENTORY, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            lines.append(line)
            for mark, name in MARKS.items():
                if line.startswith(mark) and name not in marks:
                    marks[name] = time.monotonic() - started
    if process.returncode:
        raise BenchError("".join(["ansible-playbook: got an error, expected none. Fix: see\n", *lines[-40:]]))
    return marks | {"finished": time.monotonic() - started}, lines


def commands() -> dict[str, str]:
    """The lab's programs and their command lines, from supervisord's files."""
    command_lines = {}
    for path in sorted((STATE / "supervisor").glob("*.conf")):
        parser = configparser.RawConfigParser()
        parser.read(path)
        for section in parser.sections():
            if section.startswith("program:"):
                command_lines[section.removeprefix("program:")] = parser.get(section, "command").replace("%%", "%")
    return command_lines


def bare_loop(script: str, environment: Mapping[str, str], limit_s: float) -> tuple[int, float]:
    """Run a shell script; its exit status and seconds. What it leaves running is killed, and nothing else."""
    started = time.monotonic()
    with subprocess.Popen(
        ["sh", "-c", script], env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    ) as shell:
        try:
            return shell.wait(limit_s), time.monotonic() - started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)


FLOOR = """
set -eu
api() { "$KUBECTL" --kubeconfig "$ADMIN" get --raw "$1" >/dev/null 2>&1; }
start() { name=$1; shift; "$@" >"$LOGS/$name.log" 2>&1 & }
@STARTS@
"""


def floor() -> float:
    """Seconds of the bare shell loop from its first program to both nodes Ready."""
    kill_members(SYSTEM)  # supervisord and all its programs; the namespaces stay
    for folder in (STATE / "etcd", *(STATE / "nodes").glob("*/kubelet")):
        empty(folder)
    lines = commands()
    order = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    names = [*order, *(name for program in NODE_PROGRAMS for name in sorted(lines) if name.startswith(program))]
    return bare_s(steps(lines, names), 'get nodes --no-headers 2>/dev/null | grep -c " Ready "', "2")


def empty(folder: Path) -> None:
    """Remove what is in a folder of a program that has ended; what is still mounted there stays."""
    for path in folder.iterdir():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def steps(lines: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """The lines of a shell script that starts programs in this order, each as soon as it can work.

    >>> steps({"kubelet-node-1": "kubelet --a"}, ["kubelet-node-1"])
    ['start kubelet-node-1 kubelet --a']
    """
    script = []
    for name in names:
        script.append(f"start {name} {lines[name]}")
        if name == "kube-apiserver":
            script.append("until api /readyz; do sleep 0.1; done")
        if name.startswith("containerd-"):  # a kubelet without a runtime exits
            inside = lines[name].partition(" -- ")[0]  # the words that enter the node
            client = re.findall(r"\S+/(?=containerd -c )", lines[name])[-1] + "ctr"
            version = f"{inside} -- {client} version"
            script.append(f"until {version} >/dev/null 2>&1; do sleep 0.1; done")
    return script


def bare_s(lines: Iterable[str], asked: str, expected: str) -> float:
    """Seconds of these lines of a shell script, and then until kubectl answers what is expected."""
    logs = STATE / "floor"
    logs.mkdir(exist_ok=True)
    until = f'until [ "$("$KUBECTL" --kubeconfig "$ADMIN" {asked})" = {expected} ]; do sleep 0.1; done'
    parts = re.search(r"(\S+/parts)/kubernetes-\S+?/bin", (STATE / "parts.json").read_text().replace('"', " "))
    binaries = parts.group(0) if parts else ""
    env = os.environ | {"KUBECTL": f"{binaries}/kubectl", "ADMIN": f"{STATE}/admin.kubeconfig", "LOGS": str(logs)}
    script = FLOOR.replace("@STARTS@", "\n".join([*lines, until]))
    status, took = bare_loop(script, env, FLOOR_S)
    if status:
        raise BenchError(f"bare shell loop: got exit status {status}, expected 0. Fix: see {logs}")
    return took


def once() -> dict[str, float]:
    """A round: from nothing to trained, the same again, and the floor."""
    playbook("playbooks/lab-down.yml")
    try:
        first, _ = playbook(*PLAYBOOKS)
        second, lines = playbook(*PLAYBOOKS)
        bare = floor()
    finally:
        playbook("playbooks/lab-down.yml")
    changed = sum(int(count) for count in re.findall(r"changed=(\d+)", "".join(lines)))
    return first | {"second": second["finished"], "bare": bare, "changed": changed}


def measure(setting: Setting) -> Iterator[Figure]:
    """The seconds until each mark."""
    playbook("playbooks/lab.yml", "--tags=parts")  # the caches are warm from now on
    rounds = []
    for number in range(ROUNDS):
        rounds.append(once())
        setting.say(
            f"round {number + 1} of {ROUNDS}: " + ", ".join(f"{key} {rounds[-1][key]:.1f}" for key in rounds[-1])
        )
    values = merged(rounds)
    bare = Beside.of("a bare shell loop", values["bare"])
    again = Beside.of("first run", values["finished"])
    yield figure("lab.ready", "nothing running to both nodes Ready", "s", values["nodes Ready"], floor=bare,
                 goal=LIKE_FLOOR * bare.value, why=f"{LIKE_FLOOR} x the floor")  # fmt: skip
    yield figure("lab.accepts", "nothing running to Volcano accepts jobs", "s", values["Volcano accepts jobs"], goal=45)
    yield figure("lab.trained", "nothing running to training finished", "s", values["finished"], goal=150)
    yield figure("lab.second", "second run", "s", values["second"], peer=again, goal=AGAIN * again.value,
                 why=f"{AGAIN} of the first run")  # fmt: skip
    yield figure("lab.changes", "changes of the second run", "changes", values["changed"], goal=0)
