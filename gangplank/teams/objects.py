"""All objects of teams, in an order in which they can be created: guards of a namespace come before its members."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.k8s import quantity
from gangplank.site.volume_claims import volume_claim
from gangplank.teams import metadata as labels
from gangplank.teams.access import bindings, roles
from gangplank.teams.admission import policies
from gangplank.teams.metadata import metadata
from gangplank.teams.network import network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangplank.spec import Json
    from gangplank.teams.spec import QueueSpec, SiteSpec, TeamSpec

QUOTA = LIMITS = "gangplank-team"


def team_objects(teams: Sequence[TeamSpec], site: SiteSpec) -> list[Json]:
    """Everything that teams need, parents before children; the same input gives the same list.

    >>> from gangplank.teams.spec import SiteSpec
    >>> team_objects([], SiteSpec())  # without teams, nothing is shared either
    []
    """
    if not teams:
        return []
    shared = [priority(name, value) for name, value in sorted(site.priorities.items())]
    shared += [*roles(), *policies()]
    ordered = sorted(teams, key=lambda team: team.name)
    tree = [(spec, None) for spec in site.queues] + [(spec, team) for team in ordered for spec in team.queues]
    queues = [queue(spec, team) for spec, team in parents_first(tree)]
    inside = [item for team in ordered for item in namespaced(team)]
    return [*shared, *queues, *[namespace(team) for team in ordered], *inside]


Branch = tuple["QueueSpec", "TeamSpec | None"]


def parents_first(tree: Sequence[Branch]) -> list[Branch]:
    """Queues in an order in which every parent comes before its children."""
    parents = {spec.name: spec.parent for spec, _ in tree}

    def depth(name: str) -> int:
        return 1 + depth(parents[name]) if parents.get(name) else 0

    return sorted(tree, key=lambda branch: depth(branch[0].name))


def priority(name: str, value: int) -> Json:
    """A PriorityClass that team files may grant."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata(name),
        "value": value,
    }


def queue(spec: QueueSpec, team: TeamSpec | None) -> Json:
    """A Volcano queue, including every field that Volcano or its webhook would fill in."""
    share = spec.share
    body: Json = {
        "dequeueStrategy": "traverse",
        "weight": spec.weight,
        "reclaimable": spec.reclaimable,
        "parent": spec.parent or "root",
        **({"priority": spec.priority} if spec.priority else {}),
        **({"capability": amounts(share.cap)} if share.cap else {}),
        **({"deserved": amounts(share.deserved)} if share.deserved else {}),
        **({"guarantee": {"resource": amounts(share.guaranteed)}} if share.guaranteed else {}),
    }
    meta = metadata(spec.name, team, cluster=True)
    api_version, kind, _ = QUEUE_SYSTEM.queue
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": body}


def amounts(quantities: Mapping[str, str]) -> dict[str, str]:
    """Quantities in the API server's own spelling, sorted."""
    return {name: quantity.normal(quantities[name]) for name in sorted(quantities)}


def namespace(team: TeamSpec) -> Json:
    """The namespace; its annotations are what the admission reads."""
    meta = metadata(team.namespace, team, cluster=True)
    level = team.pod_security
    meta["labels"] |= {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "audit", "warn")}
    meta["annotations"] = {
        labels.QUEUES: ",".join(team.leaves),
        labels.SCHEDULERS: ",".join((labels.SCHEDULER, *team.schedulers)),
        labels.PRIORITIES: ",".join(team.priorities),
        labels.ACCOUNTS: ",".join(("default", *team.service_accounts)),
        labels.IMAGES: ",".join(team.images),
        labels.TOLERATIONS: ",".join(team.tolerations),
        labels.NODE_LABELS: ",".join(team.node_labels),
        labels.RUNTIME_CLASSES: ",".join(team.runtime_classes),
        labels.SECRETS: ",".join(team.secrets),
        labels.RESOURCES: ",".join(sorted({name for queue in team.queues for name in queue.share.cap})),
        labels.DOMAINS: ",".join(team.annotation_domains),
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def quota(team: TeamSpec) -> Json:
    """What the namespace may hold: the queue's cap, the team's own claims and no others, no access from outside."""
    hard = {f"requests.{name}": text for name, text in amounts(team.queues[0].share.cap).items()}
    stored = sum((quantity.parse(claim.size) for claim in team.claims), Fraction(0))
    hard |= {
        "persistentvolumeclaims": str(len(team.claims)),
        "requests.storage": quantity.canonical(stored, binary=True),
        "services.loadbalancers": "0",
        "services.nodeports": "0",
    }
    if team.max_jobs is not None:
        # Each kind of job is counted separately: Kubernetes cannot sum over kinds.
        by_plural = sorted(BACKENDS.values(), key=lambda backend: backend.plural)
        hard |= {f"count/{backend.counted}": str(team.max_jobs) for backend in by_plural}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata(QUOTA, team), "spec": {"hard": hard}}


def limits(team: TeamSpec) -> Json:
    """Default requests of a container: a quota refuses pods without requests."""
    item = {"type": "Container", "defaultRequest": amounts(team.default_requests)}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata(LIMITS, team), "spec": {"limits": [item]}}


def claims(team: TeamSpec) -> list[Json]:
    """The team's volume claims."""
    objects = []
    for claim in team.claims:
        meta = metadata(claim.name, team)
        meta["labels"] = {**claim.labels, **meta["labels"]}
        objects.append(volume_claim(meta, quantity.normal(claim.size), claim.access, claim.storage_class))
    return objects


def namespaced(team: TeamSpec) -> list[Json]:
    """Everything in a team's namespace, its members' bindings last."""
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, team)}
        for name in team.service_accounts
    ]
    return [quota(team), limits(team), *network(team), *accounts, *claims(team), *bindings(team)]
