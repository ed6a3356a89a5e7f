"""A site without kubelets in a network of its own: etcd, the API server and one of the schedulers, all real.

Its nodes only say that they are ready. A pod that the scheduler has placed stays as it is, so nothing but the
scheduler decides anything. It needs root, and no lab.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.shadow import programs
from gangplank.shadow.exact import KUBERNETES, OURS
from gangplank.shadow.plane import HERE, Plane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
T = TypeVar("T")
VOLCANO = QUEUE_SYSTEM.program
ROOT = Path(__file__).resolve().parents[2]
CLONE_NEWNET = 0x40000000
BEFORE = "2026-01-01T00:00:00Z"
PLACE, CONFIGURATION = "/volcano.scheduler", "volcano-scheduler.conf"
NUMBERS = itertools.count()
AUDIT, ACCOUNT = "audit.log", "shadow"  # a file of an audited site, and who its kubeconfig is for
METHODS = {"list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "deletecollection": "DELETE"}
POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}


@functools.cache
def shown(place: str) -> Path:
    """Where a part of lab/versions.yml lies; it is built if it is missing."""
    command = [sys.executable, "-m", "lab.build", "--show", place]
    return Path(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


def item(api_version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> Json:
    """An object as the store has it."""
    meta = {"name": name, "uid": f"{kind}-{next(NUMBERS)}", "creationTimestamp": BEFORE, **fields.pop("metadata", {})}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": meta | ({"namespace": namespace} if namespace else {}),
        **fields,
    }


def node(name: str, cpu: str = "8", memory: str = "32Gi", **spec: Any) -> tuple[str, Json]:
    """A node that is ready."""
    sizes = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "100Gi"}
    status = {"allocatable": sizes, "capacity": sizes, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"kubernetes.io/hostname": name}
    return f"minions/{name}", item("v1", "Node", name, metadata={"labels": labels}, spec=spec, status=status)


def namespace(name: str) -> Iterator[tuple[str, Json]]:
    """A namespace with its account."""
    spec, status = {"finalizers": ["kubernetes"]}, {"phase": "Active"}
    yield f"namespaces/{name}", item("v1", "Namespace", name, spec=spec, status=status)
    yield f"serviceaccounts/{name}/default", item("v1", "ServiceAccount", "default", name)


def queue(name: str, **spec: Any) -> tuple[str, Json]:
    """An open queue of Volcano."""
    group = "scheduling.volcano.sh"
    stored = item(f"{group}/v1beta1", "Queue", name, spec={"weight": 1, **spec}, status={"state": "Open"})
    return f"{group}/queues/{name}", stored


def volcano(version: str, configuration: str) -> Iterator[tuple[str, Json]]:
    """What upstream's chart leaves in the API server, as far as it is read: CRDs, Deployment, configuration."""
    for file in sorted((shown("charts.volcano") / "crd/bases").glob("*.yaml")):
        crd = yaml.safe_load(file.read_text())
        crd["metadata"] |= {"uid": file.name, "creationTimestamp": BEFORE}
        yield f"apiextensions.k8s.io/customresourcedefinitions/{crd['metadata']['name']}", crd
    home, name = "volcano-system", "volcano-scheduler"
    yield from namespace(home)
    yield from map(queue, ("root", "default"))
    data = item("v1", "ConfigMap", "volcano-scheduler-configmap", home, data={CONFIGURATION: configuration})
    yield f"configmaps/{home}/{data['metadata']['name']}", data
    container = {
        "name": name,
        "image": f"docker.io/volcanosh/vc-scheduler:{version}",
        "args": ["--logtostderr", f"--scheduler-conf={PLACE}/{CONFIGURATION}", "--leader-elect=true"],
        "volumeMounts": [{"name": "configuration", "mountPath": PLACE}],
    }
    volumes = [{"name": "configuration", "configMap": {"name": data["metadata"]["name"]}}]
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": volumes}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    yield f"deployments/{home}/{name}", item("apps/v1", "Deployment", name, home, spec=spec)


class BareSite:
    """The site, for what runs in its network."""

    def __init__(self, plane: Plane, kube: Kube) -> None:
        self.plane, self.kube = plane, kube

    def command(self, *words: str) -> list[str]:
        """The command gangplank at this site."""
        return [sys.executable, "-m", "gangplank", *words, "--kubeconfig", str(self.plane.kubeconfig)]

    def gangplank(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command as a user does."""
        return subprocess.run(self.command(*words), cwd=ROOT, capture_output=True, text=True, check=False, timeout=420)

    def requests(self) -> list[str]:
        """The requests of those with a kubeconfig, each with its method. The API server notes one before it answers."""
        entries = map(json.loads, (self.plane.folder / AUDIT).read_text().splitlines())
        return [f"{METHODS.get(entry['verb'], entry['verb'].upper())} {entry['requestURI']}" for entry in entries
                if entry["stage"] == "RequestReceived" and entry["user"]["username"] == ACCOUNT]

    def schedule(self, name: str, configuration: str = "") -> None:
        """Start a scheduler of the site."""
        here = [f"--bind-address={HERE}", "--leader-elect=false", "--authentication-skip-lookup=true"]
        words = OURS if name == VOLCANO else here
        flag = "--scheduler-conf"
        self.plane.start_scheduler({"program": name, "words": words, "configuration": configuration, "flag": flag})


@contextlib.contextmanager
def in_a_network() -> Iterator[Callable[[Callable[[], T]], T]]:
    """A way to call functions in a new network, which is gone with the thread that is in it."""

    def enter() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")

    with ThreadPoolExecutor(1, initializer=enter) as pool:
        yield lambda call: pool.submit(call).result()


@contextlib.contextmanager
def bare_site(
    folder: Path, state: list[tuple[str, Json]], version: str = "", *, audited: bool = False
) -> Iterator[BareSite]:
    """A site with a state, of the versions that the lab pins; its Deployment may say another version of Volcano's.

    One that is audited keeps all requests.
    """
    here = {name: str(shown(part) / name) for name, part in (
        ("etcd", "bin.etcd"), ("kube-apiserver", "bin.kubernetes"), (KUBERNETES, "bin.kubernetes"),
        (VOLCANO, "bin.volcano"),
    )}  # fmt: skip
    own = version or programs.version_of(Path(here[VOLCANO]))
    configuration = (shown("charts.volcano") / "config" / CONFIGURATION).read_text()
    with Plane(here, folder) as plane:
        plane.start_etcd()
        plane.load([*volcano(own, configuration), *namespace("default"), *state])
        policy, log = folder / "audit-policy.json", folder / AUDIT
        policy.write_text(json.dumps(POLICY))
        words = [f"--audit-policy-file={policy}", f"--audit-log-path={log}"] if audited else []
        site = BareSite(plane, plane.start_api(*words))
        yield site

