"""A training job on the lab that things happen to: its pods' processes, what rank 0 says, how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import HTTPError

from gangplank.backends import BACKENDS
from gangplank.cluster import evidence
from gangplank.cluster.client import Kube, path
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.proof import expected
from tests.cluster.conftest import ROOT, STATE

if TYPE_CHECKING:
    import signal

    from tests.cluster.conftest import Lab

Json = dict[str, Any]
NAMESPACE = "faults"
KIND = ("batch.volcano.sh/v1alpha1", "Job")
END = ("Completed", "Failed", "Aborted", "Terminated")
# Seconds of work, and a checkpoint every tenth of a second or so: every instant is a bad one to be killed.
DESCRIPTION: Json = {
    "namespace": NAMESPACE,
    "image": "gangplank.dev/trainer:0.1.0",
    "script": "/opt/gangplank/trainer/train.py",
    "workers": 1,
    "resources": {"cpu": "50m", "memory": "256Mi"},
    "hyperparameters": {"epochs": 60, "batch_size": 32, "seed": 1, "log_interval": 5},
    "args": ["--checkpoint-interval", "20", "--collective-timeout", "10", "--rendezvous-timeout", "30"],
}
CLAIM: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@dataclass
class Job:
    """One job, with rank 0's claim: `change` is what it has otherwise than DESCRIPTION."""

    lab: Lab
    name: str
    change: Json = field(default_factory=dict)
    claim: str = ""
    said: str = ""
    """Rank 0's log up to the words that a story waits for: its pod may go with its job."""

    def __post_init__(self) -> None:
        self.claim = self.claim or self.name
        volumes = [{"claim": self.claim, "mount": "/data", "on": "master"}]
        merged = {**DESCRIPTION, "name": self.name, "output": "/data/out", "volumes": volumes, **self.change}
        (self.manifest,) = BACKENDS["volcano"].manifests(parse_job(merged))
        self.kube = Kube(str(STATE / "admin.kubeconfig"))

    def submit(self, *before: Json) -> None:
        """Make the objects it needs before, and the job."""
        for item in (*before, self.manifest):
            self.lab.kubectl("create", "-f", "-", stdin=json.dumps(item))

    def claimed(self, **spec: object) -> Json:
        """Its claim."""
        meta = {"name": self.claim, "namespace": NAMESPACE}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**CLAIM, **spec}}

    def live(self) -> Json:
        """What the cluster has of it."""
        return self.kube.call("GET", path(*KIND, NAMESPACE, self.name))

    def phase(self) -> str:
        """Its phase, "" before Volcano has seen it or while the cluster does not answer."""
        with contextlib.suppress(KubeError):
            return str(self.live().get("status", {}).get("state", {}).get("phase", ""))
        return ""

    def ended(self) -> str:
        """The phase in which it ended, "" before."""
        phase = self.phase()
        return phase if phase in END else ""

    def end(self, timeout_s: float) -> str:
        """The phase in which it ended, waited for."""
        return str(self.lab.wait(f"the end of {self.name}", self.ended, timeout_s))

    def pod(self, role: str) -> Json:
        """A pod, empty if it does not exist."""
        with contextlib.suppress(KubeError):
            return self.kube.call("GET", path("v1", "Pod", NAMESPACE, f"{self.name}-{role}-0"))
        return {}

    def log(self, role: str = "master") -> str:
        """What a pod's container has said, "" if it has not said anything yet."""
        with contextlib.suppress(KubeError, HTTPError):
            return "\n".join(self.kube.log(NAMESPACE, f"{self.name}-{role}-0"))
        return ""

    def events(self, kind: str, log: str = "") -> list[Json]:
        """The lines of one kind in rank 0's log, as it is now or was."""
        events = (json.loads(line) for line in (log or self.log()).splitlines() if line.startswith('{"event"'))
        return [event for event in events if event["event"] == kind]

    def says(self, words: str) -> bool:
        """Whether rank 0's log has these words; keeps what it had then."""
        log = self.log()
        self.said = log if words in log else self.said
        return bool(self.said)

    def trains(self, beyond: int) -> bool:
        """Whether rank 0 is past a step."""
        return any(event["step"] > beyond for event in self.events("step"))

    def trainer(self, role: str) -> int | None:
        """The trainer's process in a pod, as the machine sees it; torchrun, its parent, is another."""
        marker = f"GANGPLANK_POD={self.name}-{role}-0".encode()
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it may end while we look
                is_rank = (place / "comm").read_text().startswith("rank-")
                if is_rank and marker in (place / "environ").read_bytes().split(b"\0"):
                    return int(place.name)
        return None

    def send(self, number: signal.Signals, role: str) -> int:
        """Signal the trainer in a pod, as soon as there is one; its process id."""
        pid = int(self.lab.wait(f"the trainer in {role} of {self.name}", lambda: self.trainer(role), 90))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return pid

    def weights(self) -> str:
        """The hash of the final weights, from the evidence on the claim."""
        job = {"apiVersion": KIND[0], "kind": KIND[1], **self.live()}
        size = expected.expected(self.manifest).world_size
        records = evidence.from_cluster(self.kube, job, self.kube.pods(job), size)
        epochs = [record for record in records if record["kind"] == "epoch"]
        return str(max(epochs, key=lambda record: int(str(record["epoch"])))["parameters"])

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run gangplank about this job."""
        python, config = str(ROOT / ".venv/bin/python"), str(STATE / "admin.kubeconfig")
        line = [python, "-m", "gangplank", *words, self.name, "-n", NAMESPACE, "--kubeconfig", config]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
