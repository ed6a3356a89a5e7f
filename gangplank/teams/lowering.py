"""Queues that give up something, before others get it: Volcano's webhook checks every queue as it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.k8s import quantity
from gangplank.teams.drift import identity, patch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gangplank.spec import Json
    from gangplank.teams.drift import Identity

    Pairs = list[tuple[Json, Json]]
    Specs = dict[str, Json]  # of queues, by name


def depths(live: Sequence[Json]) -> dict[str, int]:
    """How many queues are above each queue, as far as a tree that may have a circle says it."""
    parents = {name_of(item): parent_of(item) for item in live if is_queue(item)}

    def depth(name: str) -> int:
        count = 0
        while parents.get(name) and count < len(parents):
            name, count = parents[name], count + 1
        return count

    return {name: depth(name) for name in parents}


def parents_left(work: Sequence[Json], live_objects: Mapping[Identity, Json], removed: Sequence[Json]) -> list[Json]:
    """Queues to remove, children first, whose children move to other parents: Volcano keeps a parent until then."""
    left, parents = [], {parent_of(live) for _item, live in queue_pairs(work, live_objects)}
    for item in removed:
        if is_queue(item) and name_of(item) in parents:
            left.append(item)
            parents.add(parent_of(item))
    return left


def lowered_queues(
    work: Sequence[Json], live_objects: Mapping[Identity, Json], left: Sequence[Json], leaving: Collection[str]
) -> list[Json]:
    """Queues at the lesser of their live and their desired amounts, children first.

    Volcano's webhook checks every queue as it is written: an amount that moves from one queue to another must first be
    taken away. A queue that leaves a parent without room for it gives up all of its amounts until it has left. `left`
    as of `parents_left`, `leaving` as of `leavers`.
    """
    pairs = queue_pairs(work, live_objects, left)
    depth, specs, patches = depths([*live_objects.values()]), specs_of(live_objects), []
    for item, live in sorted(pairs, key=lambda pair: -depth[name_of(pair[0])]):
        before, body = live.get("spec") or {}, lesser(item, live)
        if name_of(item) in leaving:
            body |= {"deserved": {}, "guarantee": {"resource": {}}}
        children = [spec for spec in specs.values() if spec.get("parent") == name_of(item)]
        if not fits(children, body):  # a queue with children moves with its amounts, and leaves this one only then
            continue
        specs[name_of(item)] = body
        if gives_up(before, body):
            spec = {key: value for key, value in body.items() if value not in ({}, None, {"resource": {}})}
            patches.append(patch({**item, "spec": spec}, live))
    return patches


def queue_pairs(work: Sequence[Json], live_objects: Mapping[Identity, Json], left: Sequence[Json] = ()) -> Pairs:
    """The queues that exist and are changed, each as it is to be and as it is; those that are left have nothing."""
    queues = [(item, live_objects.get(identity(item))) for item in work if is_queue(item)]
    emptied = [(without_amounts(live), live) for live in left]
    return [*((item, live) for item, live in queues if live is not None), *emptied]


def without_amounts(live: Json) -> Json:
    """A queue that deserves and is guaranteed nothing, as it is written."""
    spec = {key: value for key, value in (live.get("spec") or {}).items() if key not in {"deserved", "guarantee"}}
    meta = {"name": name_of(live), "labels": live["metadata"].get("labels") or {}}
    return {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": meta, "spec": spec}


def lesser(item: Json, live: Json) -> Json:
    """The spec of a live queue with the lesser of its own and the desired amounts."""
    before = live.get("spec") or {}
    body = {**before}
    for part, absent_is_none in (("deserved", True), ("capability", False)):
        body[part] = least(body.get(part) or {}, item["spec"].get(part) or {}, absent_is_none=absent_is_none)
    least_guaranteed = least(guaranteed(before), guaranteed(item["spec"]), absent_is_none=True)
    return {**body, "guarantee": {"resource": least_guaranteed}}


def gives_up(before: Json, body: Json) -> bool:
    """Whether the amounts of a queue's spec become others."""
    parts = ("deserved", "capability")
    return guaranteed(body) != guaranteed(before) or any(body[part] != (before.get(part) or {}) for part in parts)


