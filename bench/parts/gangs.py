"""How fast gangs start: 1,000 pods on 100 simulated nodes, from the first create to the last binding and to Running.

Ours is Volcano as the role installs it, on the lab's inventory. Its peers are Volcano with upstream's values, and
Kubernetes' own scheduler with plain Jobs, which has no gangs. All pods come from the same template, the library's; the
webhooks are on. The floor replays, for each pod, its creation, its binding and the status of a started pod by a client
that does nothing else. The nodes and what their pods do are KWOK's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import http.client
import json
import re
import ssl
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from bench.figures import Beside, figure, merged
from bench.part import ROOT, STATE, BenchError, Lab, Part, run
from bench.programs import spent, ticks
from gangplank.backends import BACKENDS
from gangplank.backends.pod_template import JOB_LABEL
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.wait import late, polls
from lab import simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.part import Setting
    from gangplank.cluster.client import Kube

Json = dict[str, Any]
PART = Part("Gangs on 100 simulated nodes", minutes=19, lab=Lab.UP, builds=("kwok",))
NODES, SIZE = 100, {"cpu": "16", "memory": "64Gi"}
SHAPES = {"10x100": (10, 100), "100x10": (100, 10)}  # gangs, and pods of each
ROUNDS = 3
HOME = "bench-gangs"
LABELS = {"simulated": "gangs"}
PODS = f"/api/v1/namespaces/{HOME}/pods"
VOLCANO_JOBS = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{HOME}/jobs"
JOBS = f"/apis/batch/v1/namespaces/{HOME}/jobs"
RELEASE, SYSTEM = "volcano", "volcano-system"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
CLIENTS = 16  # connections that create, and of the bare client
LIMIT_S = 300
QUIET = 6  # looks in a row, half a second apart, that saw nothing left of a run
TIMES, SHARE = 3, 0.8  # the goal: so many times upstream's rate, or this share of the floor's where that is less
LEAST_CPU_S = 1  # of what has a line of its own
FAILED = re.compile(r"Fail.*(Create|Delete)|PluginError|PVCError|PodGroupError|JobStatusError")


@dataclass
class Pod:
    """What a watch has seen of a pod: when it had a node, when it ran."""

    gang: str
    bound: float = 0.0
    running: float = 0.0


@dataclass
class Seen:
    """All pods of a run, and the gangs that were begun before they were whole."""

    sizes: Mapping[str, int]
    pods: dict[str, Pod] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Pods of each gang, as the watch has seen them so far."""
    partial: set[str] = field(default_factory=set)

    def see(self, kind: str, item: Json, at: float) -> None:
        """One change of a pod."""
        meta = item["metadata"]
        if kind == "DELETED":
            return
        if meta["uid"] not in self.pods:
            gang = meta["labels"][JOB_LABEL]
            self.pods[meta["uid"]] = Pod(gang)
            self.counts[gang] = self.counts.get(gang, 0) + 1
        pod = self.pods[meta["uid"]]
        if item["spec"].get("nodeName") and not pod.bound:
            pod.bound = at
            if self.counts[pod.gang] < self.sizes[pod.gang]:
                self.partial.add(pod.gang)  # a pod has a node before all of its gang exist
        if item.get("status", {}).get("phase") == "Running" and not pod.running:
            pod.running = at

    @property
    def torn(self) -> set[str]:
        """Gangs of which only some pods have a node."""
        bound: dict[str, int] = {}
        for pod in self.pods.values():
            bound[pod.gang] = bound.get(pod.gang, 0) + bool(pod.bound)
        return {gang for gang, count in bound.items() if 0 < count < self.sizes[gang]}

    def whole(self) -> bool:
        """Whether all pods run."""
        return len(self.pods) == sum(self.sizes.values()) and all(pod.running for pod in self.pods.values())


