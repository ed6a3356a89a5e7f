"""Puts the pods of a gang onto nodes, all of them or as many as there is room for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gangplank.scheduling.amounts import MILLI
from gangplank.scheduling.snapshot import EVERY_ADDRESS, host_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangplank.scheduling.amounts import Amounts
    from gangplank.scheduling.demand import Demand, Part
    from gangplank.scheduling.rooms import Bar
    from gangplank.scheduling.snapshot import Room
    from gangplank.spec import Json


@dataclass
class Placement:
    """Pods by node, and how many of each part have none."""

    nodes: dict[str, str] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)  # by part
    certain: bool = True  # whether no other order of placing could do better

    @property
    def short(self) -> int:
        """Pods without a node."""
        return sum(self.missing)


def capacity(requests: Mapping[str, int], free: Mapping[str, int]) -> int:
    """How many pods of one shape what is free would hold."""
    return max(0, min(free.get(name, 0) // value for name, value in requests.items() if value > 0))


def place(job: Demand, rooms: Sequence[Room], barred: Sequence[Sequence[list[Bar]]]) -> Placement:
    """The best placement of the job's minimum; `barred` has what keeps each part from each node.

    Each part goes to the nodes that are fullest, or emptiest, in several orders of the parts. That is exact for pods of
    one shape.
    """
    if ports := {name for part in job.parts for name in of_host(part.spec)}:  # the job's own pods take them, too
        rooms = [replace(room, free=room.free | dict.fromkeys(ports, MILLI)) for room in rooms]
    open_rooms = [[index for index, bars in enumerate(row) if not bars] for row in barred]
    numbers = range(len(job.parts))
    by_choice = sorted(numbers, key=lambda number: (len(open_rooms[number]), -weight(job.parts[number])))
    by_size = sorted(numbers, key=lambda number: -weight(job.parts[number]))
    orders = [by_choice, by_size, list(numbers)] if len(job.parts) > 1 else [by_choice]
    best = Placement(missing=[part.minimum for part in job.parts])
    for order in orders:
        for emptiest in (False, True):
            one = _attempt(job, rooms, open_rooms, order, emptiest=emptiest)
            if one.short < best.short or not best.nodes:
                best = one
            if not one.short:
                return one
    alone = [
        sum(capacity(needs(part), rooms[index].free) for index in open_rooms[number]) < part.minimum
        for number, part in enumerate(job.parts)
    ]
    best.certain = len(job.parts) == 1 or any(alone) or _too_little(job, rooms, open_rooms)
    return best


def of_host(pod: Json) -> Amounts:
    """The ports of its host that a pod takes, as resources of which each node has one.

    A port of one address leaves those of the others, but not the whole port.
    """
    taken: Amounts = {}
    for protocol, number, address in host_ports(pod):
        whole = f"host port {protocol} {number}"
        if address == EVERY_ADDRESS:
            taken[whole] = MILLI
        else:
            taken |= {whole: taken.get(whole, 1), f"{whole} {address}": MILLI}
    return taken


def needs(part: Part) -> Amounts:
    """What a pod of a part takes from its node, with the ports of its host."""
    return part.requests | of_host(part.spec)


def weight(part: Part) -> int:
    """How hard a part is to place: devices first, then processors, then memory."""
    devices = sum(value for name, value in part.requests.items() if "/" in name)
    return devices * 10**15 + part.requests.get("cpu", 0) * 10**6 + part.requests.get("memory", 0) // 10**9


def _attempt(
    job: Demand, rooms: Sequence[Room], open_rooms: Sequence[list[int]], order: Sequence[int], *, emptiest: bool
) -> Placement:
    free: dict[int, Amounts] = {}
    result = Placement(missing=[part.minimum for part in job.parts])
    for number in order:
        part = job.parts[number]
        requests = needs(part)
        left = list(part.pods[: part.minimum])
        rows = [(capacity(requests, free.get(index, rooms[index].free)), index) for index in open_rooms[number]]
        for most, index in sorted(rows, key=lambda row: (-row[0] if emptiest else row[0], row[1])):
            if not left:
                break
            here, left = left[:most], left[most:]
            if here:
                before = free.get(index, rooms[index].free)
                after = dict(before)
                for name, value in requests.items():
                    after[name] = before.get(name, 0) - len(here) * value
                free[index] = after
                result.nodes.update(dict.fromkeys(here, rooms[index].name))
        result.missing[number] = len(left)
    return result


def _too_little(job: Demand, rooms: Sequence[Room], open_rooms: Sequence[list[int]]) -> bool:
    """Whether the nodes that any part may use have less than all parts together ask for."""
    usable = {index for row in open_rooms for index in row}
    return any(
        sum(max(0, rooms[index].free.get(name, 0)) for index in usable) < value for name, value in job.asked.items()
    )
