"""Gather what site/preflight.py judges, from a cluster and from this machine; nothing is changed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gangplank.cluster.choice import ORDER, ca_hashes, other_cluster
from gangplank.cluster.client import CONFLICT, FORBIDDEN, NOT_FOUND
from gangplank.cluster.deployed import DEPLOYMENTS
from gangplank.cluster.releases import NAMESPACES, third_party
from gangplank.errors import KubeError, Problem
from gangplank.site.components import COMPONENTS
from gangplank.site.preflight import INSTALL, Check, Facts, checks, places_of, programs
from gangplank.site.rights import installation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gangplank.cluster.client import Kube
    from gangplank.site.preflight import Wanted
    from gangplank.spec import Json

THREADS = 8
HELM_S = 20  # until it has said its version
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Node autoscalers, each with an object in the cluster, which is there even if the provider runs the autoscaler itself
AUTOSCALERS = {
    "Karpenter": f"{CRDS}/nodepools.karpenter.sh",
    "the cluster autoscaler": "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status",
}
# A pod of Pod Security's strictest level, as jobs have them; a dry run stores nothing.
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "gangplank-preflight"},
    "spec": {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "master",
                "image": "gangplank.dev/trainer:0.1.0",
                "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}


def preflight(kube: Kube, wanted: Wanted, path: str, expected: str = "") -> list[Check]:
    """All checks of a cluster that answers; KubeError if it does not.

    `path` is where programs are looked for. `expected` is the cluster that the inventory names, "" for any. Of another
    one, nothing more is asked.
    """
    version = str(kube.call("GET", "/version")["gitVersion"])
    if expected and (problems := tuple(other_cluster(kube, expected))):
        return [Check("cluster", problems=problems), of_machine(wanted, path)]
    return checks(gather(kube, wanted, path, version), wanted)


def unanswered(error: KubeError, wanted: Wanted, path: str) -> list[Check]:
    """The checks without a cluster to ask: why there is none, and those of this machine."""
    fix = f"choose another kubeconfig (it is that of the command line, else of {ORDER})"
    problem = error.problem or Problem("cluster", str(error), "an answer of the API server", fix)
    return [Check("cluster", problems=(problem,)), of_machine(wanted, path)]


def of_machine(wanted: Wanted, path: str) -> Check:
    """The check of this machine's programs."""
    return programs(machine(path), wanted)


def machine(path: str) -> Facts:
    """The facts of this machine alone: where its programs are, and the version of Helm, "" without an answer."""
    places = {name: shutil.which(name, path=path) for name in INSTALL}
    answer = ""
    if helm := places["helm"]:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = [helm, "version", "--short"]
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HELM_S).stdout.strip()
    return Facts(version="", programs=places, helm_version=answer)


def gather(kube: Kube, wanted: Wanted, path: str, version: str) -> Facts:
    """The facts; None for what this account may not read."""
    crds = [name for component in wanted.releases for name, _ in COMPONENTS[component].crds]
    denied = kube.denied(installation(wanted.releases))
    with ThreadPoolExecutor(THREADS) as pool:
        lists = {
            "classes": "/apis/storage.k8s.io/v1/storageclasses",
            "drivers": "/apis/storage.k8s.io/v1/csidrivers",
            "nodes": "/api/v1/nodes",
            "pods": "/api/v1/pods",
            "services": "/api/v1/services",
            "namespaces": "/api/v1/namespaces",
            "endpoints": "/apis/discovery.k8s.io/v1/endpointslices",
            "slices": "/apis/resource.k8s.io/v1/resourceslices",
            "deployments": DEPLOYMENTS,
            "daemonsets": "/apis/apps/v1/daemonsets",
            "validating": f"{ADMISSION}/validatingwebhookconfigurations",
            "mutating": f"{ADMISSION}/mutatingwebhookconfigurations",
        }
        answers = pool.map(lambda where: _items(kube, where), lists.values())
        found: Mapping[str, Any] = dict(zip(lists, answers, strict=True))
        definitions = pool.map(lambda name: _crd(kube, name), crds)
        known: list[Json] | None = []
        try:
            known = [item for item in definitions if item]
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            known = None
    space, refusal = _refusal(kube)
    return replace(
        machine(path),
        version=version,
        denied=denied,
        classes=found["classes"],
        drivers=found["drivers"],
        crds=known,
        third_party=third_parties(kube, wanted),
        workloads=_both("Deployment", found["deployments"], "DaemonSet", found["daemonsets"]),
        webhooks=_both(
            "ValidatingWebhookConfiguration", found["validating"], "MutatingWebhookConfiguration", found["mutating"]
        ),
        ready_services=None if found["endpoints"] is None else frozenset(_ready(found["endpoints"])),
        services=None if found["services"] is None else frozenset(map(_place, found["services"])),
        namespaces=found["namespaces"],
        nodes=found["nodes"],
        autoscaler=next((name for name, where in AUTOSCALERS.items() if _exists(kube, where)), ""),
        pods=found["pods"],
        slices=found["slices"],
        pod_space=space,
        pod_refusal=refusal,
    )


