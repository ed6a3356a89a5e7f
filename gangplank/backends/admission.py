"""How pods and pod templates name their queue, in CEL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.backends.base import Path
from gangplank.backends.pod_template import CONTAINER_SECURITY, POD_SECURITY
from gangplank.backends.queueing import QUEUE_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Mapping

ANNOTATIONS = "['" + "', '".join(QUEUE_SYSTEM.annotations) + "']"


# The spec of a pod that every level of Pod Security takes; it never runs
PROBE_POD = {
    "restartPolicy": "Never",
    "securityContext": POD_SECURITY,
    "containers": [{"name": "pytorch", "image": "probe", "securityContext": CONTAINER_SECURITY}],
}


def of_pod(pod: str) -> str:
    """The queues that a pod or a pod template names; '' when the queue system would have to take its default queue."""
    named = f"{ANNOTATIONS}.map(k, {pod}.?metadata.?annotations[?k].orValue('')).filter(q, q != '')"
    grouped = f"{pod}.?metadata.?annotations[?'{QUEUE_SYSTEM.group}'].orValue('') != ''"
    elsewhere = f"{pod}.spec.?schedulerName.orValue('') != '{QUEUE_SYSTEM.scheduler}'"
    return f"{named}.size() > 0 || {grouped} || {elsewhere} ? {named} : ['']"


def of_template(
    name: str,
    group: str,
    *resources: str,
    probe: Mapping[str, Any],
    template: str = "object.spec.template",
    inner: str = "[]",
) -> Path:
    """A kind that makes pods of one template: its pods are judged too, but only this refusal reaches the submitter."""
    return Path(
        name, group, resources, queues=of_pod(template), templates=f"[{template}]", inner=inner, probe=probe
    )
