"""Which fields of a team's queues need which part of Volcano's scheduler configuration, and which have no effect.

Volcano accepts every field and stays silent if no plugin reads it. Sources: pkg/scheduler/plugins/{proportion,capacity}
and pkg/scheduler/actions/reclaim of Volcano 1.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.scheduling.settings import Configuration, read
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gangplank.teams.spec import QueueSpec, SiteSpec, TeamSpec


def enforces_shares(scheduler: Configuration) -> bool:
    """Whether a plugin enforces what a queue may have."""
    return "capacity" in scheduler.plugins or "proportion" in scheduler.plugins


# (field, whether a queue uses it, whether the scheduler honours it, what it needs)
Row = tuple[str, "Callable[[QueueSpec], bool]", "Callable[[Configuration], bool]", str]
NEEDS: tuple[Row, ...] = (
    ("cap", lambda queue: bool(queue.share.cap), enforces_shares, "volcano_queue_plugin: capacity (or proportion)"),
    (
        "guaranteed",
        lambda queue: bool(queue.share.guaranteed),
        enforces_shares,
        "volcano_queue_plugin: capacity (or proportion)",
    ),
    (
        "deserved",
        lambda queue: queue.share.deserved != queue.share.guaranteed,
        lambda scheduler: "capacity" in scheduler.plugins,
        "volcano_queue_plugin: capacity",
    ),
    (
        "deserved, once another has taken it",
        lambda queue: bool(queue.share.deserved),
        lambda scheduler: bool({"reclaim", "gangreclaim"} & {*scheduler.actions}),
        "gangreclaim in volcano_actions",
    ),
    (
        "weight",
        lambda queue: queue.weight != 1,
        lambda scheduler: "proportion" in scheduler.plugins,
        "volcano_queue_plugin: proportion",
    ),
    (
        "parent, and the tree of queues",
        lambda queue: bool(queue.parent),
        lambda scheduler: scheduler.hierarchy,
        "volcano_queue_plugin: capacity",
    ),
)


def idle_fields(teams: Sequence[TeamSpec], site: SiteSpec, text: str) -> list[str]:
    """A line for every field in use that the scheduler, with this configuration, ignores."""
    scheduler = read(text)
    queues = [*site.queues, *(queue for team in teams for queue in team.queues)]
    notes = []
    for field, uses, honours, needs in NEEDS:
        name, comma, more = field.partition(",")
        used = [f"{queue.variable(name).replace('].parent', ']')} of {queue.name}" for queue in queues if uses(queue)]
        if used and not honours(scheduler):
            some = listed(used, 5) + comma + more
            notes.append(f"{some}: the scheduler ignores it. It needs {needs} (playbooks/site.yml)")
    if any(team.priorities for team in teams) and not {"preempt", "gangpreempt"} & {*scheduler.actions}:
        needs = "gangpreempt in volcano_actions"
        notes.append(f"team_priorities order what waits; to displace running pods they need {needs}")
    return notes
