"""From submitting a training to its first step, for each back-end, split, beside the floors of its parts.

The floor is measured in turns with it, by as many bare pods of the same image at once, without a controller: until all
exist, until Kubernetes' own scheduler has placed them on any node, and until the last program begins. Then, in these
pods, the import of torch, that of the trainer's modules and a connection to a store, data and network, and the first
step of one process; each until the last pod has it. Times are of the machine's clock, which nodes and pods share.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figures import Beside, figure, merged
from bench.gangs.watch import batches
from bench.part import BenchError, Lab, Part, playbook
from gangplank.backends import BACKENDS
from gangplank.backends.pod_template import JOB_LABEL
from gangplank.cluster.client import path
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.figures import Figure
    from bench.part import Setting
    from gangplank.cluster.client import Kube

Json = dict[str, Any]
PART = Part("From submitting to the first step, for each back-end", minutes=5, lab=Lab.DOWN)
COMPONENTS = ["volcano", "storage", "training_operator", "trainer_v2"]
HOME, IMAGE, RANKS, ROUNDS = "bench-start", "gangplank.dev/trainer:0.1.0", 3, 3
PODS = f"/api/v1/namespaces/{HOME}/pods"
LIMIT_S, GOAL = 180, 1.3
PLACED_S = 25  # shorter than the client waits for a byte
LEAST_S = 0.001  # of a floor that something is a multiple of
STARTED = "import time; print('started', time.time(), flush=True)\n"
ALONE = Path(__file__).parents[1] / "inside/alone.py"
STAGES = {  # of a job, each from the end of the one before
    "api": "the API server and the controllers, until all pods exist",
    "scheduling": "scheduling, until all have a node",
    "container": "containers, until the last program begins",
    "import": "interpreter and torch, until the last program has imported it",
    "meeting": "rendezvous, until the last rank has joined",
    "data": "data, network and DDP, until the last rank's evidence begins",
    "step": "the first step",
}
SAID = ("started", "imported", '"event":"start"', '"kind":"begin"', '"event":"step"')  # ends of all later stages
FLOORS = {  # one after the other, as a start has them: of which stage each is the floor
    "api": "api", "scheduling": "scheduling", "container": "container", "import": "import", "connect": "meeting",
    "data": "data", "step": "step",
}  # fmt: skip
TRAINER = "/opt/gangplank/trainer"
NEW = "import os,time; print('started', time.time(), flush=True); os.execvp('python3', ['python3', {words}])"
# What start.py becomes says when it has imported torch, and is then what it would have been.
IMPORTED = """import runpy, sys, time
import torch.distributed.run
print('imported', time.time(), flush=True)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name='__main__')
"""
ENTRY = """import os, sys
sys.path.insert(0, {trainer!r})
import start
become = os.execvpe
os.execvpe = lambda file, words, env: become(file, [file, '-c', {imported!r}, *words[1:]], env)
start.main()
"""


@dataclass(frozen=True)
class Marks:
    """When what had happened for every pod, in seconds since the job was submitted."""

    api: float
    scheduling: float
    container: float
    imported: float
    meeting: float
    data: float
    step: float

    def split(self) -> dict[str, float]:
        """How long each stage took."""
        ends = astuple(self)
        return {name: end - before for name, end, before in zip(STAGES, ends, [0.0, *ends], strict=False)}


def program(trainer: str = TRAINER) -> str:
    """What a pod of the job runs: the trainer as shipped, which says when its program begins and has torch."""
    words = ["-c", ENTRY.format(trainer=trainer, imported=IMPORTED), "--epochs", "1", "--log-interval", "1"]
    return NEW.format(words=", ".join(map(repr, words)))


def described(backend: str) -> Json:
    """The job."""
    return {
        "name": f"start-{backend}", "namespace": HOME, "backend": backend, "image": IMAGE, "workers": RANKS - 1,
        "command": ["python3", "-c", program()], "resources": {"cpu": "100m", "memory": "256Mi"},
    }  # fmt: skip


def seconds(stamp: str) -> float:
    """A time that the kubelet has put before a line, or the API server into an object."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", stamp)).timestamp()


def lines(kube: Kube, pod: str) -> list[tuple[float, str]]:
    """What a pod has printed, with the time of each line."""
    text = kube.read("GET", f"{PODS}/{pod}/log", query={"timestamps": "true"}).decode()
    pairs = (line.partition(" ") for line in text.splitlines())
    return [(seconds(stamp), said) for stamp, _, said in pairs]


def said(kube: Kube, pod: str, word: str) -> float | None:
    """When a pod printed a line with this word first; None if it has not."""
    with contextlib.suppress(KubeError):
        return next((at for at, line in lines(kube, pod) if word in line), None)
    return None


def once(kube: Kube, backend: str) -> dict[str, float]:
    """Submit a job, follow its pods to the first step; seconds of each stage."""
    *beside, manifest = BACKENDS[backend].manifests(parse_job({"training_job": described(backend)}))
    watch = watched(kube, manifest["metadata"]["name"])
    begin = time.time()
    for item in (*beside, manifest):
        kube.create(item)
    try:
        names, exist, placed = placement(watch)
        ends = [last(kube, names, word) for word in SAID]
        return Marks(exist - begin, placed - begin, *(end - begin for end in ends)).split()
    finally:
        removed(kube, manifest, beside)


