"""Rules between pods: what is not computed, and which nodes the anti-affinity of pods that run keeps a job's from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.k8s.selectors import chosen
from gangplank.scheduling.demand import DEFAULT_SCHEDULER
from gangplank.scheduling.rooms import Bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.scheduling.demand import Demand, Part
    from gangplank.scheduling.snapshot import Snapshot
    from gangplank.spec import Json

REPELLED = Bar("pod-anti-affinity")
SPREAD = "what the job's topology spread constraints leave (not computed here)"
NEAR = "what the job's required affinity to pods leaves (not computed here)"
USUAL = (DEFAULT_SCHEDULER, QUEUE_SYSTEM.scheduler)
OTHERS = "what the required anti-affinity of running pods leaves (not computed here)"


def strangers(job: Demand, state: Snapshot) -> list[str]:
    """Names of schedulers, which the job's pods have, of which no sign says that anybody serves them."""
    if state.schedulers is None:
        return []
    return [name for name in job.schedulers if name not in {*USUAL, *state.schedulers}]


def repelled(job: Demand, state: Snapshot, barred: Sequence[Sequence[list[Bar]]]) -> Sequence[Sequence[list[Bar]]]:
    """What keeps each part from each node, and the pods there that may refuse to share it with the job's pods."""
    if not state.pods.repelling:
        return barred
    labels = {room.name: room.node["metadata"].get("labels") or {} for room in state.rooms}
    rows: list[list[list[Bar]]] = []
    for part, row in zip(job.parts, barred, strict=True):
        domains = {
            (term["topologyKey"], labels.get(pod["spec"]["nodeName"], {}).get(term["topologyKey"]))
            for pod, terms in state.pods.repelling
            for term in terms
            if concerns(term, str(pod["metadata"]["namespace"]), job.namespace, part)
        }
        near = [any(labels[room.name].get(key) == value for key, value in domains if value) for room in state.rooms]
        rows.append([[*bars, REPELLED] if close else bars for bars, close in zip(row, near, strict=True)])
    return rows


def concerns(term: Json, home: str, namespace: str, part: Part) -> bool:
    """Whether a term of a pod in the namespace `home` may be about pods of a part.

    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodAntiAffinity
    """
    named, selector = term.get("namespaces") or [], term.get("namespaceSelector")
    if selector is None and namespace not in (named or [home]):
        return False
    return any(chosen(term.get("labelSelector"), labels) for labels in part.labels or ({},))
