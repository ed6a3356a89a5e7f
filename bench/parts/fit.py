"""How long `fit` and `why` take to answer on a large cluster: 1,000 nodes, 10,000 pods, 100 queues.

Once the state has been read, for a job of 100 pods that fits, one that must wait, one that a taint keeps out, and the
same with a volume whose CSI driver limits how many a node may have, as all pods have them. Seconds are of CPU time. The
floor is to read the same objects from JSON, which every program that answers has to do first.

`gangplank fit --exact` as a user runs it, at a site of tests/support/bare_site.py. Its floor is the start of the
programs of its copy, without a state.
"""

from __future__ import annotations

import functools
import json
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figures import Beside, alternate, figure
from bench.part import Part
from bench.parts.nodes import Command, answered
from bench.plane import start_s
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.scheduling import amounts
from gangplank.scheduling.fit import fit
from gangplank.scheduling.snapshot import Pods, Snapshot
from gangplank.scheduling.why import Situation, diagnose
from gangplank.shadow.inside import FOLDER
from tests.support import bare_site
from tests.unit.scheduling.states import CAPACITY, Json, group, job, node, pod, queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("fit, why and fit --exact on up to 1,000 nodes", minutes=2.5, root=True)
NODES, PODS, QUEUES, WORKERS, ROUNDS = 1000, 10_000, 100, 99, 5
LIMIT_S = 1.0
EXACT = {100: 500, 1000: 10_000}  # pods by nodes
EXACT_ROUNDS, EXACT_LIMIT_S = 3, {100: 10.0}
TAINT = {"key": "dedicated", "value": "other", "effect": "NoSchedule"}
DRIVER = "disk.example.com"
MOUNT = [{"claim": "data", "mount": "/data", "on": "all", "access": "ReadWriteMany"}]


class Case(NamedTuple):
    """One job on one kind of cluster."""

    title: str
    cpu: str = "1"  # of each of its pods
    tainted: bool = False
    mounts: bool = False  # whether all pods have volumes of a CSI driver


CASES = {
    "fits": Case("a job that fits"),
    "waits": Case("a job that must wait", cpu="31"),
    "tainted": Case("a job that a taint keeps out", tainted=True),
    "mounts": Case("a job with a volume that a taint keeps out", tainted=True, mounts=True),
}


def objects(seed: int, pods: int, *, nodes: int = 0, tainted: bool = False) -> dict[str, tuple[Json, ...]]:
    """The objects of one cluster; ten pods a node unless it says otherwise."""
    chance = random.Random(seed)  # noqa: S311  a measurement's own cluster
    hosts = [node(f"n{n}", cpu="32", taints=(TAINT,) if tainted else ()) for n in range(nodes or pods // 10)]
    places = [f"n{chance.randrange(len(hosts))}" for _ in range(pods)]
    running = [
        pod(f"p{number}", where, cpu=f"{chance.choice((250, 500, 1000, 2000))}m", group=f"g{number % QUEUES}")
        for number, where in enumerate(places)
    ]
    queues = [queue("root"), queue("default"), *(queue(f"q{number}") for number in range(QUEUES))]
    groups = [group(f"g{number}", f"q{number}") for number in range(QUEUES)]
    return {"nodes": tuple(hosts), "pods": tuple(running), "queues": tuple(queues), "groups": tuple(groups)}


def volumes(state_of: Mapping[str, Sequence[Json]]) -> dict[str, Any]:
    """A volume for each pod and for the job, and nodes that may have 110 of them, as many as pods."""
    users = [("vision", "data"), *((one["metadata"]["namespace"], one["metadata"]["name"]) for one in state_of["pods"])]
    for one in state_of["pods"]:
        one["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": one["metadata"]["name"]}}]
    having = [{"name": DRIVER, "allocatable": {"count": 110}}]
    spec = {"accessModes": ["ReadWriteMany"], "volumeName": "v-data"}
    claim = {"metadata": {"name": "data", "namespace": "vision"}, "spec": spec, "status": {"phase": "Bound"}}
    return {
        "claims": (claim,),
        "volumes": tuple({
            "metadata": {"name": f"v-{name}"},
            "spec": {"claimRef": {"namespace": namespace, "name": name}, "csi": {"driver": DRIVER}},
            "status": {"phase": "Bound"},
        } for namespace, name in users),
        "csi_nodes": tuple({"metadata": one["metadata"], "spec": {"drivers": having}} for one in state_of["nodes"]),
        "ignored": frozenset[str](),
    }  # fmt: skip


def state_and_more(seed: int, case: Case, pods: int) -> tuple[dict[str, tuple[Json, ...]], dict[str, Any]]:
    """The objects of a case's cluster, and those of its volumes."""
    state_of = objects(seed, pods, tainted=case.tainted)
    return state_of, volumes(state_of) if case.mounts else {}


