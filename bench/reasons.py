"""Why a goal is missed, as far as it is known: what was measured, and what was tried."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.figures import Figure

# By the ids of figures. The first pattern counts.
REASONS = {
    "gangs.100x10.[br]*": (
        "Both cores are busy, 1 % idle. Each pod takes 6.0 requests where the bare client sends 3.0: Volcano asks for"
        " the job's ConfigMap at each sync, and writes events and the state of jobs and of PodGroups. Of ten other"
        " settings in the part `tried`, none saves more than an eighth; the roles' own values differ by as much from"
        " day to day"
    ),
    "gangs.10x100.[br]*": (
        "Both cores are busy, 2 % idle. Each pod takes 4.1 requests where the bare client sends 3.0, and Volcano's own"
        " programs and the simulated nodes take CPU time that the floor does not have"
    ),
    "nodes.site.changes": (
        "One of three runs repaired the mark of a Helm revision that the bench itself had left out; corrected since"
    ),
    "evidence.*": (
        "A difference of 1 % between two runs of half a minute is about their spread, which crosses the goal: in CPU"
        " time, two equal runs differ by as much"
    ),
    "faults.*.indexed": (
        "Kubernetes' Job controller waits 10 s before it replaces a pod that is gone, a constant of its code; the floor"
        " does not have it. Volcano and the other back-ends do not wait"
    ),
    "lab.ready": (
        "Probably the images and mounts of each node, which come before its programs: not measured by themselves. The"
        " shell loop has no certificates, users or proxies to make"
    ),
    "lab.second": (
        "Ansible starts a process for each task: some hundred tasks of a tenth of a second, whatever they find"
    ),
    "operator.install": (
        "Helm asks each 2 s whether all is ready, and kubectl watches; without `--wait` a role could not say what fails"
    ),
    "start.volcano": (
        "From the command to the last binding it takes 1.7 s, a bare pod 0.1 s: Volcano's controller makes the pods,"
        " and its scheduler looks once a second. Everything later is within 0.5 s of the floor"
    ),
    "start.pytorchjob": (
        "Its workers have an init container that waits for the master's name, limited to a tenth of a core by upstream."
        " Half a core was tried: no gain beyond the spread"
    ),
    "trainer.step.digits.bound": (
        "A step has the trainer's own millisecond: the norm of the gradient, and losses of all ranks in the same"
        " exchange. Computing and a bare exchange take 6.2 ms, a plain script with DDP 7.4 ms, the trainer 8.2 ms"
    ),
    "trainer.step.busy.*": "Within the spread. A plain script with DDP takes 329 ms (284 to 364), the trainer 341 ms",
    "trainer.save.digits.stall": (
        "A copy of 55 kB takes a twentieth of a millisecond; a save also takes the state of random numbers and hands"
        " over to a thread"
    ),
    "trainer.save.large.stall": "Probably Python's lock, which the writing thread takes in the next step: not measured",
}


def reason(one: Figure) -> str:
    """Why a figure misses its goal; empty if it is not known, as where anything happened that must not."""
    slow = one.goal != 0 or one.id in REASONS
    return next((text for pattern, text in REASONS.items() if slow and fnmatchcase(one.id, pattern)), "")