def watched(kube: Kube, job: str) -> Any:
    """The changes of a job's pods from now on, as an open answer."""
    version = kube.call("GET", PODS, query={"limit": "1"})["metadata"]["resourceVersion"]
    return kube.open("GET", PODS, query={
        "watch": "true", "resourceVersion": version, "timeoutSeconds": str(PLACED_S),
        "labelSelector": f"{JOB_LABEL}={job}"})  # fmt: skip


def placement(watch: Any) -> tuple[list[str], float, float]:
    """The pods of a job, and when all of them existed, and when all had a node.

    A watch has a change for each. The times in a pod are whole seconds, and a poll may see both at once.
    """
    nodes: dict[str, str | None] = {}
    exist = 0.0
    with contextlib.closing(watch):
        for full in batches(watch):
            for change in map(json.loads, full):
                at, pod = time.time(), change["object"]
                nodes[pod["metadata"]["name"]] = pod["spec"].get("nodeName")
                if len(nodes) == RANKS:
                    exist = exist or at
                    if all(nodes.values()):
                        return [*nodes], exist, at
    got = f"{len(nodes)} pods, {sum(map(bool, nodes.values()))} with a node"
    raise BenchError(late(HOME, got, f"{RANKS} with a node", PLACED_S))


def last(kube: Kube, names: list[str], word: str) -> float:
    """When the last of these pods had printed it."""
    for _ in polls(LIMIT_S, 0.3):
        times = [said(kube, name, word) for name in names]
        if None not in times:
            return max(time for time in times if time is not None)
    raise BenchError(late(", ".join(names), f"{times.count(None)} without {word}", "it", LIMIT_S))


def removed(kube: Kube, manifest: Json, beside: list[Json]) -> None:
    """The job and its pods are gone."""
    for item in (manifest, *beside):
        where = path(item["apiVersion"], item["kind"], HOME, item["metadata"]["name"])
        with contextlib.suppress(KubeError):
            kube.call("DELETE", where, {"propagationPolicy": "Background"})
    gone(kube)


def gone(kube: Kube) -> None:
    """Wait until no pod is left."""
    for _ in polls(LIMIT_S, 0.5):
        kube.call("DELETE", PODS, {"gracePeriodSeconds": 0})
        if not kube.call("GET", PODS)["items"]:
            return
    raise BenchError(late(HOME, "pods", "none", LIMIT_S))


def bare(kube: Kube) -> dict[str, float]:
    """The floor: seconds of each stage of as many bare pods, and what their programs then take."""
    program = STARTED + ALONE.read_text()
    container = {"name": "bare", "image": IMAGE, "command": ["python3", "-c", program, "start", "small"],
                 "env": [{"name": "OMP_NUM_THREADS", "value": "1"}, {"name": "USE_LIBUV", "value": "0"}]}  # fmt: skip
    spec = {"restartPolicy": "Never", "containers": [container]}
    watch, begin = watched(kube, "bare"), time.time()
    for number in range(RANKS):
        meta = {"name": f"bare-{number}", "labels": {JOB_LABEL: "bare"}}
        kube.call("POST", PODS, {"metadata": meta, "spec": spec})
    names, exist, placed = placement(watch)
    started = last(kube, names, "started")
    last(kube, names, '"event": "alone"')
    alone = [json.loads(line) for name in names for _, line in lines(kube, name) if line.startswith("{")]
    gone(kube)
    ends = {"api": exist, "scheduling": placed, "container": started}
    ends |= {name: max(row["ends"][name] for row in alone) for name in ("import", "connect", "data", "step")}
    pairs = zip(ends.items(), [begin, *ends.values()], strict=False)
    return {f"floor.{name}": end - before for (name, end), before in pairs}


def measure(setting: Setting) -> Iterator[Figure]:
    """A lab with every back-end, then rounds of all of them and of the floor."""
    try:
        playbook("playbooks/lab.yml", "playbooks/site.yml", site_components=COMPONENTS)
        kube = setting.kube
        kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
        rounds = []
        for number in range(ROUNDS + 1):
            one = {f"{backend}.{stage}": value for backend in BACKENDS for stage, value in once(kube, backend).items()}
            one |= bare(kube)
            setting.say(f"round {number}: " + ", ".join(f"{name} {value:.2f}" for name, value in one.items()))
            rounds += [one] if number else []  # the first reads the image's files from the disk
    finally:
        playbook("playbooks/lab-down.yml", site_components=COMPONENTS)
    yield from figures(merged(rounds))


def figures(values: dict[str, list[float]]) -> Iterator[Figure]:
    """Each back-end beside the sum of the floors, and its stages."""
    parts = [values[f"floor.{name}"] for name in FLOORS]
    how = f"by {RANKS} bare pods at once"
    floor = Beside.of(f"sum of the parts, {how}", [sum(row) for row in zip(*parts, strict=True)])
    for backend in BACKENDS:
        whole = [sum(row) for row in zip(*(values[f"{backend}.{stage}"] for stage in STAGES), strict=True)]
        yield figure(f"start.{backend}", f"submit to first step, {backend}", "s", whole, floor=floor,
                     goal=GOAL * floor.value, why=f"{GOAL} x the floor")  # fmt: skip
        floors = {stage: Beside.of(f"{name}, {how}", values[f"floor.{name}"]) for name, stage in FLOORS.items()}
        for stage in STAGES:
            yield figure(f"start.{backend}.{stage}", f"{backend}: {stage}", "s", values[f"{backend}.{stage}"],
                         floor=floors[stage] if floors[stage].value >= LEAST_S else None)  # fmt: skip
    for name in FLOORS:
        yield figure(f"start.floor.{name}", f"floor: {name}", "s", values[f"floor.{name}"])
