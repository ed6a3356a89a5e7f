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

from gangplank.backends import BACKENDS, wiring
from gangplank.cluster import evidence, progress
from gangplank.cluster.client import Kube, path
from gangplank.cluster.members import rank_of
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.proof import expected
from tests.cluster.conftest import ROOT, STATE

if TYPE_CHECKING:
    import signal

    from gangplank.proof.records import Records
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
NAMESPACE = "faults"
ROLES = ("master", "worker")  # by rank: jobs here have one worker
# Seconds of work, and a checkpoint every tenth of a second or so: every instant is a bad one to be killed.
DESCRIPTION: Json = {
    "namespace": NAMESPACE,
    "image": "gangplank.dev/trainer:0.1.0",
    "script": "/opt/gangplank/trainer/train.py",
    "workers": 1,
    "resources": {"cpu": "50m", "memory": "256Mi"},
    "hyperparameters": {"epochs": 60, "batch_size": 32, "seed": 1, "log_interval": 5},
    "args": ["--checkpoint-interval", "20", "--collective-timeout", "30", "--rendezvous-timeout", "120"],
}
CLAIM: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@dataclass
class Job:
    """One job, with rank 0's claim: `change` is what it has otherwise than DESCRIPTION."""

    lab: Lab
    name: str
    change: Json = field(default_factory=dict)
    claim: str = ""
    backend: str = "volcano"
    said: str = ""
    """Rank 0's log up to the words that a story waits for: its pod may go with its job."""

    def __post_init__(self) -> None:
        self.claim = self.claim or self.name
        volumes = [{"claim": self.claim, "mount": "/data", "on": "master"}]
        merged = {**DESCRIPTION, "name": self.name, "output": "/data/out", "volumes": volumes, **self.change}
        spec = parse_job({**merged, "backend": self.backend})
        *self.beside, self.manifest = BACKENDS[self.backend].manifests(spec)
        self.replicas = wiring.replicas(spec)
        self.kube = Kube(str(STATE / "admin.kubeconfig"))

    def submit(self, *before: Json) -> None:
        """Make the objects it needs before, and the job."""
        for item in (*before, *self.beside, self.manifest):
            self.lab.kubectl("create", "-f", "-", stdin=json.dumps(item))

    def claimed(self, **spec: object) -> Json:
        """Its claim."""
        meta = {"name": self.claim, "namespace": NAMESPACE}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**CLAIM, **spec}}

    def live(self) -> Json:
        """What the cluster has of it."""
        kind = {"apiVersion": self.manifest["apiVersion"], "kind": self.manifest["kind"]}
        return {**kind, **self.kube.call("GET", path(kind["apiVersion"], kind["kind"], NAMESPACE, self.name))}

    def phase(self) -> str:
        """Its phase, "" while the cluster does not answer."""
        with contextlib.suppress(KubeError):
            return progress.phase(self.live()).name
        return ""

    def ended(self) -> str:
        """The phase in which it ended, "" before."""
        phase = progress.Phase(self.phase())
        return phase.name if phase.ended else ""

    def end(self, timeout_s: float) -> str:
        """The phase in which it ended, waited for."""
        return str(self.lab.wait(f"the end of {self.name}", self.ended, timeout_s))

    def pods(self) -> list[Json]:
        """Its pods, by rank."""
        return self.kube.pods(self.live())

    def pod(self, role: str) -> Json:
        """The newest pod of a role's first replica, empty if there is none."""
        with contextlib.suppress(KubeError):
            of_role = [pod for pod in self.pods() if rank_of(pod) == ROLES.index(role)]
            return max(of_role, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default={})
        return {}

    def node(self, role: str) -> str:
        """Where that pod is, "" if it is nowhere."""
        return str(self.pod(role).get("spec", {}).get("nodeName", ""))

    def log(self, role: str = "master") -> str:
        """What a pod's container has said, "" if it has not said anything yet."""
        with contextlib.suppress(KubeError, HTTPError):
            if pod := self.pod(role):
                return "\n".join(self.kube.log(pod))
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
        name = f"GANGPLANK_POD={self.replicas[ROLES.index(role)].pod}-".encode()  # a batch Job's has a random end
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it may end while we look
                is_rank = (place / "comm").read_text().startswith("rank-")
                variables = (place / "environ").read_bytes().split(b"\0") if is_rank else []
                if any(b"%b-" % variable == name or variable.startswith(name) for variable in variables):
                    return int(place.name)
        return None

    def send(self, number: signal.Signals, role: str) -> int:
        """Signal the trainer in a pod, as soon as there is one; its process id."""
        pid = int(self.lab.wait(f"the trainer in {role} of {self.name}", lambda: self.trainer(role), 90))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return pid

    def records(self) -> Records:
        """Its evidence."""
        job = self.live()
        size = expected.expected(self.manifest).world_size
        return evidence.from_cluster(self.kube, job, self.kube.pods(job), size)

    def weights(self) -> str:
        """The hash of the final weights, from the evidence on the claim."""
        epochs = [record for record in self.records() if record["kind"] == "epoch"]
        return str(max(epochs, key=lambda record: int(str(record["epoch"])))["parameters"])

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run gangplank about this job."""
        python, config = str(ROOT / ".venv/bin/python"), str(STATE / "admin.kubeconfig")
        line = [python, "-m", "gangplank", *words, self.name, "-n", NAMESPACE, "--kubeconfig", config]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
