"""All objects of teams, in an order in which they can be created: guards of a namespace come before its members."""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from gangplank.backends.device_claims import device_class
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.k8s import quantity
from gangplank.site.volume_claims import volume_claim
from gangplank.teams import metadata as labels
from gangplank.teams.access import bindings, cluster_binding, roles, rows
from gangplank.teams.admission import policies
from gangplank.teams.metadata import metadata
from gangplank.teams.network import network
from gangplank.teams.spec import LEAST, NEEDED, SPARE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gangplank.spec import Json
    from gangplank.teams.spec import QueueSpec, Share, SiteSpec, TeamSpec

QUOTA = LIMITS = "gangplank-team"
FINISHED = 10  # pods that may exist for each that may run: those of finished jobs stay until the jobs are removed
# What controllers make of jobs, one for each: it stays if a member deletes the job and orphans it
MADE = ("horizontalpodautoscalers.autoscaling", "jobsets.jobset.x-k8s.io", "networkpolicies.networking.k8s.io")
CLAIMS = ("resourceclaims", "resourceclaimtemplates")  # of devices: none where the cap names no device class
PER_JOB = {"resourceclaimtemplates": 2}  # its master may claim another number of devices than its workers


def team_objects(
    teams: Sequence[TeamSpec],
    site: SiteSpec,
    devices: Collection[str] = (),
    stored: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Json]:
    """Everything that teams need, parents before children; the same input gives the same list.

    `devices` are the extended resources of the cluster's nodes: a quota limits only what it names. `stored` are the
    sizes of a namespace's volume claims that the team's file does not describe: they stay, and its quota counts them.

    >>> from gangplank.teams.spec import SiteSpec
    >>> team_objects([], SiteSpec())  # without teams, nothing is shared either
    []
    """
    if not teams:
        return []
    shared = [priority(name, value) for name, value in sorted(site.priorities.items())]
    ordered = sorted(teams, key=lambda team: team.name)
    shared += [*policies(), *roles()]  # a right comes after what limits it
    tree = [(spec, None) for spec in site.queues] + [(spec, team) for team in ordered for spec in team.queues]
    devices = {site.gpu_resource, *devices}
    queues = [queue(spec, team, devices) for spec, team in parents_first(tree)]
    inside = [item for team in ordered for item in namespaced(team, devices, stored)]
    readers = [cluster_binding(team) for team in ordered]
    return [*shared, *queues, *readers, *[namespace(team) for team in ordered], *inside]


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


def queue(spec: QueueSpec, team: TeamSpec | None, devices: Collection[str]) -> Json:
    """A Volcano queue, including every field that Volcano or its webhook would fill in."""
    share = spec.share
    capability = limits_of(share, devices)
    body: Json = {
        "dequeueStrategy": "traverse",
        "weight": spec.weight,
        "reclaimable": spec.reclaimable,
        "parent": spec.parent or "root",
        **({"priority": spec.priority} if spec.priority else {}),
        **({"capability": capability} if capability else {}),
        **({"deserved": amounts(share.deserved)} if share.deserved else {}),
        **({"guarantee": {"resource": amounts(share.guaranteed)}} if share.guaranteed else {}),
    }
    meta = metadata(spec.name, team, cluster=True)
    api_version, kind, _ = QUEUE_SYSTEM.queue
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": body}


def amounts(quantities: Mapping[str, str]) -> dict[str, str]:
    """Quantities in the API server's own spelling, sorted."""
    return {name: quantity.normal(quantities[name]) for name in sorted(quantities)}


def limits_of(share: Share, devices: Collection[str]) -> dict[str, str]:
    """The most that a share allows of each resource that it limits, those included that its cap does not name."""
    limits = {name: share.limit(name) for name in {*NEEDED.values(), *devices, *share.cap}}
    return amounts({name: text for name, text in limits.items() if text is not None})


