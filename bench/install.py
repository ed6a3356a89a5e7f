"""The training operator from our chart, on a lab of its own without Volcano: `make bench-operator`.

How long `helm install --wait` takes, beside `kubectl apply` and `kubectl wait` of the same objects; and how long the
operator takes to create all pods of 100 jobs of three replicas, with our flags and with upstream's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gangplank.cluster.client import Kube  # noqa: E402  found by the line above

STATE = Path("/var/lib/gangplank/lab")
CHART = ROOT / "charts/training-operator"
NAME = "training-operator"
NAMESPACE = "pytorch-operator"  # the chart's own
ROUNDS, JOBS, WORKERS = 3, 100, 2
FLAGS = {"our": {}, "upstream's": {"qps": 20, "burst": 30, "threads": 1}}
DEADLINE_S = 300
CONTAINER = {"name": "pytorch", "image": "registry.k8s.io/pause:3.10.1"}
# No node has the label: the pods are created, and take no node's time.
TEMPLATE = {"spec": {"containers": [CONTAINER], "nodeSelector": {"gangplank.dev/nowhere": "true"}}}


def run(*words: str) -> str:
    """Run a program to its end; what it printed."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words[:6])} ...: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def playbook(name: str) -> None:
    """Run a playbook on the lab, which has the operator's image and no operator."""
    values = json.dumps({"site_components": ["training_operator"]})
    run(
        str(ROOT / ".venv/bin/ansible-playbook"),
        "-i",
        "inventories/lab/hosts.yml",
        f"playbooks/{name}.yml",
        "-e",
        values,
    )


def timed(*commands: tuple[str, ...]) -> float:
    """Seconds that some commands take, one after the other."""
    begin = time.monotonic()
    for words in commands:
        run(*words)
    return time.monotonic() - begin


def installing(helm: str, kubectl: str, folder: Path) -> float:
    """Print how long an install takes; its ratio to the peer's."""
    objects = list(yaml.safe_load_all(run(helm, "template", NAME, str(CHART), "--namespace", "default")))
    first = [item for item in objects if item and item["kind"] == "Namespace"]
    (folder / "namespace.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": first}))
    rest = [item for item in objects if item and item["kind"] != "Namespace"]
    (folder / "rest.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": rest}))
    apply = [(kubectl, "apply", "-f", f"{folder}/{name}.json") for name in ("namespace", "rest")]
    wait = (kubectl, "wait", "-n", NAMESPACE, "--for=condition=Available", f"deployment/{NAME}", "--timeout=120s")
    install = (helm, "install", NAME, str(CHART), "--namespace", "default", "--wait")
    ours, peers = [], []
    for _ in range(ROUNDS):
        ours.append(timed(install))
        run(helm, "uninstall", NAME, "--namespace", "default", "--wait")
        gone(kubectl)
        peers.append(timed(*apply, wait))
        run(kubectl, "delete", "-f", f"{folder}/rest.json", "-f", f"{folder}/namespace.json")
    ratio = statistics.median(ours) / statistics.median(peers)
    print(f"helm install --wait: {spread(ours)}; kubectl apply and wait: {spread(peers)}; {ratio:.2f} x (goal 1.2)")
    return ratio


def gone(kubectl: str) -> None:
    """Wait until the operator's namespace is gone."""
    run(kubectl, "wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=120s")


def spread(seconds: list[float]) -> str:
    """Median and spread."""
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f})"


def jobs() -> list[dict[str, Any]]:
    """A hundred jobs."""
    kinds = {"Master": 1, "Worker": WORKERS}
    replicas = {kind: {"replicas": count, "template": TEMPLATE} for kind, count in kinds.items()}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    return [
        {**kind, "metadata": {"name": f"bench-{at}"}, "spec": {"pytorchReplicaSpecs": replicas}} for at in range(JOBS)
    ]


def making(helm: str, kubectl: str, folder: Path, flags: dict[str, int]) -> float:
    """Seconds from the first job to the last pod."""
    words = [f"--set={key}={value}" for key, value in flags.items()]
    run(helm, "install", NAME, str(CHART), "--namespace", "default", "--wait", *words)
    namespace = "bench-jobs"
    run(kubectl, "create", "namespace", namespace)
    (folder / "jobs.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs()}))
    kube, pods = Kube(os.environ["KUBECONFIG"]), JOBS * (1 + WORKERS)
    first = jobs()[0]
    first["metadata"]["namespace"] = namespace
    kube.accepts(first, DEADLINE_S)  # the webhook's Service may take a second more than its pod
    begin = time.monotonic()
    with subprocess.Popen([kubectl, "create", "-n", namespace, "-f", f"{folder}/jobs.json"], stdout=subprocess.DEVNULL):
        while len(kube.items("v1", "Pod", namespace)) < pods:
            if time.monotonic() - begin > DEADLINE_S:
                sys.exit(f"not {pods} pods within {DEADLINE_S} s")
            time.sleep(0.25)
    seconds = time.monotonic() - begin
    run(kubectl, "delete", "pytorchjobs", "--all", "-n", namespace)
    run(kubectl, "delete", "namespace", namespace, "--timeout=300s")
    run(helm, "uninstall", NAME, "--namespace", "default", "--wait")
    gone(kubectl)
    return seconds


def main() -> int:
    """Bring up the lab, measure, remove it."""
    if STATE.exists():
        sys.exit(f"{STATE}: a lab is up, and this bench starts its own. Fix: make down, then run it again")
    try:
        playbook("lab")
        parts = json.loads((STATE / "parts.json").read_text())
        os.environ["KUBECONFIG"] = str(STATE / "admin.kubeconfig")
        helm, kubectl = f"{parts['bin']['helm']}/helm", f"{parts['bin']['kubernetes']}/kubectl"
        run(kubectl, "apply", "--server-side", "-k", parts["charts"]["training-operator-crds"])
        with tempfile.TemporaryDirectory() as folder:
            ratio = installing(helm, kubectl, Path(folder))
            timings: dict[str, list[float]] = {name: [] for name in FLAGS}
            for _ in range(ROUNDS):
                for name, flags in FLAGS.items():
                    timings[name].append(making(helm, kubectl, Path(folder), flags))
    finally:
        playbook("lab-down")
    for name, seconds in timings.items():
        print(f"{JOBS} jobs of {1 + WORKERS} replicas, {name} flags: {spread(seconds)} until all pods exist")
    faster = statistics.median(timings["upstream's"]) / statistics.median(timings["our"])
    print(f"{faster:.1f} x as fast (goal 3)")
    missed = (ratio > 1.2) + (faster < 3)
    print("all figures reached" if not missed else f"{missed} figures missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
