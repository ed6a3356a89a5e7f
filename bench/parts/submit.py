"""What submitting costs before the controllers begin, all as dry runs of one job, beside one `kubectl create`."""

from __future__ import annotations

import json
import re
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from bench.figures import Beside, alternate, figure
from bench.part import INVENTORY, Lab, Part, run, shown
from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("Submitting a job, as dry runs", minutes=1, lab=Lab.UP)
ROUNDS = 5
GOAL = 2  # times kubectl create
JOB = {"name": "bench", "image": "img", "script": "/a.py"}


def wall_s(*words: object) -> float:
    """Seconds that a command takes."""
    begin = time.perf_counter()
    run(*words)
    return time.perf_counter() - begin


def role_s(kubeconfig: str, job: str) -> float:
    """Seconds that the role's tasks take which look at the cluster and submit, in check mode."""
    command = (sys.executable, "-m", "ansible", "playbook", "-i", INVENTORY, "playbooks/train.yml", "--check")
    variables = ("-e", f"@{job}", "-e", f"training_job_kubeconfig={kubeconfig}")
    output = run(*command, *variables, ANSIBLE_CALLBACKS_ENABLED="ansible.posix.profile_tasks")
    return sum(float(seconds) for seconds in re.findall(r"Submit \| .* (\d+\.\d+)s$", output, re.MULTILINE))


def measure(setting: Setting) -> Iterator[Figure]:
    """The command and the role's tasks."""
    manifest, described = setting.folder / "manifest.json", setting.folder / "job.json"
    manifest.write_text(json.dumps(BACKENDS["volcano"].manifests(parse_job(JOB))[-1]))
    described.write_text(json.dumps({"training_job": JOB}))
    access = f"--kubeconfig={setting.kubeconfig}"
    kubectl = shown("bin.kubernetes") / "kubectl"
    command = (sys.executable, "-m", "gangplank", "submit", described, "--dry-run", access)
    values = alternate(
        ROUNDS,
        {
            "kubectl": partial(wall_s, kubectl, access, "create", "--dry-run=server", "-f", manifest),
            "command": partial(wall_s, *command),
            "role": partial(role_s, setting.kubeconfig, str(described)),
        },
        setting.say,
    )
    peer = Beside.of("kubectl create", values["kubectl"])
    goal = GOAL * peer.value
    yield figure("submit.command", "gangplank submit", "s", values["command"], peer=peer)
    yield figure("submit.role", "tasks of training_job that submit", "s", values["role"], peer=peer, goal=goal,
                 why=f"{GOAL} x kubectl create")  # fmt: skip
