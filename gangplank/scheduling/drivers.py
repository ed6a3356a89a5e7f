"""Which CSI drivers a job's volumes need, on which nodes these run, and how many volumes a node may have of each. Pure.

Volcano counts volumes as a resource of nodes, of which one without the driver has none; it counts a volume once for
each pod (pkg/scheduler/cache/event_handlers.go of 1.15). Kubernetes' scheduler knows the limits alone, and counts a
volume once for each node (pkg/scheduler/framework/plugins/nodevolumelimits of 1.35; that of 1.37 asks for the driver,
too). Whichever of them chooses a node without the driver: its kubelet cannot mount the volume.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.scheduling.demand import changed, claims_of
from gangplank.scheduling.rooms import Bar
from gangplank.scheduling.snapshot import Pods
from gangplank.scheduling.volume_rules import VOLUMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.snapshot import Snapshot
    from gangplank.spec import Json

CSI_NODES, CSI_DRIVERS, IGNORED = "csinodes", "csidrivers", "deployments of its scheduler"
OF_CLASS = "csi.storage.k8s.io/csi-driver-name"  # parameter of a class, where its provisioner has another name
OF_CLAIM = "volume.kubernetes.io/storage-provisioner"  # annotation of a claim for which a class makes the volume
ATTACHABLE = "attachable-volumes-csi-"  # begins the name of the resource
PLENTY = 2**31 - 1  # as Volcano has it


def driver_of(claim: Json, state: Snapshot) -> str:
    """Who makes and mounts a claim's volume, as far as that can be read; "" for a volume that no driver mounts."""
    spec = claim["spec"]
    for volume in state.volumes:
        if volume["metadata"]["name"] == spec.get("volumeName"):
            return str((volume["spec"].get("csi") or {}).get("driver") or "")
    for item in state.classes:
        if item["metadata"]["name"] == spec.get("storageClassName"):
            return str((item.get("parameters") or {}).get(OF_CLASS) or item.get("provisioner") or "")
    return str((claim["metadata"].get("annotations") or {}).get(OF_CLAIM) or "")


def candidates(job: Demand, state: Snapshot) -> dict[str, list[str]]:
    """The claims that the job's pods mount, by who mounts their volumes; that need not be a CSI driver."""
    mounted = {claim for part in job.parts for claim in claims_of(part.spec)}
    by_driver: dict[str, list[str]] = {}
    for claim in state.claims:
        if claim["metadata"]["name"] in mounted and (driver := driver_of(claim, state)):
            by_driver.setdefault(driver, []).append(claim["metadata"]["name"])
    return {driver: sorted(claims) for driver, claims in sorted(by_driver.items())}


def is_csi(driver: str, state: Snapshot) -> bool:
    """Whether a provisioner is known to be a CSI driver."""
    named = {item["metadata"]["name"] for item in state.csi_drivers}
    having = any((volume["spec"].get("csi") or {}).get("driver") == driver for volume in state.volumes)
    return having or driver in named or any(driver in limits for limits in state.drivers_of.values())


def counts(job: Demand, driver: str, state: Snapshot) -> bool | None:
    """Whether the job's scheduler counts volumes as a resource of nodes; None if that may not be read."""
    if job.scheduler != QUEUE_SYSTEM.scheduler or driver in QUEUE_SYSTEM.uncounted:
        return False
    return None if state.ignored is None else driver not in state.ignored


def needed(job: Demand, state: Snapshot) -> dict[str, list[str]]:
    """The drivers without which no pod of the job that mounts their claims starts on a node, and these claims."""
    if state.csi_nodes is None:
        return {}
    bound = {claim["metadata"]["name"] for claim in state.claims if claim["spec"].get("volumeName")}
    hidden = bound if VOLUMES in state.unread else set()  # volumes that need not be CSI's
    drivers = {}
    for driver, claims in candidates(job, state).items():
        if is_csi(driver, state):
            drivers[driver] = claims
        elif counts(job, driver, state) and (own := [claim for claim in claims if claim not in hidden]):
            drivers[driver] = own
    return drivers


