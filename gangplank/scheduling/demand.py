"""What a job asks of a scheduler: how many pods of which shape, how many of them at least, in which queue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.k8s.build import clone
from gangplank.scheduling.amounts import amounts, plus, requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangplank.scheduling.amounts import Amounts
    from gangplank.spec import Json

# What a scheduler reads of a pod's spec beside its containers' resources and ports
READ = (
    "activeDeadlineSeconds", "affinity", "hostNetwork", "nodeName", "nodeSelector", "overhead", "preemptionPolicy",
    "priorityClassName", "resourceClaims", "resources", "runtimeClassName", "schedulerName", "schedulingGates",
    "tolerations", "topologySpreadConstraints",
)  # fmt: skip
DEFAULT_SCHEDULER = "default-scheduler"
UNFORESEEN = "which pods its manifest becomes"  # cannot be said of a job without a demand


@dataclass(frozen=True)
class Part:
    """Pods of a job that are alike for a scheduler."""

    pods: tuple[str, ...]
    spec: Json
    minimum: int  # of them that must start together
    labels: tuple[Mapping[str, str], ...] = ()  # of the pods, each set once

    @property
    def requests(self) -> Amounts:
        """What each of them takes."""
        return requests(self.spec)


@dataclass(frozen=True)
class Demand:
    """A job, as a scheduler sees it."""

    name: str
    namespace: str
    parts: tuple[Part, ...]
    queue: str = ""  # "" if it goes to none
    gang: bool = False  # no pod starts before all fit
    least: Amounts | None = None  # what the queue must have for it to begin; None: the sum of the parts' minimum
    priority: str = ""  # the PriorityClass of its gang
    near: bool = False  # its pods must be near one another in the network
    placed: int = 0  # pods of it that have a node already, beside those of the parts
    in_line: bool = False  # its scheduler has put its gang in line

    @property
    def schedulers(self) -> list[str]:
        """All who place pods of it, sorted."""
        return sorted({part.spec.get("schedulerName") or DEFAULT_SCHEDULER for part in self.parts})

    @property
    def scheduler(self) -> str:
        """Who places its pods."""
        return next(iter(self.schedulers), DEFAULT_SCHEDULER)

    @property
    def minimum(self) -> int:
        """Pods that must start together."""
        return sum(part.minimum for part in self.parts)

    @property
    def size(self) -> int:
        """All pods."""
        return sum(len(part.pods) for part in self.parts)

    @property
    def asked(self) -> Amounts:
        """The sum of what must start together."""
        total: Amounts = {}
        for part in self.parts:
            total = plus(total, part.requests, part.minimum)
        return total


def claims_of(pod: Json) -> list[str]:
    """The volume claims that a pod mounts."""
    sources = [volume.get("persistentVolumeClaim") or {} for volume in pod.get("volumes") or ()]
    return [source["claimName"] for source in sources if "claimName" in source]


def shape(pod: Json) -> str:
    """Equal for pods that a scheduler cannot tell apart."""
    containers = [(one.get("resources"), one.get("ports")) for one in pod["containers"]]
    start = [(one.get("resources"), one.get("restartPolicy"), one.get("ports"))
             for one in pod.get("initContainers") or ()]  # fmt: skip
    return repr((containers, start, claims_of(pod), [pod.get(name) for name in READ]))


def demand(name: str, namespace: str, objects: Iterable[Json], queue: str = "") -> Demand:
    """The demand of a job whose controllers make these objects."""
    objects = list(objects)
    pods = [item for item in objects if item["kind"] == "Pod"]
    group = next((item for item in objects if item["kind"] == QUEUE_SYSTEM.pod_group.kind), None)
    spec = group["spec"] if group else {}
    by_shape: dict[str, list[Json]] = {}
    for pod in pods:
        by_shape.setdefault(shape(pod["spec"]), []).append(pod)
    left = int(spec.get("minMember") or len(pods)) if group else len(pods)
    parts = []
    for alike in by_shape.values():
        minimum = min(left, len(alike))
        left -= minimum
        names = tuple(pod["metadata"].get("name") or "" for pod in alike)
        labels = {repr(own): own for pod in alike for own in [pod["metadata"].get("labels") or {}]}
        parts.append(Part(names, alike[0]["spec"], minimum, tuple(labels.values())))
    return Demand(
        name,
        namespace,
        tuple(parts),
        queue=str(spec.get("queue") or queue),
        gang=group is not None,
        least=least(spec),
        priority=str(spec.get("priorityClassName") or ""),
        near=any(hard(one.get("networkTopology")) for one in (spec, *(spec.get("subGroupPolicy") or ()))),
    )


def hard(topology: Json | None) -> bool:
    """Whether a gang may not start unless its pods are near one another; a topology without a mode is hard.

    >>> hard({"mode": "hard"}), hard({"highestTierAllowed": 1}), hard({"mode": "soft"}), hard(None)
    (True, True, False, False)
    """
    return bool(topology) and (topology or {}).get("mode", "hard") == "hard"


def least(group: Json) -> Amounts | None:
    """The least resources of a gang, without what only a quota counts."""
    if not group.get("minResources"):
        return None
    counted = amounts(group["minResources"])
    return {name: value for name, value in counted.items() if not name.startswith(("requests.", "limits.", "count/"))}


def changed(job: Demand, specs: Sequence[Json]) -> Demand:
    """The demand with other specs of its parts."""
    parts = tuple(replace(part, spec=spec) for part, spec in zip(job.parts, specs, strict=True))
    return replace(job, parts=parts)


def edited(job: Demand, **fields: object) -> Demand:
    """The demand with some fields of all its pods replaced; None removes one."""
    specs = []
    for part in job.parts:
        spec = {**part.spec, **fields}
        specs.append({name: value for name, value in spec.items() if value is not None})
    return changed(job, specs)


def copied(spec: Json) -> Json:
    """A deep copy of a pod's spec."""
    copy: Json = clone(spec)
    return copy
