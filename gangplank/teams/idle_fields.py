"""Which fields of a team's queues need which part of Volcano's scheduler configuration, and which have no effect.

Volcano accepts every field and stays silent if no plugin reads it. Sources: pkg/scheduler/plugins/{proportion,capacity}
and pkg/scheduler/actions/reclaim of Volcano 1.15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.scheduling.settings import Configuration, read
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gangplank.teams.spec import QueueSpec, SiteSpec, TeamSpec


def enforces_shares(scheduler: Configuration) -> bool:
    """Whether a plugin enforces what a queue may have."""
    return "capacity" in scheduler.plugins or "proportion" in scheduler.plugins


@dataclass(frozen=True)
class Need:
    """A field of a queue, and what the scheduler needs so that it has an effect."""

    field: str
    uses: Callable[[QueueSpec], bool]
    honours: Callable[[Configuration], bool]
    needs: str
    which: str = ""
    """What of the field has no effect otherwise; empty: all of it."""


PLUGIN, CAPACITY = "volcano_queue_plugin: capacity (or proportion)", "volcano_queue_plugin: capacity"
NEEDS = (
    Need("cap", lambda queue: bool(queue.share.cap), enforces_shares, PLUGIN),
    Need("guaranteed", lambda queue: bool(queue.share.guaranteed), enforces_shares, PLUGIN),
    Need("deserved", lambda queue: queue.share.deserved != queue.share.guaranteed,
         lambda scheduler: "capacity" in scheduler.plugins, CAPACITY),
    Need("deserved", lambda queue: bool(queue.share.deserved),
         lambda scheduler: bool({"reclaim", "gangreclaim"} & {*scheduler.actions}), "gangreclaim in volcano_actions",
         which=", once another has taken it"),
    Need("weight", lambda queue: queue.weight != 1,
         lambda scheduler: "proportion" in scheduler.plugins, "volcano_queue_plugin: proportion"),
    Need("parent", lambda queue: bool(queue.parent), lambda scheduler: scheduler.hierarchy, CAPACITY,
         which=", and the tree of queues"),
)  # fmt: skip


def idle_fields(teams: Sequence[TeamSpec], site: SiteSpec, text: str | None) -> list[str]:
    """A line for every field in use that the scheduler, with this configuration, ignores; none if it is not known."""
    if text is None:
        return []
    scheduler = read(text)
    queues = [*site.queues, *(queue for team in teams for queue in team.queues)]
    notes = []
    for need in NEEDS:
        used = [f"{queue.variable(need.field).removesuffix('.parent')} of {queue.name}"
                for queue in queues if need.uses(queue)]  # fmt: skip
        if used and not need.honours(scheduler):
            some = listed(used, 5) + need.which
            notes.append(f"{some}: the scheduler ignores it. It needs {need.needs} (playbooks/site.yml)")
    if any(team.priorities for team in teams) and not {"preempt", "gangpreempt"} & {*scheduler.actions}:
        needs = "gangpreempt in volcano_actions"
        notes.append(f"team_priorities order what waits; to displace running pods they need {needs}")
    return notes
