"""D4: a job whose pods may not be created soon says so, whichever controller was refused."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from gangplank.backends import submitted_kinds
from gangplank.cluster.client import Kube
from gangplank.cluster.follow import JobWatch, follow
from tests.cluster.conftest import ROOT, STATE
from tests.cluster.faults import BACKENDS, TRAINER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.conftest import Lab

NAMESPACE, LIMITS = "limited", "small"
SOON_S = 90
LONG_S = 200  # longer than Volcano's controller tries by default
# Its default limit is below what the jobs ask for, and they name no limit: no pod of theirs is valid.
RANGE = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": LIMITS, "namespace": NAMESPACE},
         "spec": {"limits": [{"type": "Container", "default": {"memory": "64Mi"}}]}}  # fmt: skip
REFUSED = re.compile(r"FailedCreate.*: Invalid value: \"256Mi\": must be less than or equal to memory limit of 64Mi")


@pytest.fixture(scope="module")
def limited(lab: Lab) -> Iterator[Lab]:
    """The lab with a namespace whose limits are small."""
    lab.playbook("playbooks/site.yml")
    lab.kubectl("create", "namespace", NAMESPACE)
    lab.kubectl("create", "-f", "-", stdin=json.dumps(RANGE))
    yield lab
    lab.kubectl("delete", "namespace", NAMESPACE, "--timeout=600s")


def gangplank(*words: str) -> str:
    command = [str(ROOT / ".venv/bin/gangplank"), *words, f"--kubeconfig={STATE}/admin.kubeconfig"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout


def submit(folder: Path, name: str, backend: str, **change: object) -> None:
    """Submit a job above the default limit."""
    job = {"name": name, "namespace": NAMESPACE, "image": TRAINER, "workers": 1, "backend": backend,
           "resources": {"cpu": "50m", "memory": "256Mi"}, **change}  # fmt: skip
    described = folder / "job.yml"
    described.write_text(yaml.safe_dump({"training_job": job}))
    gangplank("submit", str(described))


@pytest.mark.parametrize("backend", BACKENDS)
def test_d4_a_job_above_the_default_limit_says_so_while_it_has_no_pod(
    limited: Lab, tmp_path: Path, backend: str
) -> None:
    name = f"large-{backend}"
    submit(tmp_path, name, backend, script="/opt/gangplank/a.py")
    limited.wait("the reason", lambda: REFUSED.search(gangplank("status", name, "-n", NAMESPACE)), SOON_S)
    kube = Kube(f"{STATE}/admin.kubeconfig")
    live = next(item for item in kube.listed(NAMESPACE, submitted_kinds()) if item["metadata"]["name"] == name)
    said: list[str] = []
    assert follow(JobWatch(live, kube), said.append, 3) is None
    assert REFUSED.search(said[0]), said


def test_d4_a_job_on_volcano_waits_for_its_pods_as_long_as_they_are_refused(limited: Lab, tmp_path: Path) -> None:
    name = "waits"
    submit(tmp_path, name, "volcano", command=["true"])

    def phase() -> str:
        return str(limited.get("jobs.batch.volcano.sh", name, "-n", NAMESPACE)["status"]["state"]["phase"])

    limited.wait("the reason", lambda: REFUSED.search(gangplank("status", name, "-n", NAMESPACE)), SOON_S)
    time.sleep(LONG_S)
    assert phase() == "Pending"
    limited.kubectl("delete", "limitrange", LIMITS, "-n", NAMESPACE)
    limited.wait("its end", lambda: phase() == "Completed", 2 * LONG_S)
