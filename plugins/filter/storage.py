"""Filters over gangplank/site/storage.py and pending.py: classes and claims, and what charts want to hear of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.site import storage
from gangplank.site.claim_pending import unbound, why_pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Json = dict[str, Any]


def class_problems(classes: list[Json], live: list[Json], drivers: list[Json]) -> list[str]:
    """What is wrong with the classes of an inventory, a line each."""
    return [str(problem) for problem in storage.class_problems(classes, live, storage.names(drivers))]


def claim_problems(*given: list[Json]) -> list[str]:
    """What is wrong with the claims of an inventory, a line each."""
    return [str(problem) for problem in storage.claim_problems(*given)]


def pending(claims: Iterable[Json], *seen: Any) -> list[str]:
    """Why claims are Pending, a line each."""
    return [line for claim in claims if (line := why_pending(claim, *seen))]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "class_problems": class_problems,
            "claim_problems": claim_problems,
            "local_class": storage.local_class,
            "csi_class": storage.csi_class,
            "unbound": lambda claims, classes: [claim for claim in claims if unbound(claim, classes)],
            "why_pending": pending,
        }
