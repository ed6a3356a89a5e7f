"""What all gangs have in common, on every back-end that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.backends.queueing import VOLCANO
from gangplank.k8s.build import containers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gangplank.spec import Json

WHY = "the gang that the pod belongs to: no pod of it starts before all fit"
TOGETHER = "what the scheduler must place together, or not at all"


def pod_group(meta: Json, spec: Json) -> Json:
    """The gang as the scheduler reads it."""
    return {"apiVersion": VOLCANO.pod_group.api_version, "kind": VOLCANO.pod_group.kind, "metadata": meta, "spec": spec}


def unrequested(parts: Iterable[tuple[str, Any]], *, limits_count: bool) -> Iterator[str]:
    """Devices with a limit alone: a gang's admission counts requests, or limits if no request is set at all."""
    for name, part in parts:
        pod = (part.get("template") or {}).get("spec") or {}
        for container in containers(pod):
            resources = container.get("resources") or {}
            requests = resources.get("requests")
            alone = [key for key in resources.get("limits") or {} if "/" in key and key not in (requests or {})]
            if alone and not (limits_count and requests is None):
                yield f"{name}: {', '.join(alone)} has a limit but no request: the gang's admission does not count it"
