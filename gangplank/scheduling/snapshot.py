"""A copy of a cluster's state, as far as it decides whether a job starts: a value to alter and to ask again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.k8s.nodes import answers
from gangplank.scheduling.amounts import amounts, requests

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gangplank.scheduling.amounts import Amounts
    from gangplank.scheduling.settings import Configuration
    from gangplank.spec import Json

ENDED = {"Succeeded", "Failed"}
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  nothing is bound to it here
OF_NAMESPACE = {  # field of a snapshot with objects of one namespace: their plural
    "quotas": "resourcequotas",
    "limits": "limitranges",
    "claims": "persistentvolumeclaims",
    "events": "events",
}
RUNTIMES, PRIORITIES = "runtimeclasses", "priorityclasses"
NODES, PODS, QUEUES, GROUPS = "nodes", "pods of all namespaces", "queues", "pod groups of all namespaces"


class HostPort(NamedTuple):
    """A port of a host."""

    protocol: str
    number: int
    address: str

    def clashes(self, other: HostPort) -> bool:
        """Whether no host has both for two pods (CheckConflict in pkg/scheduler/framework/types.go)."""
        address = self.address == other.address or EVERY_ADDRESS in {self.address, other.address}
        return address and self[:2] == other[:2]


@dataclass(frozen=True)
class Pods:
    """Pods that have not ended, and sums of them, which are made once however often a state is altered."""

    items: tuple[Json, ...] = ()

    @cached_property
    def taken(self) -> list[tuple[Json, Amounts]]:
        """Pods with a node, and what each takes."""
        return [(pod, requests(pod["spec"])) for pod in self.items if pod["spec"].get("nodeName")]

    @cached_property
    def used(self) -> dict[str, Amounts]:
        """What pods take, by node."""
        by_node: dict[str, Amounts] = {}
        for pod, amounts_of_pod in self.taken:
            used = by_node.setdefault(pod["spec"]["nodeName"], {})
            for name, value in amounts_of_pod.items():
                used[name] = used.get(name, 0) + value
        return by_node

    @cached_property
    def ports(self) -> dict[str, set[HostPort]]:
        """The ports of hosts that are taken, by node."""
        by_node: dict[str, set[HostPort]] = {}
        for pod in self.items:
            if (node := pod["spec"].get("nodeName")) and (taken := host_ports(pod["spec"])):
                by_node.setdefault(node, set()).update(taken)
        return by_node

    def ports_of(self, node: str) -> frozenset[HostPort]:
        """The ports that are taken of a host."""
        return frozenset(self.ports.get(node, ()))

    @cached_property
    def repelling(self) -> list[tuple[Json, list[Json]]]:
        """Pods with a node that refuse to share it, or what is near it, with some others; and with which."""
        rows = []
        for pod in self.items:
            affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
            if terms := affinity.get("requiredDuringSchedulingIgnoredDuringExecution"):
                rows.append((pod, terms))
        return [(pod, terms) for pod, terms in rows if pod["spec"].get("nodeName")]

    @cached_property
    def promised(self) -> int:
        """Pods without a node for which a scheduler makes room on one."""
        waiting = (pod for pod in self.items if not pod["spec"].get("nodeName"))
        return sum(bool((pod.get("status") or {}).get("nominatedNodeName")) for pod in waiting)

    @cached_property
    def by_group(self) -> dict[tuple[str, str], Amounts]:
        """What pods with a node take, by namespace and name of their gang."""
        by_group: dict[tuple[str, str], Amounts] = {}
        for pod, amounts_of_pod in self.taken:
            meta = pod["metadata"]
            group = (meta.get("annotations") or {}).get(QUEUE_SYSTEM.group)
            if group:
                used = by_group.setdefault((meta["namespace"], group), {})
                for name, value in amounts_of_pod.items():
                    used[name] = used.get(name, 0) + value
        return by_group

    @cached_property
    def mounted(self) -> dict[tuple[str, ...], tuple[tuple[Json, ...], Pods]]:
        """By CSI drivers: the volumes by which these pods were counted, and the pods that request theirs."""
        return {}


@dataclass(frozen=True)
class Room:
    """A node and what is free on it."""

    node: Json
    free: Amounts
    total: Amounts
    ports: frozenset[HostPort] = frozenset()

    @property
    def name(self) -> str:
        """The node's name."""
        return str(self.node["metadata"]["name"])


