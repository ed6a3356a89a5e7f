"""D4: through a proxy that cuts, delays, truncates and refuses, commands and playbooks of a real cluster end right.

No line of a log is lost or doubled, and nothing is created twice. The jobs are real; only the way to the server is bad.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cluster.client import Kube
from tests.cluster.conftest import INVENTORY, ROOT
from tests.cluster.differential.live import opened
from tests.support.api_faults import Proxy
from tests.support.sweeps import FULL

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = range(8 if FULL else 1)
SHARE = 0.3  # of the requests have a fault
LINES = 4000  # of each rank
LIMIT_S = 1200
# Every line once, some of them long, some in bytes that are not text; printed over some seconds, without torch
SCRIPT = f"""
import os, sys, time
out = sys.stdout.buffer
for number in range({LINES}):
    tail = b"x" * 20_000 if number % 500 == 7 else b""
    if number % 50 == 3:
        tail = bytes([number % 256]).replace(b"\\n", b"")
    out.write(b"line %d of %s %b\\n" % (number, os.environ["RANK"].encode(), tail))
    if number % 400 == 0:
        out.flush()
        time.sleep(1)
out.flush()
if os.environ["RANK"] == "0":
    time.sleep(30)  # with rank 0 the job ends, and Volcano removes the other pods: their logs must have been read
"""


@pytest.fixture(scope="module")
def namespace(kubeconfig: str) -> Iterator[str]:
    """A namespace for these jobs."""
    with opened(kubeconfig, "roads") as cluster:
        yield cluster.namespace


class Road:
    """Commands through the proxy."""

    def __init__(self, proxy: Proxy, folder: Path, namespace: str) -> None:
        self.proxy, self.folder, self.namespace = proxy, folder, namespace
        self.config = proxy.client_config(folder)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command gangplank; it must succeed."""
        line = [str(ROOT / ".venv/bin/gangplank"), *words, "-n", self.namespace, "--kubeconfig", self.config]
        done = subprocess.run(line, cwd=self.folder, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert done.returncode == 0, f"{words}: {done.stderr}\n{done.stdout[-2000:]}\n{self.story()}"
        return done

    def playbook(self, *words: str) -> str:
        """A playbook; it must succeed."""
        values = {"site_environment": {"K8S_AUTH_KUBECONFIG": self.config, "PATH": os.environ["PATH"]},
                  "training_job_kubeconfig": self.config}  # fmt: skip
        line = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(INVENTORY), *words, "-e", json.dumps(values)]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:] + self.story()
        return done.stdout

    def story(self) -> str:
        """The last requests with a fault, for a failure's message."""
        last = [request for request in self.proxy.requests if request.fault][-12:]
        return "\n".join(f"{one.method} {one.where}: {one.fault} ({one.status})" for one in last)

    def created(self) -> Counter[str]:
        """How many objects were created, by the last part of their collection's path."""
        return Counter(one.created.rpartition("/")[2] for one in self.proxy.requests if one.created)


@pytest.fixture(params=SEEDS)
def road(kubeconfig: str, namespace: str, request: Any, tmp_path: Path) -> Iterator[Road]:
    """A proxy with a seed of its own."""
    with Proxy(Path(kubeconfig), request.param, SHARE) as proxy:
        yield Road(proxy, tmp_path, namespace)


def by_rank(output: str) -> dict[str, list[str]]:
    """The numbers of the lines of each rank, in their order."""
    numbers: dict[str, list[str]] = {"0": [], "1": []}
    for line in output.splitlines():
        if line.startswith("[rank "):
            words = line.split()
            assert words[2] == "line", line[:100]
            numbers[words[1].rstrip("]")].append(words[3])
    return numbers


def test_d4_a_run_and_its_logs_have_every_line_once(road: Road) -> None:
    (road.folder / "count.py").write_text(SCRIPT)
    name = f"count-{road.proxy.seed}"
    every = {rank: [str(number) for number in range(LINES)] for rank in "01"}
    done = road.command("run", "count.py", "--workers", "1", "--name", name)
    assert by_rank(done.stdout) == every, done.stdout[:2000] + road.story()
    for words in (["--rank", "0"], ["--rank", "0", "-f"]):
        assert by_rank(road.command("logs", name, *words).stdout)["0"] == every["0"], road.story()
    assert road.created() == {"jobs": 1}, "and the script's ConfigMap is applied"
    assert f"{name} removed" in road.command("delete", name).stdout
    kube = Kube(str(road.proxy.kubeconfig))
    assert kube.find(road.namespace, name, [("batch.volcano.sh/v1alpha1", "Job")]) is None
    assert len(road.proxy.faults()) > 3, road.proxy.faults()


def test_d4_a_training_is_submitted_once_followed_and_proven(road: Road) -> None:
    job = {**yaml.safe_load((ROOT / "jobs/linear.yml").read_text())["training_job"], "namespace": road.namespace,
           "name": f"linear-{road.proxy.seed}"}  # fmt: skip
    described = road.folder / "linear.yml"
    described.write_text(yaml.safe_dump({"training_job": job}))
    play = ["playbooks/train.yml", "-e", f"@{described}", "-e", f"training_job_report_folder={road.folder}"]
    assert "PROVEN: " in road.playbook(*play)
    assert road.created()["jobs"] == 1
    assert "changed=0" in road.playbook(*play), "the second run finds what the first one did"
    assert "PROVEN: " in road.command("proof", job["name"]).stdout
    assert road.created()["jobs"] == 1
    assert f"{job['name']} removed" in road.command("delete", job["name"]).stdout
    submitted = road.command("submit", str(described))
    assert f"{job['name']} created" in submitted.stdout
    assert road.created()["jobs"] == 2
    assert f"{job['name']} in {road.namespace}" in road.command("status", job["name"]).stdout
    assert f"{job['name']} removed" in road.command("delete", job["name"]).stdout
    assert Kube(str(road.proxy.kubeconfig)).items("v1", "Pod", road.namespace) == [], "it waits for the pods"
    assert list(road.proxy.struck("POST")) + list(road.proxy.struck("PATCH")), "a write was struck"
