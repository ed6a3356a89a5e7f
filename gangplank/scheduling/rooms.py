"""Which rule keeps a pod from a node, whatever is free on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gangplank.k8s.conditions import has_condition
from gangplank.k8s.nodes import KEEPS_OUT, taint_text, tolerated
from gangplank.k8s.selectors import matches
from gangplank.scheduling.demand import claims_of
from gangplank.scheduling.snapshot import host_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangplank.scheduling.snapshot import Room
    from gangplank.spec import Json

# Taints that the node controller sets: the state of the node itself says the same, and says it better
OWN_TAINTS = {f"node.kubernetes.io/{name}" for name in ("not-ready", "unreachable", "unschedulable")}

# Whether or not a node has this taint already (pkg/scheduler/framework/plugins/nodeunschedulable), in both schedulers
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class Bar(NamedTuple):
    """What keeps a pod from a node: the rule, and which taint, label, claim, driver or port."""

    rule: str  # of RULES in node_causes
    what: str = ""


def ready(node: Json) -> bool:
    """Whether a node takes pods, by its kubelet's own word."""
    return has_condition(node, "Ready")


def bars(pod: Json, room: Room, pinned: Mapping[str, Json], allowed: Mapping[str, Json]) -> list[Bar]:
    """The rules that keep a pod from a node, whatever is free on it.

    `pinned` has the node affinity of its volumes, `allowed` that of the classes which have yet to make some.
    """
    node, labels = room.node, room.node["metadata"].get("labels") or {}
    kept: list[Bar] = []
    if not ready(node):
        kept.append(Bar("not-ready"))
    tolerations = pod.get("tolerations") or ()
    if node["spec"].get("unschedulable") and not tolerated(CORDON, tolerations):
        kept.append(Bar("cordoned"))
    for taint in node["spec"].get("taints") or ():
        own = taint["key"] in OWN_TAINTS
        if taint["effect"] in KEEPS_OUT and not own and not tolerated(taint, tolerations):
            kept.append(Bar("taint", taint_text(taint)))
    for key, value in (pod.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            kept.append(Bar("selector", f"{key}={value}"))
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity and not selected(affinity, node):
        kept.append(Bar("affinity"))
    claims = [claim for claim in claims_of(pod) if claim in pinned and not selected(pinned[claim], node)]
    kept += [Bar("volume-node", claim) for claim in claims]
    claims = [claim for claim in claims_of(pod) if claim in allowed and not selected(allowed[claim], node)]
    kept += [Bar("volume-topology", claim) for claim in claims]
    taken = {port.number for port in host_ports(pod) if any(map(port.clashes, room.ports))}
    kept += [Bar("host-port", str(number)) for number in sorted(taken)]
    return kept


def selected(selector: Json, node: Json) -> bool:
    """Whether a node selector's terms, of which one must hold, select a node.

    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#NodeSelector
    """
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    for term in selector.get("nodeSelectorTerms") or ():
        expressions, own = term.get("matchExpressions") or [], term.get("matchFields") or []
        if (expressions or own) and matches(expressions, labels) and matches(own, fields):
            return True
    return False
