"""The training operator from our chart, on a lab of its own without Volcano.

How long `helm install --wait` takes, beside `kubectl apply` and `kubectl wait` of the same objects; and how long the
operator takes to create all pods of 100 jobs of three replicas, with our flags and with upstream's.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import yaml

from bench.figures import Beside, figure
from bench.part import ROOT, STATE, BenchError, Lab, Part, playbook, run
from bench.tuned import TUNED
from gangplank.cluster.client import Kube
from gangplank.site.preflight import NEWEST
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("Installing the training operator, and its pods", minutes=8, lab=Lab.DOWN, usual=False)
CHART = ROOT / "charts/training-operator"
NAME = "training-operator"
NAMESPACE = "pytorch-operator"  # the chart's own
ROUNDS, JOBS, WORKERS = 3, 100, 2
FLAGS = {"our": {}, "upstream's": TUNED["operator"].upstream}
DEADLINE_S = 300
LIKE_APPLY, FASTER = 1.2, 3
Words = tuple[str, ...]  # a program, and which cluster it asks
CONTAINER = {"name": "pytorch", "image": "registry.k8s.io/pause:3.10.1"}
# No node has the label: the pods are created, and take no node's time.
TEMPLATE = {"spec": {"containers": [CONTAINER], "nodeSelector": {"gangplank.dev/nowhere": "true"}}}


def timed(*commands: tuple[str, ...]) -> float:
    """Seconds that some commands take, one after the other."""
    begin = time.monotonic()
    for words in commands:
        run(*words)
    return time.monotonic() - begin


def installing(helm: Words, kubectl: Words, folder: Path) -> Figure:
    """How long an install takes."""
    kubernetes = f"--kube-version={'.'.join(map(str, NEWEST))}"  # the chart refuses Helm's own default
    text = run(*helm, "template", kubernetes, NAME, str(CHART), "--namespace", "default")
    objects = list(yaml.safe_load_all(text))
    first = [item for item in objects if item and item["kind"] == "Namespace"]
    (folder / "namespace.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": first}))
    rest = [item for item in objects if item and item["kind"] != "Namespace"]
    (folder / "rest.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": rest}))
    apply = [(*kubectl, "apply", "-f", f"{folder}/{name}.json") for name in ("namespace", "rest")]
    wait = (*kubectl, "wait", "-n", NAMESPACE, "--for=condition=Available", f"deployment/{NAME}", "--timeout=120s")
    install = (*helm, "install", NAME, str(CHART), "--namespace", "default", "--wait")
    ours, peers = [], []
    for _ in range(ROUNDS):
        ours.append(timed(install))
        run(*helm, "uninstall", NAME, "--namespace", "default", "--wait")
        gone(kubectl)
        peers.append(timed(*apply, wait))
        run(*kubectl, "delete", "-f", f"{folder}/rest.json", "-f", f"{folder}/namespace.json")
    peer = Beside.of("kubectl apply and wait", peers)
    return figure("operator.install", "helm install --wait", "s", ours, peer=peer, goal=LIKE_APPLY * peer.value,
                  why=f"{LIKE_APPLY} x kubectl")  # fmt: skip


def gone(kubectl: Words) -> None:
    """Wait until the operator's namespace is gone."""
    run(*kubectl, "wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=120s")


def jobs() -> list[dict[str, Any]]:
    """A hundred jobs."""
    kinds = {"Master": 1, "Worker": WORKERS}
    replicas = {kind: {"replicas": count, "template": TEMPLATE} for kind, count in kinds.items()}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    return [
        {**kind, "metadata": {"name": f"bench-{at}"}, "spec": {"pytorchReplicaSpecs": replicas}} for at in range(JOBS)
    ]


def making(helm: Words, kubectl: Words, folder: Path, flags: Mapping[str, int | str]) -> float:
    """Seconds from the first job to the last pod."""
    words = [f"--set={key}={value}" for key, value in flags.items()]
    run(*helm, "install", NAME, str(CHART), "--namespace", "default", "--wait", *words)
    namespace = "bench-jobs"
    run(*kubectl, "create", "namespace", namespace)
    (folder / "jobs.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs()}))
    kube, pods = Kube(str(STATE / "admin.kubeconfig")), JOBS * (1 + WORKERS)
    first = jobs()[0]
    first["metadata"]["namespace"] = namespace
    kube.accepts(first, DEADLINE_S)  # the webhook's Service may take a second more than its pod
    begin = time.monotonic()
    create = [*kubectl, "create", "-n", namespace, "-f", f"{folder}/jobs.json"]
    with subprocess.Popen(create, stdout=subprocess.DEVNULL):
        for _ in polls(DEADLINE_S, 0.25):
            if (count := len(kube.items("v1", "Pod", namespace))) >= pods:
                break
        else:
            raise BenchError(late("training operator", f"{count} pods", f"{pods}", DEADLINE_S))
    seconds = time.monotonic() - begin
    run(*kubectl, "delete", "pytorchjobs", "--all", "-n", namespace)
    run(*kubectl, "delete", "namespace", namespace, "--timeout=300s")
    run(*helm, "uninstall", NAME, "--namespace", "default", "--wait")
    gone(kubectl)
    return seconds


def measure(setting: Setting) -> Iterator[Figure]:
    """Bring up the lab, measure, remove it."""
    components = ["training_operator"]  # the lab has the operator's image, and no operator
    admin = f"--kubeconfig={STATE / 'admin.kubeconfig'}"  # the user's may name another cluster
    try:
        playbook("playbooks/lab.yml", site_components=components)
        built = json.loads((STATE / "parts.json").read_text())
        helm, kubectl = (f"{built['bin']['helm']}/helm", admin), (f"{built['bin']['kubernetes']}/kubectl", admin)
        run(*kubectl, "apply", "--server-side", "-k", built["charts"]["training-operator-crds"])
        yield installing(helm, kubectl, setting.folder)
        timings: dict[str, list[float]] = {name: [] for name in FLAGS}
        for number in range(ROUNDS):
            for name, flags in FLAGS.items():
                timings[name].append(making(helm, kubectl, setting.folder, flags))
            setting.say(f"round {number + 1} of {ROUNDS}")
    finally:
        playbook("playbooks/lab-down.yml", site_components=components)
    peer = Beside.of("upstream's flags", timings["upstream's"])
    title = f"{JOBS} jobs of {1 + WORKERS} replicas until all pods exist"
    yield figure("operator.pods", title, "s", timings["our"], peer=peer, goal=peer.value / FASTER,
                 why=f"{FASTER} x as fast as upstream's flags")  # fmt: skip