def host_ports(pod: Json) -> set[HostPort]:
    """The ports of its host that a pod takes, those of its sidecars included."""
    sidecars = [one for one in pod.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    return {
        HostPort(
            port.get("protocol") or "TCP",
            int(port.get("hostPort") or port.get("containerPort") or 0),
            port.get("hostIP") or EVERY_ADDRESS,
        )
        for container in (*pod["containers"], *sidecars)
        for port in container.get("ports") or ()
        if port.get("hostPort") or pod.get("hostNetwork")
    }


@dataclass(frozen=True)
class Snapshot:
    """Objects as the API server has them; those of a namespace are of the job's. `unread` says what is not in it."""

    nodes: tuple[Json, ...] = ()
    pods: Pods = field(default_factory=Pods)
    ended: tuple[Json, ...] = ()  # pods that have
    queues: tuple[Json, ...] = ()
    groups: tuple[Json, ...] = ()
    quotas: tuple[Json, ...] = ()
    limits: tuple[Json, ...] = ()
    claims: tuple[Json, ...] = ()
    volumes: tuple[Json, ...] = ()
    classes: tuple[Json, ...] = ()
    priorities: tuple[Json, ...] = ()
    runtimes: tuple[Json, ...] = ()  # RuntimeClasses
    csi_nodes: tuple[Json, ...] | None = None  # None if no volume of the job needs to know them, or they are unread
    csi_drivers: tuple[Json, ...] = ()
    ignored: frozenset[str] | None = None  # provisioners that the queue system's scheduler ignores; None if unread
    events: tuple[Json, ...] = ()
    schedulers: frozenset[str] | None = None  # who has looked at pods, beside the usual ones; None: nobody asked
    settings: Configuration | None = None  # of the queue system's scheduler; None if it may not be read
    unread: Mapping[str, str] = field(default_factory=dict)  # by what was not read: why
    own: frozenset[str] = frozenset()  # uids of pods of the job itself, which stay where they are

    @cached_property
    def rooms(self) -> list[Room]:
        """Every node with what its pods leave free."""
        result = []
        for node in self.nodes:
            name, total = node["metadata"]["name"], amounts((node.get("status") or {}).get("allocatable"))
            used = self.pods.used.get(name, {})
            free = {resource: value - used.get(resource, 0) for resource, value in total.items()}
            result.append(Room(node, free, total, self.pods.ports_of(name)))
        return result

    @cached_property
    def drivers_of(self) -> dict[str, dict[str, int | None]]:
        """The CSI drivers of each node, and how many volumes it may have of each; None without a limit."""
        return {
            item["metadata"]["name"]: {
                one["name"]: (one.get("allocatable") or {}).get("count") for one in item["spec"].get("drivers") or ()
            }
            for item in self.csi_nodes or ()
        }

    @cached_property
    def away(self) -> frozenset[str]:
        """The nodes that do not answer."""
        return frozenset(node["metadata"]["name"] for node in self.nodes if not answers(node))

    @property
    def home(self) -> Snapshot:
        """What is of the job's namespace."""
        unread = {name: why for name, why in self.unread.items() if name in OF_NAMESPACE.values()}
        return Snapshot(unread=unread, **{name: getattr(self, name) for name in OF_NAMESPACE})

    def within(self, home: Snapshot) -> Snapshot:
        """The state for a job of another namespace: `home` has the objects of that one, and which are unread."""
        unread = {name: why for name, why in self.unread.items() if name not in OF_NAMESPACE.values()}
        fields = {name: getattr(home, name) for name in OF_NAMESPACE}
        return replace(self, unread=unread | dict(home.unread), **fields)

    def without(self, uids: Collection[str], group: str = "") -> Snapshot:
        """The state without a job's own pods and its gang, as if it were to be submitted."""
        own = [pod for pod in self.pods.items if pod["metadata"]["uid"] in uids]
        if not own and not group:
            return self
        rest = tuple(pod for pod in self.pods.items if pod["metadata"]["uid"] not in uids)
        groups = tuple(item for item in self.groups if item["metadata"].get("uid") != group)
        return replace(self, pods=Pods(rest), groups=groups)


def living(pods: Collection[Json]) -> Pods:
    """The pods that have not ended."""
    return Pods(tuple(pod for pod in pods if not has_ended(pod)))


def has_ended(pod: Json) -> bool:
    """Whether a pod has ended, well or not."""
    return (pod.get("status") or {}).get("phase") in ENDED
