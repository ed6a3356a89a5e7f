"""Filters for the role helm_release: what a chart leaves behind, why Helm failed, and which pods are not ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.cluster.client import WRITER
from gangplank.cluster.helm_failures import temporary
from gangplank.cluster.progress import waiting_reasons
from gangplank.k8s.helm import release_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Json = dict[str, Any]


def leftover_objects(leftovers: Iterable[Json], namespace: str) -> list[Json]:
    """Objects to delete, by kind and name.

    >>> leftover_objects([{"kind": "Secret", "name": "cert"}], "volcano-system")
    [{'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'cert', 'namespace': 'volcano-system'}}]
    """
    return [
        {
            "apiVersion": item.get("api_version", "v1"),
            "kind": item["kind"],
            "metadata": {"name": item["name"], "namespace": namespace},
        }
        for item in leftovers
    ]


def own_crds(crds: Iterable[Json], release: str, namespace: str) -> list[Json]:
    """The CRDs of a release, and those that its role has applied; those of another installation are not among them.

    >>> notes = {"meta.helm.sh/release-name": "volcano", "meta.helm.sh/release-namespace": "volcano-system"}
    >>> crds = [{"metadata": {"name": "a", "annotations": notes}},
    ...         {"metadata": {"name": "b", "managedFields": [{"manager": "gangplank"}]}},
    ...         {"metadata": {"name": "c", "managedFields": [{"manager": "kubectl"}]}}]
    >>> [crd["metadata"]["name"] for crd in own_crds(crds, "volcano", "volcano-system")]
    ['a', 'b']
    >>> [crd["metadata"]["name"] for crd in own_crds(crds, "volcano", "default")]
    ['b']
    """
    return [
        crd
        for crd in crds
        if release_of(crd) == (release, namespace)
        or WRITER in (part.get("manager") for part in crd["metadata"].get("managedFields") or [])
    ]


def crd_paths(crds: Iterable[Json]) -> list[str]:
    """Where the API server lists the objects of CRDs, each in its stored version.

    >>> versions = [{"name": "v1alpha1", "storage": False}, {"name": "v1", "storage": True}]
    >>> crd_paths([{"spec": {"group": "toys.example.com", "versions": versions, "names": {"plural": "toys"}}}])
    ['/apis/toys.example.com/v1/toys']
    """
    specs = [crd["spec"] for crd in crds]
    versions = [next(item["name"] for item in spec["versions"] if item["storage"]) for spec in specs]
    return [
        f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        for spec, version in zip(specs, versions, strict=True)
    ]


def remaining_objects(
    objects: Iterable[Iterable[Json]], crds: Iterable[Json], own: Sequence[str], release: Sequence[str] = ()
) -> list[str]:
    """The objects of CRDs, a list for each CRD, that do not belong to the release: as Kind/name or Kind/namespace/name.

    `own` lists those of the release: by name, or all of a kind as Kind/*. So are those of its manifest, if `release`,
    its name and namespace, is named.

    >>> toys = [{"metadata": {"name": "ball", "namespace": "default"}}, {"metadata": {"name": "root"}}]
    >>> crds = [{"spec": {"names": {"kind": "Toy"}}}]
    >>> remaining_objects([toys], crds, ["Toy/root"]), remaining_objects([toys], crds, ["Toy/*"])
    (['Toy/default/ball'], [])
    """
    kinds = tuple(name.removesuffix("*") for name in own if name.endswith("/*"))
    parts = [
        (crd["spec"]["names"]["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for crd, items in zip(crds, objects, strict=True)
        for item in items
        if not release or release_of(item) != tuple(release)
    ]
    names = ["/".join(filter(None, part)) for part in parts]
    return [name for name in names if name not in own and not name.startswith(kinds)]


def helm_outage(failure: Json) -> str:
    r"""Why Helm failed, if that may be over in a moment, from the result of a task that ran it; '' otherwise.

    >>> helm_outage({"msg": "Exited 1.\nstderr: Error: Kubernetes cluster unreachable: EOF\n"})
    'Kubernetes cluster unreachable: EOF'
    """
    texts = [str(failure.get(name) or "") for name in ("stderr", "msg")]
    return next(filter(None, map(temporary, texts)), "")


def unready_pods(pods: Iterable[Json]) -> list[str]:
    """Why pods of a release are not ready, a line each.

    >>> unready = [{"type": "Ready", "status": "False", "message": "containers with unready status: [web]"}]
    >>> unready_pods([{"metadata": {"name": "web-0"}, "status": {"phase": "Running", "conditions": unready}}])
    ['web-0: it runs, but containers with unready status: [web]']
    """
    lines: list[str] = []
    for pod in pods:
        status = pod.get("status") or {}
        running = [
            f"{pod['metadata']['name']}: it runs, but {condition.get('message', 'it is not ready')}"
            for condition in status.get("conditions") or []
            if (condition["type"], condition["status"], status.get("phase")) == ("Ready", "False", "Running")
        ]
        lines += waiting_reasons([pod]) or running
    return lines


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "leftover_objects": leftover_objects,
            "own_crds": own_crds,
            "crd_paths": crd_paths,
            "remaining_objects": remaining_objects,
            "helm_outage": helm_outage,
            "unready_pods": unready_pods,
        }