def read_s(seed: int, case: Case) -> float:
    """Seconds to read the same objects from JSON."""
    text = json.dumps(state_and_more(seed, case, PODS), default=list)
    started = time.process_time()
    json.loads(text)
    return time.process_time() - started


def question(seed: int, case: Case, pods: int = PODS) -> Callable[[], None]:
    """What answers both `fit` and `why`, on a cluster of its own."""
    state_of, more = state_and_more(seed, case, pods)
    mount: dict[str, Any] = {"volumes": MOUNT} if case.mounts else {}
    wanted = job(workers=WORKERS, resources={"cpu": case.cpu, "memory": "1Gi"}, **mount)
    rest: dict[str, Any] = {kind: items for kind, items in state_of.items() if kind != "pods"}

    def answer() -> None:
        amounts._REQUESTS.clear()  # as in a command of its own
        state = Snapshot(pods=Pods(state_of["pods"]), settings=CAPACITY, **rest, **more)
        fit(wanted, state)
        diagnose(Situation("digits", wanted, state))

    return answer


def answer_s(seed: int, case: Case, pods: int = PODS) -> float:
    """Seconds of both."""
    answer = question(seed, case, pods)
    started = time.process_time()
    answer()
    return time.process_time() - started


def stored(nodes: int, pods: int) -> Iterator[tuple[str, Json]]:
    """Such a cluster as an API server stores it, beside what every bare site has."""
    some, gang = objects(0, pods, nodes=nodes), QUEUE_SYSTEM.pod_group
    yield from bare_site.namespace("other")
    for one in some["nodes"]:
        yield bare_site.node(one["metadata"]["name"], one["status"]["allocatable"]["cpu"])
    for one in some["queues"]:
        name = one["metadata"]["name"]
        if name not in {QUEUE_SYSTEM.root, QUEUE_SYSTEM.default}:
            yield bare_site.queue(name, **one["spec"])
    for one in some["pods"]:
        spec = {**one["spec"], "schedulerName": QUEUE_SYSTEM.scheduler}
        yield in_namespace("v1", "Pod", "pods", {**one, "spec": spec})
    place = f"{gang.api_version.partition('/')[0]}/{gang.plural}"
    for one in some["groups"]:
        yield in_namespace(gang.api_version, gang.kind, place, {**one, "status": {"phase": "Running"}})


def in_namespace(api_version: str, kind: str, place: str, one: Json) -> tuple[str, Json]:
    """An object of a namespace with its key."""
    name, space = one["metadata"]["name"], one["metadata"]["namespace"]
    return f"{place}/{space}/{name}", bare_site.item(api_version, kind, name, space, **one)


def exact_figure(setting: Setting, nodes: int, pods: int) -> Figure:
    """`fit --exact` of a job of 100 pods that fits, in turns with its floor."""
    file = setting.folder / "fits.json"
    job_file = {"name": "digits", "backend": "volcano", "image": "a.example/b:1", "command": ["true"]}
    file.write_text(json.dumps({**job_file, "workers": WORKERS, "resources": {"cpu": "1", "memory": "1Gi"}}))
    command = Command(("fit", "--exact", str(file)), (0,), "yes")
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, bare_site.in_a_network() as call:
        context = bare_site.bare_site(Path(folder), list(stored(nodes, pods)))
        site = call(context.__enter__)
        try:
            asked = functools.partial(answered, command, str(site.plane.kubeconfig))
            setting.say(f"{nodes} nodes with {pods} pods")
            rounds = alternate(EXACT_ROUNDS, {"exact": lambda: call(asked)[0], "floor": start_s}, setting.say)
        finally:
            call(lambda: context.__exit__(None, None, None))
    floor = Beside.of("the programs of the copy, without a state", rounds["floor"])
    title = f"gangplank fit --exact, {nodes:,} nodes with {pods:,} pods"
    return figure(f"fit.exact.{nodes}", title, "s", rounds["exact"], floor=floor, goal=EXACT_LIMIT_S.get(nodes))


def measure(setting: Setting) -> Iterator[Figure]:
    """A figure per case, and one for each size of `fit --exact`."""
    for name, case in CASES.items():
        rounds = [(answer_s(seed, case), read_s(seed, case)) for seed in range(ROUNDS)]
        both, read = zip(*rounds, strict=True)
        setting.say(f"{case.title}: {ROUNDS} clusters")
        peer = Beside.of("the same objects read from JSON", read)  # which is no part of it
        yield figure(f"fit.{name}", f"fit and why, {case.title}", "s", both, peer=peer, goal=LIMIT_S)
    for nodes, pods in EXACT.items():
        yield exact_figure(setting, nodes, pods)
