"""Jobs that do not run, each for one cause that is made real on a cluster, and what `gangplank why` says of them."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gangplank.backends import BACKENDS
from gangplank.backends.pod_template import JOB_LABEL
from gangplank.cluster.overview import overview
from gangplank.cluster.situation import situation
from gangplank.jobs.parse import parse_job
from gangplank.scheduling.why import Diagnosis, diagnose
from gangplank.wait import polls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from gangplank.cluster.client import Kube
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
IMAGE = "gangplank.dev/trainer:0.1.0"
NO_IMAGE = "gangplank.dev/no-such-image:1"
LIMIT_S = 300.0
SMALL = {"cpu": "10m", "memory": "32Mi"}
RESOURCE = {"requests": {"cpu": "10m", "memory": "32Mi"}}
WAITING = ["sleep", "900"]
OF_THE_CLUSTER = {"Queue": "queues.scheduling.volcano.sh", "PersistentVolume": "pv"}  # kinds, as kubectl names them
OF_THE_CLUSTER |= {"RuntimeClass": "runtimeclass", "CSIDriver": "csidriver", "StorageClass": "storageclass"}
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
JOBS = {"matchExpressions": [{"key": JOB_LABEL, "operator": "Exists"}]}  # all pods of jobs


@dataclass
class Story:
    """A job in a namespace of its own, what exists beside it, and the code of the cause that `why` has to name."""

    code: str  # "a|b" if it is first b, and later a
    change: Json = field(default_factory=dict)
    backend: str = "volcano"
    beside: tuple[Json, ...] = ()  # objects, in the job's namespace unless they have none
    raw: Callable[[Json], None] | None = None  # changes the manifest
    written: Json | None = None  # by hand, instead of the library's
    labels: Json = field(default_factory=dict)  # of the namespace
    submitted: bool = True
    words: str = ""  # that the first line has
    around: Callable[[Lab], AbstractContextManager[object]] = contextlib.nullcontext  # changes the cluster meanwhile


def pods_of(manifest: Json) -> Iterator[Json]:
    """The specs of a manifest's pods."""
    spec = manifest["spec"]
    for part in spec.get("tasks") or (spec.get("pytorchReplicaSpecs") or {"": spec}).values():
        yield part["template"]["spec"]


def changed(**fields: Any) -> Callable[[Json], None]:
    def change(manifest: Json) -> None:
        for spec in pods_of(manifest):
            spec.update(fields)

    return change


def in_container(**fields: Any) -> Callable[[Json], None]:
    def change(manifest: Json) -> None:
        for spec in pods_of(manifest):
            spec["containers"][0].update(fields)

    return change


def mounting(**volume: Any) -> Callable[[Json], None]:
    def change(manifest: Json) -> None:
        for spec in pods_of(manifest):
            spec.setdefault("volumes", []).append({"name": "more", **volume})
            spec["containers"][0].setdefault("volumeMounts", []).append({"name": "more", "mountPath": "/more"})

    return change


def near(topology: str = "kubernetes.io/hostname", selector: Json = JOBS) -> Json:
    """A rule about the nodes on which there are some pods of the namespace, or none."""
    return {HARD: [{"topologyKey": topology, "labelSelector": selector}]}


# Each pod of the job on a node of its own
APART = Story("pod-affinity", {"workers": 3}, raw=changed(affinity={"podAntiAffinity": near()}), words="its own")


def suspended(manifest: Json) -> None:
    manifest["spec"]["suspend"] = True


def crashing(manifest: Json) -> None:
    changed(restartPolicy="OnFailure")(manifest)
    manifest["spec"]["backoffLimit"] = 100


def claim(**more: Any) -> Json:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}, **more.pop("spec", {})}
    meta = {"name": "data", **more}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def queue(name: str, parent: str = "root", **spec: Any) -> Json:
    body = {"weight": 1, "parent": parent, **spec}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": body}


def named(kind: str, **fields: Any) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "more"}, **fields}


def volume(name: str, mode: str, **spec: Any) -> Json:
    """A small volume of no class."""
    body = {"accessModes": [mode], "capacity": {"storage": "1Mi"}, "storageClassName": "", **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": body}


def holder(container: Json | None = None, **spec: Any) -> Json:
    """A pod beside the job, which does nothing."""
    body = {"name": "a", "image": IMAGE, "command": WAITING, "resources": RESOURCE, **(container or {})}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [body], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holder"}, "spec": spec}


def affine(key: str) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]
    return {"nodeSelectorTerms": terms}


