"""A team, and what its site holds for all teams, as typed values: parse_team returns them, team_objects reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangplank.backends.device_claims import device_class
from gangplank.k8s.names import ACCESS_MODE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

ROLES = ("viewer", "trainer", "lead")
SPARE = 10  # objects of each kind that belong to no job, e.g. the ConfigMap kube-root-ca.crt
UNLIMITED = "unlimited"  # instead of an amount of a cap
NEEDED = {"cpu": "cpu", "memory": "memory", "ephemeral_storage": "ephemeral-storage"}  # by every pod: our names, theirs
# The least that a container may request, or pods without end would fit below a cap. The init containers of the
# training operator request no less.
LEAST = {"cpu": "10m", "memory": "4Mi", "ephemeral-storage": "1Mi"}


@dataclass(frozen=True)
class Member:
    """A member of a team: a user or a group, by its name in the cluster, or a service account."""

    kind: str  # User, Group or ServiceAccount
    name: str
    role: str  # one of ROLES
    namespace: str = ""  # of a service account


@dataclass(frozen=True)
class Share:
    """Amounts of a queue by Kubernetes' resource names (cpu, memory, nvidia.com/gpu), as quantities."""

    guaranteed: Mapping[str, str] = field(default_factory=dict)  # kept free for it
    deserved: Mapping[str, str] = field(default_factory=dict)  # returned to it after others borrowed it
    cap: Mapping[str, str] = field(default_factory=dict)  # the most it may use; empty: as the queue above it

    def limit(self, resource: str) -> str | None:
        """The most that it may use of a resource; None without a limit of its own.

        >>> Share(cap={"cpu": "4", "memory": UNLIMITED}).limit("nvidia.com/gpu")
        '0'
        """
        text = self.cap.get(resource, "0") if self.cap else UNLIMITED
        return None if text == UNLIMITED else text


@dataclass(frozen=True)
class QueueSpec:
    """One Volcano queue."""

    name: str  # the full name in Volcano
    share: Share = Share()
    weight: int = 1
    priority: int = 0
    reclaimable: bool = True
    parent: str = ""  # empty: root
    path: str = ""  # the place in its file, for messages

    def variable(self, field: str) -> str:
        """A field of it as the inventory names it.

        >>> QueueSpec("vision", path="team").variable("cap"), QueueSpec("all", path="site.queues[0]").variable("cap")
        ('team_cap', 'team_site_queues[0].cap')
        """
        start, _, rest = f"{self.path}.{field}".partition(".")
        return f"{'team_site_' if start == 'site' else 'team_'}{rest}"


@dataclass(frozen=True)
class Claim:
    """A PersistentVolumeClaim of the team."""

    name: str
    size: str
    access: tuple[str, ...] = (ACCESS_MODE,)
    storage_class: str = ""  # empty: the cluster's default
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outside:
    """Addresses that a team's pods may reach beyond their namespace and DNS."""

    cidr: str
    ports: tuple[int, ...] = ()  # empty: all


@dataclass(frozen=True)
class TeamSpec:
    """One team, with every default filled in."""

    name: str
    namespace: str
    members: tuple[Member, ...]
    queues: tuple[QueueSpec, ...]  # the team's own first, then its children
    max_jobs: int | None = None  # of each kind; None: unlimited
    counts: Mapping[str, str] = field(default_factory=dict)  # the most pods, configmaps, ...; others are unlimited
    priorities: tuple[str, ...] = ()
    images: tuple[str, ...] = ()  # patterns with *; empty: any
    default_requests: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    job_defaults: Mapping[str, Any] = field(default_factory=dict)
    talk_in: tuple[str, ...] = ()  # namespaces
    talk_out: tuple[Outside, ...] = ()
    pod_security: str = "restricted"
    schedulers: tuple[str, ...] = ()  # in addition to Volcano's
    service_accounts: tuple[str, ...] = ()  # in addition to default
    source: str = "team"  # the file
    # What its pods and objects may name beyond the defaults of gangplank/teams/conditions.py
    tolerations: tuple[str, ...] = ()  # taints, as key or key=value
    node_labels: tuple[str, ...] = ()  # as key or key=value
    runtime_classes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()  # of its namespace
    annotation_domains: tuple[str, ...] = ()  # of annotations and labels, subdomains included

    @property
    def device_classes(self) -> tuple[str, ...]:
        """The device classes of which its jobs may claim devices: those that a cap of its queues names."""
        caps = {name: text for queue in self.queues for name, text in queue.share.cap.items() if text != "0"}
        return tuple(sorted(filter(None, map(device_class, caps))))

    @property
    def leaves(self) -> tuple[str, ...]:
        """The queues that its jobs may name: Volcano refuses jobs in a queue that has children."""
        return tuple(queue.name for queue in self.queues[1:] or self.queues)


@dataclass(frozen=True)
class SiteSpec:
    """What a site holds for all its teams."""

    gpu_resource: str = "nvidia.com/gpu"
    queues: tuple[QueueSpec, ...] = ()  # parents of teams' queues
    priorities: Mapping[str, int] = field(default_factory=dict)  # PriorityClasses that team files may grant
    capacity: Mapping[str, Fraction] | None = None  # the most that guarantees may add up to; None: what the nodes have
    source: str = "site"
