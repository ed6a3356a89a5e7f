"""Which Helm release an object belongs to. Helm refuses to install over an object of nobody, or of another release.

checkOwnership in Helm's pkg/action/validate.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangplank.spec import Json

POLICY = "helm.sh/resource-policy"
RELEASE, NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"


def release_of(live: Json) -> tuple[str, str] | None:
    """Name and namespace of the release; None for an object of no release.

    >>> release_of({"metadata": {"annotations": {RELEASE: "a", NAMESPACE: "b"}}}), release_of({"metadata": {}})
    (('a', 'b'), None)
    """
    notes = live["metadata"].get("annotations") or {}
    return (notes[RELEASE], notes.get(NAMESPACE, "")) if RELEASE in notes else None
