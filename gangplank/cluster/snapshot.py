"""Reads the state of a cluster that decides whether jobs start. What may not be read is noted, never guessed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from gangplank.backends import device_claims
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.client import FORBIDDEN, group_path
from gangplank.cluster.deployed import DEPLOYMENTS, flags_in, mounted, running, words_of
from gangplank.cluster.site import PRIORITIES as PRIORITIES_PATH
from gangplank.errors import KubeError
from gangplank.scheduling import claimed_devices, drivers, settings
from gangplank.scheduling.snapshot import (
    GROUPS,
    NODES,
    OF_NAMESPACE,
    PODS,
    PRIORITIES,
    QUEUES,
    RUNTIMES,
    Snapshot,
    has_ended,
    living,
)
from gangplank.scheduling.volume_rules import CLASSES, VOLUMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.scheduling.demand import Demand
    from gangplank.spec import Json

DEVICES = group_path(device_claims.API_VERSION)
CLAIMS, TAINT_RULES = "resourceclaims", "devicetaintrules"
DENIED = "you may not list them"
STORAGE = "/apis/storage.k8s.io/v1"
CLUSTER = {  # field of a snapshot: its name in messages, its path
    "nodes": (NODES, "/api/v1/nodes"),
    "pods": (PODS, "/api/v1/pods"),
    "queues": (QUEUES, f"/apis/{QUEUE_SYSTEM.queue.api_version}/{QUEUE_SYSTEM.queue.plural}"),
    "groups": (GROUPS, f"/apis/{QUEUE_SYSTEM.pod_group.api_version}/{QUEUE_SYSTEM.pod_group.plural}"),
    "volumes": (VOLUMES, "/api/v1/persistentvolumes"),
    "classes": (CLASSES, f"{STORAGE}/storageclasses"),
    "priorities": (PRIORITIES, PRIORITIES_PATH),
}


def scheduler_configuration(kube: Kube) -> str | None:
    """The queue system's scheduler configuration; "" if the cluster has no such scheduler, None if nobody can read it.

    A release of another name has its ConfigMap under another name: the scheduler's Deployment mounts it.
    """
    query = {"fieldSelector": f"metadata.name={QUEUE_SYSTEM.configuration}"}
    maps = [item for item in kube.call("GET", "/api/v1/configmaps", query=query)["items"]
            if item["metadata"]["name"] == QUEUE_SYSTEM.configuration]  # fmt: skip
    if len(maps) == 1:
        return "\n".join((maps[0].get("data") or {}).values())
    deployments = items(kube, DEPLOYMENTS)
    for item, container in running(deployments or (), QUEUE_SYSTEM.program):
        places = [value for _, value in flags_in(words_of(container), ["scheduler-conf"]) if value]
        return (mounted(kube, item, container, PurePosixPath(places[-1])) or None) if places else QUEUE_SYSTEM.built_in
    return None if deployments is None else ""


def items(kube: Kube, where: str) -> list[Json] | None:
    """The objects at a path, none if the cluster has no such kind; None without the right to list them."""
    try:
        answer = kube.get(where)
    except KubeError as error:
        if error.status == FORBIDDEN:
            return None
        raise
    return list(answer["items"]) if answer else []


def snapshot(kube: Kube, namespace: str) -> Snapshot:
    """The state that decides whether a job of a namespace starts."""
    unread: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for name, (title, where) in CLUSTER.items():
        answer = items(kube, where)
        if answer is None and name in {"pods", "groups"}:
            unread[title] = DENIED
            plural = where.rpartition("/")
            answer = items(kube, f"{plural[0]}/namespaces/{namespace}/{plural[2]}")
        elif answer is None:
            unread[title] = DENIED
        fields[name] = tuple(answer or ())
    try:
        text = scheduler_configuration(kube)
        configuration = None if text is None else settings.read(text)
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        configuration = None
    fields |= devices(kube, namespace, fields["nodes"], fields["pods"], alone=PODS in unread)
    schedulers = frozenset(str(one["spec"].get("schedulerName") or "") for one in fields["pods"] if looked_at(one))
    pods, ended = living(fields["pods"]), tuple(pod for pod in fields.pop("pods") if has_ended(pod))
    state = Snapshot(pods=pods, ended=ended, schedulers=schedulers, settings=configuration, unread=unread, **fields)
    return state.within(home(kube, namespace))


def looked_at(pod: Json) -> bool:
    """Whether a scheduler has tried a pod; of one with scheduling gates, the API server says that it is not placed."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "PodScheduled" and one.get("reason") != "SchedulingGated" for one in conditions)