def namespace(team: TeamSpec) -> Json:
    """The namespace; its annotations are what the admission reads."""
    meta = metadata(team.namespace, team, cluster=True)
    level = team.pod_security
    devices = {name for queue in team.queues for name in queue.share.cap}
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
        labels.RESOURCES: ",".join(sorted(name for name in devices - {*NEEDED.values()} if not device_class(name))),
        labels.DEVICE_CLASSES: ",".join(team.device_classes),
        labels.DOMAINS: ",".join(team.annotation_domains),
        labels.PODS: team.counts.get("pods", ""),
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def quota(team: TeamSpec, devices: Collection[str], stored: Sequence[str]) -> Json:
    """What the namespace may hold: the queue's cap, the team's claims and those that stay, no access from outside."""
    limits = limits_of(team.queues[0].share, devices)
    hard = {counted(name): text for name, text in limits.items()}
    hard |= {f"limits.{name}": text for name, text in limits.items() if name in NEEDED.values()}
    sizes = [*(claim.size for claim in team.claims), *stored]
    total = sum(map(quantity.parse, sizes), Fraction(0))
    hard |= {
        "persistentvolumeclaims": str(len(sizes)),
        "requests.storage": quantity.normal(quantity.canonical(total, binary=True)),
        "services.loadbalancers": "0",
        "services.nodeports": "0",
    }
    hard |= {name: quantity.normal(text) for name, text in counts(team).items()}
    if not team.device_classes:
        hard |= {f"count/{kind}.resource.k8s.io": "0" for kind in CLAIMS}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata(QUOTA, team), "spec": {"hard": hard}}


def counted(resource: str) -> str:
    """The name under which a quota counts a resource.

    >>> counted("nvidia.com/gpu"), counted("deviceclass/gpu.nvidia.com")
    ('requests.nvidia.com/gpu', 'gpu.nvidia.com.deviceclass.resource.k8s.io/devices')
    """
    of_class = device_class(resource)
    return f"{of_class}.deviceclass.resource.k8s.io/devices" if of_class else f"requests.{resource}"


def counts(team: TeamSpec) -> dict[str, str]:
    """How many objects of each kind that a member may create there may be, and of those that controllers make of them.

    Each kind of job is counted separately: Kubernetes cannot sum over kinds.
    """
    hard = {}
    kinds = [(kind, group) for _, group, plurals, verbs in rows() if "create" in verbs for kind in plurals]
    for kind, group in sorted(kinds):
        most = None if team.max_jobs is None else PER_JOB.get(kind, 1) * team.max_jobs
        count = most if group else team.counts.get(kind)
        if "/" not in kind and count is not None:
            hard[f"count/{kind}.{group}".rstrip(".")] = str(count)
    jobs = [f"count/{name}" for name in MADE] if team.max_jobs is not None else []
    hard |= dict.fromkeys(jobs, str(SPARE + (team.max_jobs or 0)))
    if "pods" in team.counts:  # count/pods has the finished ones too
        pods = FINISHED * int(team.counts["pods"])
        hard |= {"pods": team.counts["pods"], "count/pods": str(pods)}
        if team.max_jobs is not None:  # a pod without a gang has one of its own
            gangs, with_group = QUEUE_SYSTEM.pod_group, [kind for kind, group in kinds if group]
            hard[f"count/{gangs.plural}.{gangs.group}"] = str(pods + len(with_group) * team.max_jobs)
    return hard


def limits(team: TeamSpec) -> Json:
    """The least that a container may request, and what it has if it does not say."""
    defaults = amounts(team.default_requests)
    share = team.queues[0].share
    limited = {name: text for name, text in defaults.items() if share.limit(name) is not None}
    item = {
        "type": "Container",
        "min": amounts(LEAST),
        "defaultRequest": defaults,
        **({"default": limited} if limited else {}),
    }
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata(LIMITS, team), "spec": {"limits": [item]}}


def claims(team: TeamSpec) -> list[Json]:
    """The team's volume claims."""
    objects = []
    for claim in team.claims:
        meta = metadata(claim.name, team)
        meta["labels"] = {**claim.labels, **meta["labels"]}
        objects.append(volume_claim(meta, quantity.normal(claim.size), claim.access, claim.storage_class))
    return objects


def namespaced(team: TeamSpec, devices: Collection[str], stored: Mapping[str, Sequence[str]]) -> list[Json]:
    """Everything in a team's namespace, its members' bindings last."""
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, team)}
        for name in team.service_accounts
    ]
    own = quota(team, devices, stored.get(team.namespace, ()))
    return [own, limits(team), *network(team), *accounts, *claims(team), *bindings(team)]