def leavers(work: Sequence[Json], live_objects: Mapping[Identity, Json], left: Sequence[Json]) -> set[str]:
    """Queues without children that leave a parent in which there is no room for them beside those it keeps and gets.

    `left` as of `parents_left`.
    """
    pairs = queue_pairs(work, live_objects, left)
    before = specs_of(live_objects)
    lowered = before | {name_of(item): lesser(item, live) for item, live in pairs}
    new = [item for item in work if is_queue(item)]
    after = before | {name_of(item): item["spec"] for item in (*new, *map(without_amounts, left))}
    above = {name: str(spec.get("parent") or "") for name, spec in before.items()}
    moving = {name for name, parent in above.items() if parent != after[name].get("parent")} - {*above.values()}

    def has_room(parent: str) -> bool:
        now = [lowered[name] for name in before if above[name] == parent]
        kept = [spec for spec in after.values() if spec.get("parent") == parent]
        then = [*kept, *(lowered[name] for name in moving if above[name] == parent)]
        return fits(now, lowered[parent]) and fits(then, after[parent])

    crowded = {parent for parent in {above[name] for name in moving} if parent in before and not has_room(parent)}
    return {name for name in moving if above[name] in crowded}


def specs_of(live_objects: Mapping[Identity, Json]) -> Specs:
    """The live queues, by name."""
    return {name_of(live): live.get("spec") or {} for live in live_objects.values() if is_queue(live)}


def name_of(item: Json) -> str:
    """The name of an object."""
    return str(item["metadata"]["name"])


def parent_of(item: Json) -> str:
    """The parent that a queue names; empty without one, which is the root."""
    return str((item.get("spec") or {}).get("parent") or "")


def is_queue(item: Json) -> bool:
    """Whether an object is a queue."""
    return bool(item["kind"] == "Queue")


def fits(children: Sequence[Json], room: Json) -> bool:
    """Whether a queue deserves and is guaranteed what its children deserve and are guaranteed together."""
    return all(
        sum(quantity.parse(part(child).get(resource, "0")) for child in children)
        <= quantity.parse(part(room).get(resource, "0"))
        for part in (deserved, guaranteed)
        for resource in {name for child in children for name in part(child)}
    )


def deserved(spec: Json) -> Mapping[str, str]:
    """What a queue deserves."""
    amounts: Mapping[str, str] = spec.get("deserved") or {}
    return amounts


def guaranteed(spec: Json) -> Mapping[str, str]:
    """What a queue is guaranteed."""
    amounts: Mapping[str, str] = (spec.get("guarantee") or {}).get("resource") or {}
    return amounts


def moving_queues(leaving: Collection[str]) -> list[str]:
    """What happens to the work in queues that change their parent; `leaving` as of `leavers`."""
    return [
        f"queue {name} moves to another parent: until then it deserves and is guaranteed nothing, so queues that wait "
        "may reclaim its pods"
        for name in sorted(leaving)
    ]


def least(old: Mapping[str, str], new: Mapping[str, str], *, absent_is_none: bool) -> dict[str, str]:
    """The lesser of two resource lists, name by name; a resource that one list omits is zero there, or unlimited.

    >>> least({"cpu": "4", "memory": "1Gi"}, {"cpu": "2"}, absent_is_none=True)
    {'cpu': '2'}
    """
    names = [name for name in old if name in new] if absent_is_none else list(dict.fromkeys((*old, *new)))
    amounts = {}
    for name in names:
        both = [text for text in (old.get(name), new.get(name)) if text is not None]
        amounts[name] = min(both, key=quantity.parse)
    return amounts