def limited(drivers: Iterable[str], state: Snapshot) -> list[str]:
    """Those of some drivers of which a node may have only so many volumes."""
    limits = state.drivers_of.values()
    return [name for name in drivers if any(own.get(name) is not None for own in limits)]


def unread(job: Demand, state: Snapshot) -> Iterator[str]:
    """What may not be read, and decides on which nodes the job's volumes can be mounted."""
    for driver in candidates(job, state):
        if VOLUMES in state.unread and limited([driver], state):  # of other pods
            yield VOLUMES
        if CSI_NODES in state.unread:
            yield CSI_NODES
        elif state.csi_nodes is None or is_csi(driver, state):
            continue
        elif CSI_DRIVERS in state.unread and not counts(job, driver, state):
            yield CSI_DRIVERS
        elif counts(job, driver, state) is None and IGNORED in state.unread:
            yield IGNORED


def barred(job: Demand, state: Snapshot, rows: list[list[list[Bar]]]) -> list[list[list[Bar]]]:
    """What keeps each part from each node, with the drivers that the node does not have, or has no room for."""
    drivers, limits_of = needed(job, state), state.drivers_of
    if not drivers:
        return rows
    bounded = {name for name in limited(drivers, state) if not counts(job, name, state)}
    by_node = attached(state, bounded) if bounded else {}
    result = []
    for part, row in zip(job.parts, rows, strict=True):
        mounted = {name: own for name, claims in drivers.items() if (own := {*claims} & {*claims_of(part.spec)})}
        volumes = {name: handles(mounted[name], state) for name in {*mounted} & bounded}
        more = []
        for room, bars in zip(state.rooms, row, strict=True):
            here = limits_of.get(room.name, {})
            lacking = [Bar("volume-driver", name) for name in mounted if name not in here]
            full = [Bar("attach-limit", name) for name, own in volumes.items() if (most := here.get(name)) is not None
                    and len(by_node.get((room.name, name), set()) | own) > most]  # fmt: skip
            more.append([*bars, *lacking, *full])
        result.append(more)
    return result


def handles(claims: Iterable[str], state: Snapshot) -> set[str]:
    """The volumes of claims of the job's namespace; a claim without one stands for its own."""
    named = {claim["metadata"]["name"]: claim["spec"].get("volumeName") for claim in state.claims}
    return {str(named.get(claim) or f"claim {claim}") for claim in claims}


def mounting(state: Snapshot, drivers: Iterable[str]) -> Iterator[tuple[Json, str, str]]:
    """Pods with a node, and their volumes of some drivers by name; a pod comes once for each."""
    chosen, users = {*drivers}, dict[tuple[str, str], tuple[str, str]]()
    for volume in state.volumes:
        driver, user = (volume["spec"].get("csi") or {}).get("driver"), volume["spec"].get("claimRef") or {}
        bound = (volume.get("status") or {}).get("phase") == "Bound"  # one that is released keeps its claim's name
        if driver in chosen and bound:
            users[user.get("namespace", ""), user.get("name", "")] = volume["metadata"]["name"], driver
    for pod in state.pods.items:
        meta, spec = pod["metadata"], pod["spec"]
        if not spec.get("nodeName"):
            continue
        ephemeral = [f"{meta['name']}-{one['name']}" for one in spec.get("volumes") or () if "ephemeral" in one]
        for claim in [*claims_of(spec), *ephemeral]:
            if (meta["namespace"], claim) in users:
                yield (pod, *users[meta["namespace"], claim])


def attached(state: Snapshot, drivers: Iterable[str]) -> dict[tuple[str, str], set[str]]:
    """The volumes that pods mount, by node and driver."""
    by_node: dict[tuple[str, str], set[str]] = {}
    for pod, volume, driver in mounting(state, drivers):
        by_node.setdefault((pod["spec"]["nodeName"], driver), set()).add(volume)
    return by_node


