"""How time and memory of a site's commands grow with its nodes, ten pods on each: 10, 100 and 1,000 simulated nodes.

`gangplank status`, `preflight`, `why` of a gang that waits, and `fit` of one that would start, each as a user runs it;
and playbooks/site.yml where nothing has to change. Memory is that of the largest process.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.figures import figure
from bench.gangs.jobs import described, template, volcano_job
from bench.gangs.place import HOME, LIMIT_S, POD_GROUPS, VOLCANO_JOBS
from bench.gangs.site import prepared
from bench.gangs.start import started
from bench.growth import alone, grown, of_programs
from bench.part import ROOT, BenchError, Lab, Part, playbook
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

PART = Part("How the time of a site's commands grows with its nodes", 15, lab=Lab.UP, usual=False, builds=("kwok",))
SIZES = (10, 100, 1000)
GANG = 100  # pods of each gang that runs; there is one for every ten nodes
ROUNDS = 3
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


def installed(before: Sequence[str] = ()) -> tuple[float, float]:
    """Seconds of one more run of playbooks/site.yml, and what it changed; with words that stand before the command."""
    begin = time.monotonic()
    text = playbook("playbooks/site.yml", before=before)
    return time.monotonic() - begin, sum(map(float, re.findall(r"changed=(\d+)", text)))


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
    every["site"] = installed
    rounds: dict[str, dict[int, list[Cost]]] = {name: {size: [] for size in SIZES} for name in every}
    changes = []
    for size in SIZES:
        with prepared(setting, nodes=size) as volcano:
            filled(volcano.kube, size)
            changes.append(installed()[1])
            for number in range(ROUNDS):
                for name, work in every.items():
                    rounds[name][size].append(alone(functools.partial(of_programs, work), size))
                now = (f"{name} {costs[size][-1][0]:.2f} s" for name, costs in rounds.items())
                setting.say(f"{size} nodes, round {number + 1}: {', '.join(now)}")
    for name, costs in rounds.items():
        what = "playbooks/site.yml, second run" if name == "site" else f"gangplank {name}"
        yield from grown(f"nodes.{name}", f"nodes, {what}", costs)
    yield figure("nodes.site.changes", "changes of a second run of playbooks/site.yml", "changes", changes, goal=0)
