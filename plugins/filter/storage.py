"""Filters over gangplank/site: storage classes, the releases that install them, and volume claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.site import storage, volume_claims
from gangplank.site.claim_pending import unbound, why_pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Json = dict[str, Any]


def class_problems(classes: list[Json], live: list[Json], drivers: list[Json]) -> list[str]:
    """What is wrong with the classes of an inventory, a line each."""
    return [str(problem) for problem in storage.class_problems(classes, live, storage.names(drivers))]


def release_problems(classes: list[Json], inputs: Json) -> list[str]:
    """What is wrong with the inputs that the releases of these classes need, a line each."""
    return [str(problem) for problem in storage.release_problems(classes, inputs)]


def claim_problems(claims: list[Json], classes: list[Json], live: list[Json], live_classes: list[Json]) -> list[str]:
    """What is wrong with the volume claims of an inventory, a line each."""
    return [str(problem) for problem in volume_claims.claim_problems(claims, classes, live, live_classes)]


def claim_paths(claims: Iterable[Json]) -> list[str]:
    """Where the API server has volume claims.

    >>> claim_paths([{"name": "data", "namespace": "default"}])
    ['/api/v1/namespaces/default/persistentvolumeclaims/data']
    """
    return [f"/api/v1/namespaces/{claim['namespace']}/persistentvolumeclaims/{claim['name']}" for claim in claims]


def pending(claims: Iterable[Json], classes: list[Json], events: list[Json], pods: list[Json]) -> list[str]:
    """Why volume claims are Pending, a line each."""
    return [line for claim in claims if (line := why_pending(claim, classes, events, pods))]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "class_problems": class_problems,
            "release_problems": release_problems,
            "claim_problems": claim_problems,
            "storage_releases": storage.releases,
            "left_classes": storage.left_classes,
            "volume_claims": lambda claims: [volume_claims.inventory_claim(claim) for claim in claims],
            "claim_paths": claim_paths,
            "unbound": lambda claims, classes: [claim for claim in claims if unbound(claim, classes)],
            "why_pending": pending,
        }
