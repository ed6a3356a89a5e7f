"""The kinds that a cluster has, and what others keep in a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.cluster.client import FORBIDDEN, METADATA, NOT_FOUND
from gangplank.errors import KubeError
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

# Written by the cluster's own controllers, about other objects; a Lease is of a program that has ended by then.
OF_CONTROLLERS = {"endpoints", "endpointslices", "events", "leases"}
# What every namespace has; the last ones on OpenShift.
IN_EVERY = {
    "configmaps": {"kube-root-ca.crt", "openshift-service-ca.crt"},
    "serviceaccounts": {"default", "builder", "deployer"},
    "rolebindings": {"system:deployers", "system:image-builders", "system:image-pullers"},
}
SHOWN = 3  # kinds that cannot be listed, in a message
FAILED = 500  # status codes from here on are of a server that failed
TOKENS = ("kubernetes.io/service-account-token", "kubernetes.io/dockercfg")  # types of Secrets that controllers make


def kinds(kube: Kube, silent: list[str] | None = None) -> Iterator[tuple[str, Json]]:
    """Every kind whose objects can be listed and removed, as discovery has it, with the path of its group and version.

    One kind in several versions comes once, in the version that the cluster prefers if that has it. A group whose
    server answers with an error, as an APIService without pods does, is added to `silent`, or raises KubeError.
    """
    yield from of_version(kube, "/api/v1", set(), silent)
    for group in kube.call("GET", "/apis")["groups"]:
        preferred = group["preferredVersion"]["groupVersion"]
        versions = [item["groupVersion"] for item in group["versions"]]
        names = set[str]()
        for version in sorted(versions, key=lambda version: version != preferred):
            yield from of_version(kube, f"/apis/{version}", names, silent)


def of_version(kube: Kube, where: str, names: set[str], silent: list[str] | None) -> Iterator[tuple[str, Json]]:
    """The kinds of one version of a group that were not seen in another one; none if it went away meanwhile."""
    try:
        resources = (kube.get(where) or {}).get("resources") or []
    except KubeError as error:
        if silent is None or error.status < FAILED:
            raise
        silent.append(where.rpartition("apis/")[2])
        return
    for resource in resources:
        name = resource["name"]
        if "/" not in name and name not in names and {"list", "delete"} <= {*resource["verbs"]}:
            names.add(name)
            yield where, resource


def of_others(kube: Kube, namespace: str) -> list[str]:
    """What keeps a namespace, as Kind/name: objects that no other owns, and that are not being removed.

    What every namespace has does not count. Kinds that cannot be listed keep it too, in a last entry for each reason.
    """
    left, hidden, silent = list[str](), list[str](), list[str]()
    for group, resource in kinds(kube, silent):
        plural, kind = resource["name"], resource["kind"]
        if not resource["namespaced"] or plural in OF_CONTROLLERS:
            continue
        query = {"fieldSelector": ",".join(f"type!={name}" for name in TOKENS)} if plural == "secrets" else {}
        try:
            answer = kube.call("GET", f"{group}/namespaces/{namespace}/{plural}", query=query, accept=METADATA)
        except KubeError as error:
            if error.status == FORBIDDEN:
                hidden.append(kind)
            elif error.status >= FAILED:
                silent.append(kind)
            elif error.status != NOT_FOUND:  # its CRD went away meanwhile
                raise
            continue
        metas = [item["metadata"] for item in answer["items"] or []]  # null if there are none
        free = [meta["name"] for meta in metas if not (meta.get("ownerReferences") or meta.get("deletionTimestamp"))]
        left += [f"{kind}/{name}" for name in free if name not in IN_EVERY.get(plural, ())]
    unknown = {"which this account may not list": hidden, "whose server does not answer": silent}
    return left + [f"those of {listed(names, SHOWN)}, {why}" for why, names in unknown.items() if names]