def described(name: str, story: Story) -> Json:
    """The story's job, as people describe it."""
    fields: Json = {"name": name, "namespace": f"why-{name}", "image": IMAGE, "command": WAITING}
    fields |= {"backend": story.backend, "workers": 1, "resources": SMALL}
    if "max_retries" not in BACKENDS[story.backend].refuses:
        fields["max_retries"] = 0
    return {**fields, **story.change}


def manifests(name: str, story: Story) -> list[Json]:
    """What the story submits, the job last."""
    if story.written:
        return [{**story.written, "metadata": {"name": name, "namespace": f"why-{name}"}}]
    *beside, job = BACKENDS[story.backend].manifests(parse_job(described(name, story)))
    if story.raw:
        story.raw(job)
    return [*beside, job]


def begin(lab: Lab, name: str, story: Story) -> None:
    """Make the namespace and all that the story needs, and submit its job."""
    space = f"why-{name}"
    text = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space, "labels": story.labels}})
    lab.wait(f"namespace {space} of an earlier test is gone", lambda: lab.kubectl("create", "-f", "-", stdin=text))
    for item in story.beside:
        lab.kubectl("apply", "-n", space, "-f", "-", stdin=json.dumps(item))
        if item["kind"] == "Queue":
            own = ("queues.scheduling.volcano.sh", item["metadata"]["name"], "-o", "jsonpath={.status.state}")
            lab.wait(f"queue {own[1]} is open", partial(lab.kubectl, "get", *own))
    if story.code == "volume-terminating":
        lab.kubectl("delete", "pvc", "data", "-n", space, "--wait=false")
    if story.submitted:
        submit(lab, name, story)


def submit(lab: Lab, name: str, story: Story) -> None:
    """Submit the story's job."""
    for item in manifests(name, story):
        lab.kubectl("create", "-f", "-", stdin=json.dumps(item))