class Watch:
    """Follows the pods of the namespace in a thread; with `gang`, those of this one alone."""

    def __init__(self, kube: Kube, sizes: Mapping[str, int], gang: str = "") -> None:
        self.kube, self.seen = kube, Seen(sizes)
        self.only = {"labelSelector": f"{JOB_LABEL}={gang}"} if gang else {}
        self.stopped, self.failed = threading.Event(), list[Exception]()
        self.thread = threading.Thread(target=self.follow)

    def __enter__(self) -> Self:
        start = self.kube.call("GET", PODS, query=self.only)
        if start["items"]:
            raise BenchError(f"{HOME}: got {len(start['items'])} pods, expected none")
        self.version = start["metadata"]["resourceVersion"]
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()

    def follow(self) -> None:
        """Read changes until the block ends."""
        try:
            while not self.stopped.is_set():
                query = {"watch": "true", "resourceVersion": self.version, "timeoutSeconds": "3"} | self.only
                answer, rest = self.kube.open("GET", PODS, query=query), b""
                for chunk in answer.stream(amt=2**16):
                    at = time.monotonic()
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self.note(json.loads(line), at)
                    if self.stopped.is_set():
                        break
                answer.close()
        except (KubeError, BenchError, OSError, ValueError) as error:
            self.failed.append(error)  # of a thread; `wait` raises it

    def note(self, change: Json, at: float) -> None:
        """Keep one change, and the version it made."""
        if change["type"] == "ERROR":
            raise BenchError(f"watch of {HOME}: got {change['object']}, expected changes")
        self.version = change["object"]["metadata"]["resourceVersion"]
        self.seen.see(change["type"], change["object"], at)

    def wait(self) -> None:
        """Until every pod runs."""
        for _ in polls(LIMIT_S, 0.05):
            if self.failed:
                raise self.failed[0]
            if self.seen.whole():
                return
        pods = self.seen.pods.values()
        bound, running = (sum(bool(getattr(one, key)) for one in pods) for key in ("bound", "running"))
        got = f"{len(pods)} pods, {bound} bound, {running} running"
        raise BenchError(late(HOME, got, f"{sum(self.seen.sizes.values())} running", LIMIT_S))


@dataclass(frozen=True)
class Start:
    """One run: seconds from the first create, and what went wrong."""

    bound_s: float
    running_s: float
    failed: int
    """Refused creates of ours, and failures that controllers reported."""
    partial: int
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    """CPU time of the lab's programs meanwhile."""


def template(name: str, size: int, kind: str, cpu: str = "100m") -> Json:
    """A job of the library's, as a user submits it, that the simulated nodes take."""
    job = {
        "name": name, "namespace": HOME, "backend": kind, "workers": size - 1,
        "image": "registry.k8s.io/pause:3.10.1", "command": ["/pause"],
        "resources": {"cpu": cpu, "memory": "64Mi"}, "node_selector": LABELS,
        "tolerations": [simulated.TOLERATION],
    }  # fmt: skip
    return BACKENDS[kind].manifests(parse_job({"training_job": job}))[-1]


def volcano_job(name: str, size: int) -> Json:
    """A gang."""
    return template(name, size, "volcano")


def plain_job(name: str, size: int) -> Json:
    """As many pods of the same template from a plain Job, for Kubernetes' own scheduler."""
    pod = template(name, size, "volcano")["spec"]["tasks"][-1]["template"]
    meta = {"name": name, "namespace": HOME, "labels": {JOB_LABEL: name}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta,
            "spec": {"parallelism": size, "completions": size, "template": pod}}  # fmt: skip


def started(kube: Kube, path: str, shape: tuple[int, int], make: Callable[[str, int], Json]) -> Start:
    """Create the jobs at once; wait until their pods run."""
    count, size = shape
    # Volcano's controller may keep a job that was removed as it began, and then never looks at another of its name
    own = uuid.uuid4().hex[:6]
    jobs = [make(f"gang-{own}-{number}", size) for number in range(count)]
    with Watch(kube, {job["metadata"]["name"]: size for job in jobs}) as watch:
        begin, refused = time.monotonic(), 0
        with ThreadPoolExecutor(CLIENTS) as pool:
            for done in [pool.submit(kube.call, "POST", path, job) for job in jobs]:
                refused += isinstance(done.exception(), KubeError)
        if refused:
            raise BenchError(f"{path}: got {refused} refused creates of {count}, expected none")
        watch.wait()
    pods, seen = watch.seen.pods.values(), watch.seen
    failed = sum(bool(FAILED.search(event.get("reason") or "")) for event in warnings(kube))
    return Start(max(pod.bound for pod in pods) - begin, max(pod.running for pod in pods) - begin, failed,
                 len(seen.partial | seen.torn))  # fmt: skip


