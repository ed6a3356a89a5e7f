"""Which fields of a team's queues need which part of Volcano's scheduler configuration, and which are idle as it is.

Volcano takes every field and says nothing when no plugin reads it. Sources: pkg/scheduler/plugins/{proportion,capacity}
and pkg/scheduler/actions/reclaim of Volcano 1.15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gangplank.teams.spec import QueueSpec, SiteSpec, TeamSpec


@dataclass(frozen=True)
class Configuration:
    """What of a scheduler configuration decides about queues."""

    actions: tuple[str, ...]
    plugins: tuple[str, ...]
    hierarchy: bool  # of the plugin capacity


def read(text: str) -> Configuration:
    """The configuration that a text holds; what cannot be read has nothing.

    >>> read('{actions: "enqueue, reclaim", tiers: [{plugins: [{name: capacity, enableHierarchy: true}]}]}')
    Configuration(actions=('enqueue', 'reclaim'), plugins=('capacity',), hierarchy=True)
    """
    try:
        value: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        value = None
    given = value if isinstance(value, dict) else {}
    plugins = [item for tier in given.get("tiers") or [] for item in tier.get("plugins") or []]
    return Configuration(
        actions=tuple(word.strip() for word in str(given.get("actions", "")).split(",")),
        plugins=tuple(item["name"] for item in plugins),
        hierarchy=any(item["name"] == "capacity" and item.get("enableHierarchy") is True for item in plugins),
    )


def counts(given: Configuration) -> bool:
    """Whether any plugin looks at what a queue may have."""
    return "capacity" in given.plugins or "proportion" in given.plugins


# (field, whether a queue uses it, whether it is honoured, what it needs)
Row = tuple[str, "Callable[[QueueSpec], bool]", "Callable[[Configuration], bool]", str]
NEEDS: tuple[Row, ...] = (
    ("cap", lambda queue: bool(queue.share.cap), counts, "volcano_queue_plugin: capacity (or proportion)"),
    (
        "guaranteed",
        lambda queue: bool(queue.share.guaranteed),
        counts,
        "volcano_queue_plugin: capacity (or proportion)",
    ),
    (
        "deserved",
        lambda queue: queue.share.deserved != queue.share.guaranteed,
        lambda given: "capacity" in given.plugins,
        "volcano_queue_plugin: capacity",
    ),
    (
        "deserved, once another has taken it,",
        lambda queue: bool(queue.share.deserved),
        lambda given: bool({"reclaim", "gangreclaim"} & {*given.actions}),
        "gangreclaim in volcano_actions",
    ),
    (
        "weight",
        lambda queue: queue.weight != 1,
        lambda given: "proportion" in given.plugins,
        "volcano_queue_plugin: proportion",
    ),
    (
        "parent, and the tree of queues,",
        lambda queue: bool(queue.parent),
        lambda given: given.hierarchy,
        "volcano_queue_plugin: capacity",
    ),
)


def idle(teams: Sequence[TeamSpec], site: SiteSpec, text: str) -> list[str]:
    """A line for every field that is used and that the scheduler, as it is configured, does not look at."""
    given = read(text)
    queues = [*site.queues, *(queue for team in teams for queue in team.queues)]
    found = []
    for field, uses, honoured, needed in NEEDS:
        names = [queue.name for queue in queues if uses(queue)]
        if names and not honoured(given):
            some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            found.append(
                f"{field} of {some}: the scheduler does not look at it. It needs {needed} (playbooks/site.yml)"
            )
    if any(team.priorities for team in teams) and not {"preempt", "gangpreempt"} & {*given.actions}:
        found.append("priorities order what waits; to displace what runs they need gangpreempt in volcano_actions")
    return found
