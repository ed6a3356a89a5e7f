"""Filters for the role helm_release: what a chart's CRDs and programs leave behind, and why Helm failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.cluster.helm_failures import temporary

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


def remaining_objects(objects: Iterable[Iterable[Json]], crds: Iterable[Json], own: Sequence[str]) -> list[str]:
    """The objects of CRDs, a list for each CRD, that do not belong to the release: as Kind/name or Kind/namespace/name.

    `own` lists those of the release: by name, or all of a kind as Kind/*.

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


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "leftover_objects": leftover_objects,
            "crd_paths": crd_paths,
            "remaining_objects": remaining_objects,
            "helm_outage": helm_outage,
        }
