"""Changes of queues that Volcano would refuse in the middle of a run, or that would leave work without a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.teams.drift import identity
from gangplank.teams.lowering import is_queue, name_of, parent_of
from gangplank.teams.metadata import team_of
from gangplank.teams.read_cluster import in_queues

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json
    from gangplank.teams.plan import TeamsPlan

LEAVES = ("leaves its file", "keep the queue in its file")
NEW_PARENT = ("gets its first child queue, so that no job can use it any more,", "leave it without child queues")


def queue_problems(kube: Kube, todo: TeamsPlan, named: Sequence[Json], live: Sequence[Json]) -> list[str]:
    """What keeps queues from their removal, or from their first child; `named` are those of teams to remove.

    Whether such teams have work, `removal` judges.
    """
    gone = queues_of((*todo.remove, *todo.remove_last))
    changes = dict.fromkeys(first_parents(todo, live), NEW_PARENT) | dict.fromkeys(map(name_of, gone), LEAVES)
    busy = [
        f"queue {queue} {changes[queue][0]} and has work: {work}. Fix: wait for it, or {changes[queue][1]}"
        for queue, work in in_queues(kube, changes)
    ]
    removed = [*gone, *named]
    names, moved = {name_of(item) for item in removed}, {identity(item) for item in (*removed, *todo.write)}
    stay = [
        f"queue {parent_of(item)} leaves the inventory and is the parent of queue {name_of(item)}, which stays below "
        f"it. Fix: keep it in team_site_queues until that queue has moved or left, with its team {team_of(item)} in "
        "--limit or in teams_remove"
        for item in queues_of(live)
        if parent_of(item) in names and identity(item) not in moved
    ]
    return [*busy, *stay]


def first_parents(todo: TeamsPlan, live: Sequence[Json]) -> set[str]:
    """Queues without children that get one: Volcano refuses it as long as they have pods."""
    return {parent_of(item) for item in queues_of(todo.write)} - {parent_of(item) for item in queues_of(live)}


def queues_of(items: Iterable[Json]) -> list[Json]:
    """The queues among objects."""
    return [item for item in items if is_queue(item)]
