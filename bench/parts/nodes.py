"""How time and memory of a site's commands grow with its nodes, ten pods on each: 10, 100 and 1,000 simulated nodes.

`gangplank status`, `preflight`, `why` of a gang that waits, and `fit` of one that would start, each as a user runs it.
Their floor is kubectl, which reads all nodes and pods as text. And the playbooks of the lab and of its site, where
nothing has to change. Memory is that of the largest process.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.figures import Beside, figure
from bench.gangs.jobs import described, template, volcano_job
from bench.gangs.place import HOME, LIMIT_S, POD_GROUPS, VOLCANO_JOBS
from bench.gangs.site import prepared
from bench.gangs.start import started
from bench.growth import alone, grown, of_programs
from bench.part import ROOT, BenchError, Lab, Part, playbook, run, shown
from gangplank.errors import Problem
from gangplank.k8s.conditions import has_condition
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bench.figures import Figure
    from bench.growth import Cost
    from bench.part import Setting
    from gangplank.cluster.client import Kube

PART = Part("How the time of a site's commands grows with its nodes", 18, lab=Lab.UP, usual=False, builds=("kwok",))
SIZES = (10, 100, 1000)
GANG = 100  # pods of each gang that runs; there is one for every ten nodes
ROUNDS = 3
PLAYBOOKS = {"site": "playbooks/site.yml", "lab": "playbooks/lab.yml"}
READ = ("/api/v1/nodes", "/api/v1/pods")
WAITS, LARGE_CPU = "waits", "17"  # a job whose pods no node has room for


class Command(NamedTuple):
    """A command of gangplank, what it may answer, and a word of its answer."""

    words: tuple[str, ...]
    statuses: tuple[int, ...]
    word: str


def commands(job: Path) -> dict[str, Command]:
    """What is asked about the cluster; the file describes a job that would start."""
    return {
        "status": Command(("status",), (0,), "NODE"),
        # without Helm on the path, one of its checks fails: all others are done too
        "preflight": Command(("preflight", "--components=volcano,storage"), (0, 1), "room"),
        "why": Command(("why", WAITS, f"--namespace={HOME}"), (0, 6), WAITS),
        "fit": Command(("fit", str(job)), (0,), "yes"),
    }


def answered(command: Command, kubeconfig: str, before: Sequence[str] = ()) -> tuple[float, str]:
    """Seconds that a command takes, and its answer; with words that stand before it."""
    line = [*before, sys.executable, "-m", "gangplank", *command.words, f"--kubeconfig={kubeconfig}"]
    begin = time.monotonic()
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begin
    if done.returncode not in command.statuses or command.word not in done.stdout:
        got = f"exit status {done.returncode} and {done.stdout[-500:]}{done.stderr[-500:]}"
        expected = f"{' or '.join(map(str, command.statuses))}, and an answer with {command.word}"
        raise BenchError(str(Problem(f"gangplank {command.words[0]}", got, expected)))
    return seconds, done.stdout


def again(name: str, before: Sequence[str] = ()) -> tuple[float, list[str]]:
    """Seconds of one more run of a playbook, and what it changed; with words that stand before the command."""
    begin = time.monotonic()
    text = playbook(PLAYBOOKS[name], before=before)
    return time.monotonic() - begin, changed(text)


def changed(text: str) -> list[str]:
    r"""The tasks of a playbook that changed something, one for each host.

    >>> changed("TASK [volcano : Release] ***\nchanged: [a] => (item=1)\nchanged: [a] => (item=2)\nok: [b]\n")
    ['volcano : Release']
    """
    parts = re.split(r"^(?:TASK|RUNNING HANDLER) \[(.*)\] \*+$", text, flags=re.MULTILINE)
    tasks = zip(parts[1::2], parts[2::2], strict=True)
    return [name for name, lines in tasks for _ in {*re.findall(r"^changed: \[(.*?)\]", lines, re.MULTILINE)}]


def read_s(kubeconfig: str) -> float:
    """The floor: seconds of kubectl."""
    kubectl = shown("bin.kubernetes") / "kubectl"
    begin = time.monotonic()
    for path in READ:
        run(kubectl, f"--kubeconfig={kubeconfig}", "get", "--raw", path)
    return time.monotonic() - begin


def filled(kube: Kube, nodes: int) -> None:
    """Gangs run on the nodes, and one more has been looked at and waits."""
    started(kube, VOLCANO_JOBS, (nodes // 10, GANG), volcano_job)
    kube.call("POST", VOLCANO_JOBS, template(WAITS, 4, "volcano", LARGE_CPU))
    for _ in polls(LIMIT_S, 0.5):
        groups = kube.call("GET", POD_GROUPS)["items"]
        own = [group for group in groups if group["metadata"]["name"].startswith(WAITS)]
        if any(has_condition(group, "Unschedulable") for group in own):
            return
    raise BenchError(late(f"job {WAITS}", "no word of the scheduler", "that it is unschedulable", LIMIT_S))


def measure(setting: Setting) -> Iterator[Figure]:
    """Each command in turns, on more and more nodes."""
    job = setting.folder / "fits.json"
    job.write_text(json.dumps(described("fits", 10, "volcano")))
    every: dict[str, Callable[[Sequence[str]], tuple[float, object]]] = {
        name: functools.partial(answered, one, setting.kubeconfig) for name, one in commands(job).items()
    }
    every |= {name: functools.partial(again, name) for name in PLAYBOOKS}
    rounds: dict[str, dict[int, list[Cost]]] = {name: {size: [] for size in SIZES} for name in every}
    changes: dict[str, list[float]] = {name: [] for name in PLAYBOOKS}
    floors: dict[int, Beside] = {}
    for size in SIZES:
        with prepared(setting, nodes=size) as volcano:
            filled(volcano.kube, size)
            for name, counts in changes.items():
                tasks = again(name)[1]
                if tasks:
                    setting.say(f"{size} nodes, a second run of {PLAYBOOKS[name]} changed {', '.join(tasks)}")
                counts.append(len(tasks))
            bare = []
            for number in range(ROUNDS):
                for name, work in every.items():
                    rounds[name][size].append(alone(functools.partial(of_programs, work), size))
                bare.append(read_s(setting.kubeconfig))
                now = (f"{name} {costs[size][-1][0]:.2f} s" for name, costs in rounds.items())
                setting.say(f"{size} nodes, round {number + 1}: {', '.join(now)}")
            floors[size] = Beside.of("kubectl reads nodes and pods", bare)
    for name, costs in rounds.items():
        if name in PLAYBOOKS:
            yield from grown(f"nodes.{name}", f"nodes, {PLAYBOOKS[name]}, second run", costs)
        else:
            yield from grown(f"nodes.{name}", f"nodes, gangplank {name}", costs, floors)
    for name, counts in changes.items():
        title = f"changes of a second run of {PLAYBOOKS[name]}"
        yield figure(f"nodes.{name}.changes", title, "changes", counts, goal=0)