def counted(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
    """Job and state with volumes among the resources, where nodes have limits and the job's scheduler counts so."""
    limits_of = state.drivers_of
    claims_by = needed(job, state)
    drivers = [name for name in limited(claims_by, state) if counts(job, name, state)]
    if not drivers:
        return job, state
    nodes = tuple(_offering(node, limits_of.get(node["metadata"]["name"], {}), drivers) for node in state.nodes)
    by_claim = {claim: name for name in drivers for claim in claims_by[name]}
    asked = [[by_claim[claim] for claim in claims_of(part.spec) if claim in by_claim] for part in job.parts]
    specs = [_requesting(part.spec, own) for part, own in zip(job.parts, asked, strict=True)]
    return changed(job, specs), replace(state, nodes=nodes, pods=_mounted(state, tuple(drivers)))


def _mounted(state: Snapshot, drivers: tuple[str, ...]) -> Pods:
    """The pods, each with its volumes of these drivers among its requests."""
    before = state.pods.mounted.get(drivers)
    if before and before[0] is state.volumes:
        return before[1]
    held: dict[str, list[str]] = {}
    for pod, _, driver in mounting(state, drivers):
        held.setdefault(pod["metadata"]["uid"], []).append(driver)
    pods = Pods(tuple(
        {**pod, "spec": _requesting(pod["spec"], own)} if (own := held.get(pod["metadata"]["uid"])) else pod
        for pod in state.pods.items
    ))  # fmt: skip
    state.pods.mounted[drivers] = state.volumes, pods
    return pods


def _offering(node: Json, own: Mapping[str, int | None], drivers: Iterable[str]) -> Json:
    """A node with its volumes among its resources."""
    limits = {name: own.get(name) for name in drivers}  # whether a node has the driver at all is another rule
    more = {ATTACHABLE + name: str(PLENTY if most is None else most) for name, most in limits.items()}
    status = node.get("status") or {}
    return {**node, "status": {**status, "allocatable": {**(status.get("allocatable") or {}), **more}}}


def _requesting(spec: Json, drivers: Sequence[str]) -> Json:
    """A pod's spec whose first container requests a volume of each of these drivers."""
    if not drivers:
        return spec
    first, *others = spec["containers"]
    resources = first.get("resources") or {}
    requests = {
        **(resources.get("requests") or {}),
        **{ATTACHABLE + name: str(drivers.count(name)) for name in drivers},
    }
    return {**spec, "containers": [{**first, "resources": {**resources, "requests": requests}}, *others]}


def choices(job: Demand, state: Snapshot, rows: Sequence[Sequence[list[Bar]]]) -> Iterator[str]:
    """What nobody can tell where a scheduler may choose nodes that lack a driver, or the volumes of parts add up."""
    drivers, limits_of = needed(job, state), state.drivers_of
    open_else = [bars for row in rows for bars in row if {one.rule for one in bars} == {"volume-driver"}]
    for name in sorted({bar.what for bars in open_else for bar in bars}):
        if not counts(job, name, state):
            what = f"the CSI driver {name} of its volume claim {drivers[name][0]}"
            yield f"whether its scheduler chooses only nodes that run {what}: it does not look"
    for name, claims in drivers.items():
        if counts(job, name, state) or len(job.parts) == 1:
            continue
        by_node, own = attached(state, [name]), handles(claims, state)
        for number, room in enumerate(state.rooms):
            most = limits_of.get(room.name, {}).get(name)
            together = by_node.get((room.name, name), set()) | own
            if most is not None and len(together) > most and any(not row[number] for row in rows):
                yield f"whether all its volumes of the CSI driver {name} go to one node: {room.name} may have {most}"
                break


def everywhere(state: Snapshot, drivers: Iterable[str]) -> Snapshot:
    """The state in which all nodes run some drivers, and have no limit of their volumes."""
    names = {*drivers}
    before = {item["metadata"]["name"]: item["spec"].get("drivers") or [] for item in state.csi_nodes or ()}
    nodes = []
    for node in state.nodes:
        name = node["metadata"]["name"]
        kept = [one for one in before.get(name, []) if one["name"] not in names]
        more = [{"name": one} for one in sorted(names)]
        nodes.append({"metadata": {"name": name}, "spec": {"drivers": [*kept, *more]}})
    return state if state.csi_nodes is None else replace(state, csi_nodes=tuple(nodes))
