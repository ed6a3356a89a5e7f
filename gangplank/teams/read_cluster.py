"""Reads what a cluster has for teams: their objects, its nodes' capacity, unfinished work, the scheduler's settings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING

from gangplank.backends import device_claims
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.client import group_path, unknown_kind
from gangplank.cluster.progress import phase
from gangplank.errors import KubeError
from gangplank.k8s import quantity
from gangplank.k8s.pod_resources import is_extended
from gangplank.teams.access import job_kinds
from gangplank.teams.metadata import PART_LABEL
from gangplank.teams.plan import CLAIMABLE, KEPT

if TYPE_CHECKING:
    from collections.abc import Collection

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json
    from gangplank.teams.drift import Identity

# Every kind that team_objects renders: API version, kind and plural
KINDS: tuple[tuple[str, str, str], ...] = (
    ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    QUEUE_SYSTEM.queue,
    ("v1", "Namespace", "namespaces"),
    ("v1", "ResourceQuota", "resourcequotas"),
    ("v1", "LimitRange", "limitranges"),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    ("v1", "ServiceAccount", "serviceaccounts"),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
)


def rights() -> tuple[str, ...]:
    """What teams.yml does in the whole cluster, as verbs with plural and group."""
    kinds = [(kind, f"{plural}.{api_version.rpartition('/')[0]}".rstrip(".")) for api_version, kind, plural in KINDS]
    verbs = ("create", "patch", "delete")
    return tuple(f"{verb} {name}" for kind, name in kinds for verb in verbs if verb != "delete" or kind not in KEPT)


def everywhere(api_version: str, plural: str) -> str:
    """The path of all objects of a kind, in every namespace.

    >>> everywhere("v1", "namespaces"), everywhere("batch/v1", "jobs")
    ('/api/v1/namespaces', '/apis/batch/v1/jobs')
    """
    return f"{group_path(api_version)}/{plural}"


def objects(kube: Kube) -> list[Json]:
    """Every object of teams that the cluster has: one request per kind, several at a time."""

    def of_kind(row: tuple[str, str, str]) -> list[Json]:
        api_version, kind, plural = row
        try:
            items = kube.call("GET", everywhere(api_version, plural), query={"labelSelector": PART_LABEL})["items"]
        except KubeError as error:
            if error.status == 404:
                fix = (
                    f"install {QUEUE_SYSTEM.title} first: playbooks/site.yml"
                    if kind == QUEUE_SYSTEM.queue.kind
                    else "use Kubernetes 1.30 or newer"
                )
                raise unknown_kind(kind, api_version, fix) from None
            raise
        return [{"apiVersion": api_version, "kind": kind, **item} for item in items]

    with ThreadPoolExecutor(4) as pool:
        return [item for items in pool.map(of_kind, KINDS) for item in items]


def others(kube: Kube) -> set[Identity]:
    """The queues and priorities that are not of teams: an administrator's, or another program's."""
    kinds = [(everywhere(api_version, plural), kind) for api_version, kind, plural in KINDS if kind in CLAIMABLE]
    query = {"labelSelector": f"!{PART_LABEL}"}
    return {
        (kind, "", item["metadata"]["name"])
        for where, kind in kinds
        for item in kube.call("GET", where, query=query)["items"]
    }


def namespaces(kube: Kube) -> list[str]:
    """The names of all namespaces, of teams or not."""
    return [item["metadata"]["name"] for item in kube.call("GET", "/api/v1/namespaces")["items"]]


def capacity(kube: Kube) -> dict[str, Fraction]:
    """What all schedulable nodes offer together."""
    totals: dict[str, Fraction] = {}
    for node in kube.call("GET", "/api/v1/nodes")["items"]:
        if not node["spec"].get("unschedulable"):
            for name, text in node["status"].get("allocatable", {}).items():
                totals[name] = totals.get(name, Fraction(0)) + quantity.parse(text)
    return totals


def devices(kube: Kube) -> set[str]:
    """The extended resources and huge pages that any node advertises, whatever their amount, and the device classes."""
    nodes = kube.call("GET", "/api/v1/nodes")["items"]
    advertised = {name for node in nodes for name in node["status"].get("capacity", {})}
    classes = (kube.get(everywhere(device_claims.API_VERSION, "deviceclasses")) or {"items": []})["items"]
    by_claim = {f"{device_claims.RESOURCE}{item['metadata']['name']}" for item in classes}
    return by_claim | {name for name in advertised if is_extended(name) or name.startswith("hugepages-")}


def unfinished(kube: Kube, namespace: str) -> list[str]:
    """The jobs and pods in a namespace that have not ended, as kind and name."""
    names = []
    for kinds in job_kinds():
        for plural in kinds.plurals:
            where = f"{group_path(kinds.api_version)}/namespaces/{namespace}/{plural}"
            items = (kube.get(where) or {"items": []})["items"]
            names += [f"{plural}.{kinds.group}/{item['metadata']['name']}" for item in items if not phase(item).ended]
    pods = kube.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return names + [
        f"pods/{pod['metadata']['name']}" for pod in pods if pod["status"].get("phase") not in {"Succeeded", "Failed"}
    ]


def claims(kube: Kube) -> dict[str, dict[str, str]]:
    """All volume claims, of the teams' files or not: namespace -> name -> size."""
    sizes: dict[str, dict[str, str]] = {}
    for item in kube.call("GET", everywhere("v1", "persistentvolumeclaims"))["items"]:
        meta = item["metadata"]
        sizes.setdefault(meta["namespace"], {})[meta["name"]] = item["spec"]["resources"]["requests"]["storage"]
    return sizes


def accounts(kube: Kube, namespace: str) -> set[Identity]:
    """The service accounts in a namespace that are not of teams: an administrator's, or another program's."""
    where = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    items = kube.call("GET", where, query={"labelSelector": f"!{PART_LABEL}"})["items"]
    return {("ServiceAccount", namespace, item["metadata"]["name"]) for item in items}


def in_queues(kube: Kube, queues: Collection[str]) -> list[tuple[str, str]]:
    """What still runs or waits in some queues: the queue, and what it is."""
    if not queues:
        return []
    pod_group = QUEUE_SYSTEM.pod_group
    groups = kube.call("GET", everywhere(pod_group.api_version, pod_group.plural))["items"]
    return [
        (item["spec"]["queue"], f"{item['metadata']['namespace']}/{item['metadata']['name']}")
        for item in groups
        if (item.get("spec") or {}).get("queue") in queues and (item.get("status") or {}).get("phase") != "Completed"
    ]