def third_parties(kube: Kube, wanted: Wanted) -> dict[tuple[str, str], Problem]:
    """What is wrong with third-party releases under a default name, as far as this account sees it."""
    problems = {}
    for release, namespace in places_of(wanted):
        try:
            problem = third_party(kube, release, namespace, kube.get(f"{NAMESPACES}/{namespace}"))
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            continue
        if problem:
            problems[release, namespace] = problem
    return problems


def report(kube: Kube | None, found: Iterable[Check]) -> Json:
    """The checks as JSON, with the cluster that they are of; None if no kubeconfig names one."""
    return {
        "cluster": kube and {"address": kube.api.configuration.host, "origin": kube.origin, "ca": ca_hashes(kube)},
        "checks": [
            {
                "name": check.name,
                "state": check.state.lower(),
                "finding": check.finding,
                "problems": [vars(problem) for problem in check.problems],
            }
            for check in found
        ],
    }


def _items(kube: Kube, where: str) -> list[Json] | None:
    try:
        items: list[Json] = kube.call("GET", where)["items"]
    except KubeError as error:
        if error.status not in {FORBIDDEN, NOT_FOUND}:
            raise
        return None
    return items


def _crd(kube: Kube, name: str) -> Json | None:
    return kube.get(f"{CRDS}/{name}")


def _exists(kube: Kube, where: str) -> bool:
    """Whether an object exists, as far as this account may know."""
    try:
        return kube.get(where) is not None
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return False


def _both(kind: str, items: list[Json] | None, other: str, others: list[Json] | None) -> list[Json] | None:
    if items is None or others is None:
        return None
    return [{**item, "kind": name} for name, some in ((kind, items), (other, others)) for item in some]


def _place(item: Json) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _ready(slices: Iterable[Json]) -> Iterable[str]:
    for item in slices:
        service = (item["metadata"].get("labels") or {}).get("kubernetes.io/service-name")
        ready = ((endpoint.get("conditions") or {}).get("ready", True) for endpoint in item.get("endpoints") or [])
        if service and any(ready):
            yield f"{item['metadata']['namespace']}/{service}"


def _refusal(kube: Kube) -> tuple[str, str]:
    """The namespace of the kubeconfig, or `default` until that exists, and why it refuses a pod as jobs have them."""
    for space in dict.fromkeys((kube.namespace, "default")):
        try:
            kube.call("POST", f"/api/v1/namespaces/{space}/pods", POD, {"dryRun": "All"})
        except KubeError as error:
            if error.status == NOT_FOUND and space != "default":
                continue
            unable = error.status == FORBIDDEN and "cannot create resource" in str(error)  # `rights` reports that
            return space, "" if unable or error.status == CONFLICT else str(error)
        break
    return space, ""