def warnings(kube: Kube) -> Iterable[Json]:
    """Events of the namespace that report something wrong."""
    query = {"fieldSelector": "type=Warning"}
    items: list[Json] = kube.call("GET", f"/api/v1/namespaces/{HOME}/events", query=query)["items"]
    return items


class Bare:
    """A client that sends requests over connections that stay open."""

    def __init__(self, kube: Kube) -> None:
        settings = kube.api.configuration
        self.host = urlsplit(settings.host).netloc
        self.context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        self.context.load_cert_chain(settings.cert_file, settings.key_file)
        self.local = threading.local()

    def send(self, method: str, path: str, body: bytes) -> None:
        """One request, and its answer."""
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection(self.host, context=self.context, timeout=LIMIT_S)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        self.local.connection.request(method, path, body, {"Content-Type": kind})
        answer = self.local.connection.getresponse()
        text = answer.read()
        if answer.status >= http.client.BAD_REQUEST:
            raise BenchError(f"{method} {path}: got {answer.status} ({text[:200]!r}), expected success")


def status(name: str) -> bytes:
    """What KWOK says of a pod that has started."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = {"running": {"startedAt": now}}
    kinds = ("Initialized", "Ready", "ContainersReady")
    return json.dumps({"status": {
        "phase": "Running", "startTime": now, "podIP": "10.0.0.1", "hostIP": "10.0.0.1",
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
        "containerStatuses": [{"name": "worker", "image": "pause", "imageID": "", "restartCount": 0, "ready": True,
                               "started": True, "state": state}],
    }, "metadata": {"name": name}}).encode()  # fmt: skip


def replayed(kube: Kube, shape: tuple[int, int]) -> Start:
    """The floor: each pod is created, bound and started, by as many connections as there are."""
    client, (count, size) = Bare(kube), shape
    pod = volcano_job("floor", size)["spec"]["tasks"][-1]["template"]
    pod |= {"apiVersion": "v1", "kind": "Pod"}
    pod["spec"]["schedulerName"] = "nobody"  # no scheduler looks at it
    bound, running = list[float](), list[float]()

    def one(number: int) -> None:
        name = f"floor-{number}"
        pod_of = {**pod, "metadata": {**pod["metadata"], "name": name}}
        target = {"apiVersion": "v1", "kind": "Node", "name": f"floor-{number % NODES}"}  # not one of KWOK's
        client.send("POST", PODS, json.dumps(pod_of).encode())
        client.send("POST", f"{PODS}/{name}/binding", json.dumps({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}).encode())  # fmt: skip
        bound.append(time.monotonic())
        client.send("PATCH", f"{PODS}/{name}/status", status(name))
        running.append(time.monotonic())

    begin = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(one, number) for number in range(count * size)]:
            done.result()
    return Start(max(bound) - begin, max(running) - begin, 0, 0)


def cleared(kube: Kube) -> None:
    """No job, no pod, no event is left of the last run."""
    empty = 0
    for _ in polls(LIMIT_S, 0.5):
        for path in (VOLCANO_JOBS, JOBS, f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{HOME}/podgroups"):
            kube.call("DELETE", path, {"propagationPolicy": "Background"}, repeat=True)
        kube.call("DELETE", PODS, {"gracePeriodSeconds": 0}, repeat=True)
        items = kube.call("GET", PODS)["items"]
        left = items or kube.call("GET", VOLCANO_JOBS)["items"] or kube.call("GET", JOBS)["items"]
        empty = 0 if left else empty + 1
        if empty == QUIET:  # a controller that worked on a removed job may have created another pod of it
            break
        # a Job's controller would take a minute to let go of its pods, at its 20 requests a second
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(functools.partial(let_go, kube), [pod for pod in items if pod["metadata"].get("finalizers")]))
    else:
        raise BenchError(late(HOME, f"{len(items)} pods", "none", LIMIT_S))
    kube.call("DELETE", f"/api/v1/namespaces/{HOME}/events", repeat=True)


def let_go(kube: Kube, pod: Json) -> None:
    """Remove a pod's finalizers, if it is still there."""
    with contextlib.suppress(KubeError):
        kube.call("PATCH", f"{PODS}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})


class Volcano:
    """The release on the lab: its own values, and those of upstream."""

    def __init__(self, kube: Kube, setting: Setting) -> None:
        self.kube, self.folder, self.kubeconfig = kube, setting.folder, setting.kubeconfig
        built = json.loads((STATE / "parts.json").read_text())
        self.helm, self.chart = f"{built['bin']['helm']}/helm", built["charts"]["volcano"]
        self.own: Json = json.loads(self.ask("get", "values", RELEASE, "--output=json"))
        self.now = self.own

    @property
    def upstream(self) -> Json:
        """Upstream's values, with this site's images and storage."""
        custom = {"ignored_provisioners": self.own["custom"]["ignored_provisioners"]}
        return {"basic": self.own["basic"], "custom": custom}

    def ask(self, *words: str) -> str:
        """Run Helm."""
        return run(self.helm, *words, f"--namespace={SYSTEM}", f"--kubeconfig={self.kubeconfig}")

    def use(self, values: Json) -> None:
        """Run Volcano with these values, and nothing of an earlier release."""
        if values == self.now:
            return
        file = self.folder / "values.json"
        file.write_text(json.dumps(values))
        self.ask("upgrade", RELEASE, self.chart, f"--values={file}", "--reset-values", "--wait",
                 f"--post-renderer={ROOT / 'roles/volcano/files/keep-crds'}")  # fmt: skip
        self.now = values
        for _ in polls(LIMIT_S, 0.5):
            pods = self.kube.call("GET", f"/api/v1/namespaces/{SYSTEM}/pods")["items"]
            wanted = len(self.kube.call("GET", DEPLOYMENTS)["items"])
            if sum(pod["status"]["phase"] in ("Running", "Pending") for pod in pods) == wanted:
                break  # those of the earlier release have ended
        job = volcano_job("probe", 1)
        self.kube.accepts(job, LIMIT_S)


def removed(kube: Kube) -> None:
    """The namespace and the nodes are gone."""
    query = {"labelSelector": ",".join(f"{key}={value}" for key, value in LABELS.items())}
    kube.call("DELETE", "/api/v1/nodes", query=query, repeat=True)
    where = f"/api/v1/namespaces/{HOME}"
    for _ in polls(LIMIT_S, 0.5):
        live = kube.get(where)
        if not live:
            return
        if "deletionTimestamp" not in live["metadata"]:
            kube.call("DELETE", where)
    raise BenchError(late(f"namespace {HOME}", "one that is being removed", "none", LIMIT_S))


@contextlib.contextmanager
def prepared(setting: Setting, lasts: str = "") -> Iterator[Volcano]:
    """The namespace and the simulated nodes, with `lasts` of simulated.kwok; the release is as before afterwards."""
    kube = setting.kube.patient(seconds=LIMIT_S)  # it repeats reads, and what may be done twice
    removed(kube)  # what a killed run has left
    kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
    volcano = Volcano(kube, setting)
    try:
        with (
            simulated.kwok(setting.kubeconfig, setting.folder, lasts),
            simulated.nodes(kube, "gangs", [SIZE] * NODES, LABELS),
        ):
            try:
                yield volcano
            finally:
                cleared(kube)
    finally:
        volcano.use(volcano.own)
        removed(kube)


def ways(volcano: Volcano) -> dict[str, Callable[[tuple[int, int]], Start]]:
    """Who starts the pods, in the order of a round."""
    kube = volcano.kube

    def gangs(values: Json, shape: tuple[int, int]) -> Start:
        volcano.use(values)
        return started(kube, VOLCANO_JOBS, shape, volcano_job)

    return {
        "ours": functools.partial(gangs, volcano.own),
        "kubernetes": lambda shape: started(kube, JOBS, shape, plain_job),
        "floor": functools.partial(replayed, kube),
        "upstream": functools.partial(gangs, volcano.upstream),
    }


def measure(setting: Setting) -> Iterator[Figure]:
    """Each way in turns; the release changes once in a round."""
    starts: dict[tuple[str, str], list[Start]] = {}
    with prepared(setting) as volcano:
        every = list(ways(volcano).items())
        for number in range(ROUNDS):
            for way, work in every if number % 2 == 0 else reversed(every):
                for shape, counts in SHAPES.items():
                    before = ticks()
                    one = work(counts)
                    one = dataclasses.replace(one, cpu_s=spent(before, ticks()))
                    cleared(volcano.kube)
                    starts.setdefault((shape, way), []).append(one)
                    setting.say(f"round {number + 1}, {shape}, {way}: bound {one.bound_s:.1f} s, running "
                                f"{one.running_s:.1f} s, {one.partial} partial")  # fmt: skip
    for shape in SHAPES:
        yield from figures(shape, {way: rows for (other, way), rows in starts.items() if other == shape})


def figures(shape: str, starts: Mapping[str, Sequence[Start]]) -> Iterator[Figure]:
    """The figures of one shape: seconds and rates beside the peers and the floor."""
    count, size = SHAPES[shape]
    title = f"{count} gangs of {size} pods"
    for key, end in (("bound", "bound"), ("running", "Running")):
        seconds = {way: [getattr(one, f"{key}_s") for one in rows] for way, rows in starts.items()}
        peer, floor = Beside.of("upstream's values", seconds["upstream"]), Beside.of("bare client", seconds["floor"])
        goal = max(peer.value / TIMES, floor.value / SHARE)
        why = f"{TIMES} x upstream's rate, or {SHARE} of the floor's"
        yield figure(f"gangs.{shape}.{key}", f"{title}, all {end}", "s", seconds["ours"], peer=peer, floor=floor,
                     goal=goal, why=why)  # fmt: skip
        jobs = Beside.of("Volcano, ours", seconds["ours"])
        yield figure(f"gangs.{shape}.{key}.jobs", f"{title} as plain Jobs, no gang, all {end}", "s",
                     seconds["kubernetes"], peer=jobs)  # fmt: skip
    rates = [count * size / one.bound_s for one in starts["ours"]]
    yield figure(f"gangs.{shape}.rate", f"{title}, bound", "pods/s", rates, better="more")
    for key in ("failed", "partial"):
        what = {"failed": "failed creates", "partial": "partial gangs"}[key]
        values = [float(getattr(one, key)) for one in starts["ours"]]
        loose = Beside.of("plain Jobs", [float(getattr(one, key)) for one in starts["kubernetes"]])
        yield figure(f"gangs.{shape}.{key}", f"{title}, {what}", "", values, peer=loose, goal=0)
    yield from where_it_goes(shape, title, starts)


def where_it_goes(shape: str, title: str, starts: Mapping[str, Sequence[Start]]) -> Iterator[Figure]:
    """CPU time of each program that takes a share worth naming."""
    ours = merged(one.cpu_s for one in starts["ours"])
    for name in sorted(ours, key=lambda name: -max(ours[name])):
        if max(ours[name]) >= LEAST_CPU_S:
            others = {way: [one.cpu_s.get(name, 0.0) for one in starts[way]] for way in ("upstream", "floor")}
            yield figure(f"gangs.{shape}.cpu.{name}", f"{title}, CPU time of {name}", "s", ours[name],
                         peer=Beside.of("upstream's values", others["upstream"]),
                         floor=Beside.of("bare client", others["floor"]))  # fmt: skip