def end(lab: Lab, name: str, story: Story) -> None:
    """Remove all of it."""
    space = f"why-{name}"
    if story.code == "volume-terminating":
        freed = ("--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        lab.kubectl("patch", "pvc", "data", "-n", space, *freed, check=False)
    lab.kubectl("delete", "namespace", space, "--wait=false", "--ignore-not-found", check=False)
    for item in story.beside:
        if plural := OF_THE_CLUSTER.get(item["kind"]):
            lab.kubectl("delete", plural, item["metadata"]["name"], "--wait=false", "--ignore-not-found", check=False)


def asked(kube: Kube, job: Json, *, live: bool = True) -> Diagnosis:
    """The answer about a job, now."""
    meta = job["metadata"]
    live_job = kube.find(meta["namespace"], meta["name"], [(job["apiVersion"], job["kind"])]) if live else job
    assert live_job is not None
    return diagnose(situation(kube, live_job, live=live))


def checked(diagnosis: Diagnosis, code: str) -> Diagnosis:
    """The answer, which blames nobody, or the cause of this code, and says how that is proven."""
    if diagnosis.cause:
        assert diagnosis.cause.code in code.split("|"), diagnosis.text()
        assert diagnosis.proof, diagnosis.text()
    return diagnosis


def named_cause(kube: Kube, job: Json, code: str, *, live: bool = True, limit_s: float = LIMIT_S) -> Diagnosis:
    """The answer that names the cause; until then no other is blamed."""
    for _ in polls(limit_s, 1.0):
        diagnosis = checked(asked(kube, job, live=live), code)
        if diagnosis.cause:
            return diagnosis
    raise AssertionError(diagnosis.text())


@contextlib.contextmanager
def story(lab: Lab, name: str, one: Story) -> Iterator[Json]:
    """One story by itself."""
    with one.around(lab):
        try:
            begin(lab, name, one)
            yield manifests(name, one)[-1]
        finally:
            end(lab, name, one)


@contextlib.contextmanager
def silent(lab: Lab, namespace: str, deployment: str, backend: str = "volcano") -> Iterator[None]:
    """A component without pods; on exit it has one again, and a job of the back-end is accepted."""
    where = ("deployment", deployment, "-n", namespace)
    labels = lab.get(*where)["spec"]["selector"]["matchLabels"]
    pods = ("pods", "-n", namespace, "-l", ",".join(f"{key}={value}" for key, value in labels.items()))
    lab.kubectl("scale", *where, "--replicas=0")
    try:
        lab.wait(f"{deployment} has no pod", lambda: not lab.get(*pods))
        yield
    finally:
        lab.kubectl("scale", *where, "--replicas=1")
        lab.wait(f"{deployment} is up", lambda: lab.kubectl("rollout", "status", *where, "--timeout=60s"))
        accepted(lab, backend)


def accepted(lab: Lab, backend: str) -> None:
    """Wait until the API server and its webhooks accept a job of a back-end."""
    after = manifests("after", Story("", backend=backend))[-1]
    text = json.dumps(after | {"metadata": {"name": "after", "namespace": "default"}})
    lab.wait("jobs are accepted", lambda: lab.kubectl("create", "--dry-run=server", "-f", "-", stdin=text))


@contextlib.contextmanager
def ignored(lab: Lab, *configurations: str) -> Iterator[None]:
    """Webhooks, by KIND/NAME, without whose answer the API server accepts objects; on exit it refuses them again."""

    def write(policy: str) -> None:
        for one in configurations:
            paths = [f"/webhooks/{number}/failurePolicy" for number in range(len(lab.get(one)["webhooks"]))]
            change = [{"op": "replace", "path": where, "value": policy} for where in paths]
            lab.kubectl("patch", one, "--type=json", "-p", json.dumps(change))

    try:
        write("Ignore")
        yield
    finally:
        write("Fail")


def healthy(lab: Lab, kube: Kube, backend: str) -> None:
    """A job that runs and ends well is blamed at no moment."""
    with story(lab, f"healthy-{backend}", Story("", {"command": ["sleep", "5"]}, backend)) as job:
        lines = [""]
        until = time.monotonic() + LIMIT_S
        while not any(f"nothing is wrong: it is {end}" in lines[-1] for end in ("Complete", "Succeeded")):
            assert time.monotonic() < until, lines
            diagnosis = asked(kube, job)
            assert diagnosis.cause is None, diagnosis.text()
            lines.append(diagnosis.first_line)
            time.sleep(0.5)


def runs_by_hand(lab: Lab, kube: Kube, name: str, written: Json) -> None:
    """A job that kubectl submitted: it is blamed at no moment until both of its pods run, and status counts them."""
    with story(lab, name, Story("", written=written)) as job:
        for _ in polls(LIMIT_S, 1.0):
            line = checked(asked(kube, job), "").first_line
            if line.endswith(", 2 of 2 pods run"):
                break
        assert line.startswith(f"{name}: nothing is wrong: it is "), line
        assert line.endswith(", 2 of 2 pods run"), line
        jobs = next(one for one in overview(kube, f"why-{name}").sections if one.name == "jobs")
        assert [(row["job"], row["running"], row["pods"]) for row in jobs.rows] == [(name, 2, 2)]


def kubeconfig_of_nobody(lab: Lab, kubeconfig: str, folder: Path, namespace: str) -> str:
    """Of an account to which nothing is granted: the namespace's own."""
    lab.wait("an account", lambda: lab.kubectl("get", "serviceaccount", "default", "-n", namespace))
    admin = yaml.safe_load(Path(kubeconfig).read_text())
    cluster = admin["clusters"][0]["cluster"]
    if "certificate-authority" in cluster:
        authority = Path(cluster.pop("certificate-authority")).read_bytes()
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    token = lab.kubectl("create", "token", "default", "-n", namespace, "--duration=1h").strip()
    context = {"name": "nobody", "context": {"cluster": "lab", "user": "nobody"}}
    body = {
        "apiVersion": "v1", "kind": "Config", "current-context": "nobody", "contexts": [context],
        "clusters": [{"name": "lab", "cluster": cluster}], "users": [{"name": "nobody", "user": {"token": token}}],
    }  # fmt: skip
    file = folder / "nobody.kubeconfig"
    file.write_text(json.dumps(body))
    return str(file)


@contextlib.contextmanager
def under_way(lab: Lab, stories: dict[str, Story]) -> Iterator[None]:
    """All stories at once, none of which changes the cluster."""
    assert all(one.around is contextlib.nullcontext for one in stories.values())
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda item: begin(lab, *item), stories.items()))
        yield
    finally:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda item: end(lab, *item), reversed(stories.items())))