def with_runtimes(kube: Kube, state: Snapshot, jobs: Iterable[Demand | None]) -> Snapshot:
    """The state with the RuntimeClasses, if pods of these jobs name one: few do."""
    if not any(part.spec.get("runtimeClassName") for job in jobs if job for part in job.parts):
        return state
    answer = items(kube, "/apis/node.k8s.io/v1/runtimeclasses")
    unread = {**state.unread, **({RUNTIMES: DENIED} if answer is None else {})}
    return replace(state, runtimes=tuple(answer or ()), unread=unread)


def with_drivers(kube: Kube, state: Snapshot, jobs: Iterable[tuple[Demand, Snapshot]]) -> Snapshot:
    """The state with the CSI drivers of nodes, if a volume of these jobs may be of one; each job with its own state."""
    if not any(drivers.candidates(job, own) for job, own in jobs):
        return state
    nodes, named = (items(kube, f"{STORAGE}/{plural}") for plural in (drivers.CSI_NODES, drivers.CSI_DRIVERS))
    deployments = items(kube, DEPLOYMENTS)
    plain = ignored(deployments or ())
    answers = {drivers.CSI_NODES: nodes, drivers.CSI_DRIVERS: named, drivers.IGNORED: deployments}
    unread = {name: DENIED for name, answer in answers.items() if answer is None}
    if plain is None:
        unread.setdefault(drivers.IGNORED, f"none has {QUEUE_SYSTEM.program}")
    return replace(
        state,
        csi_nodes=None if nodes is None else tuple(nodes),
        csi_drivers=tuple(named or ()),
        ignored=plain,
        unread={**state.unread, **unread},
    )


def ignored(deployments: Iterable[Json]) -> frozenset[str] | None:
    """The provisioners that the queue system's scheduler is set to ignore; None if no Deployment has its program."""
    names: set[str] | None = None
    for _, container in running(deployments, QUEUE_SYSTEM.program):
        values = (value or "" for _, value in flags_in(words_of(container), [QUEUE_SYSTEM.ignoring]))
        names = {*(names or ()), *(name.strip() for value in values for name in value.split(","))}
    return None if names is None else frozenset(names)


def devices(
    kube: Kube, namespace: str, nodes: Sequence[Json], pods: Sequence[Json], *, alone: bool
) -> dict[str, tuple[Json, ...]]:
    """Nodes and pods with the devices that they offer and hold by claim; nothing where too little of that may be read.

    `alone`: the pods are those of the namespace, so its claims are enough.
    """
    classes = items(kube, f"{DEVICES}/deviceclasses")
    if not classes:  # nobody can claim a device
        return {}
    slices, claims = (items(kube, f"{DEVICES}/{plural}") for plural in ("resourceslices", CLAIMS))
    rules = taint_rules(kube)
    if claims is None and alone:
        claims = items(kube, f"{DEVICES}/namespaces/{namespace}/{CLAIMS}")
    if slices is None or rules is None or claims is None:
        return {}
    offering = claimed_devices.offering(nodes, classes, claimed_devices.tainted(slices, rules))
    return {"nodes": offering, "pods": claimed_devices.holding(pods, claims)}


def taint_rules(kube: Kube) -> list[Json] | None:
    """The rules by which administrators taint devices, in the version that the cluster has; None: not to be read."""
    group = device_claims.API_VERSION.partition("/")[0]
    for version in (kube.get(f"/apis/{group}") or {}).get("versions") or ():
        where = group_path(version["groupVersion"])
        kinds = (kube.get(where) or {}).get("resources") or ()
        if any(kind["name"] == TAINT_RULES for kind in kinds):
            return items(kube, f"{where}/{TAINT_RULES}")
    return []


def home(kube: Kube, namespace: str) -> Snapshot:
    """The objects of one namespace that decide whether its jobs start."""
    unread: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for name, plural in OF_NAMESPACE.items():
        answer = items(kube, f"/api/v1/namespaces/{namespace}/{plural}")
        if answer is None:
            unread[plural] = DENIED
        fields[name] = tuple(answer or ())
    return Snapshot(unread=unread, **fields)
