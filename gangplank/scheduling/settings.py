"""The configuration of Volcano's scheduler, as far as it decides about queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

LEVELS = "ancestorReclaimLevel"


@dataclass(frozen=True)
class Configuration:
    """The parts of a scheduler configuration that decide about queues."""

    actions: tuple[str, ...]
    plugins: tuple[str, ...]
    hierarchy: bool  # of the plugin capacity
    ranked: bool = True  # a job displaces only jobs of a lower priority
    levels: int = 0  # of the plugin capacity: the queues above whose deserved amounts count as the queue's own


def read(text: str) -> Configuration:
    """The configuration in a text; one that cannot be parsed is empty.

    >>> read('{actions: "enqueue, reclaim", tiers: [{plugins: [{name: capacity, enableHierarchy: true}]}]}')
    Configuration(actions=('enqueue', 'reclaim'), plugins=('capacity',), hierarchy=True, ranked=False, levels=0)
    """
    try:
        value: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        value = None
    settings = value if isinstance(value, dict) else {}
    tiers = [tier.get("plugins") or [] for tier in settings.get("tiers") or []]
    plugins = [item for tier in tiers for item in tier]
    levels = [(item.get("arguments") or {}).get(LEVELS) for item in plugins]
    return Configuration(
        actions=tuple(word.strip() for word in str(settings.get("actions", "")).split(",")),
        plugins=tuple(item["name"] for item in plugins),
        hierarchy=any(item["name"] == "capacity" and item.get("enableHierarchy") is True for item in plugins),
        # of several tiers, a later one decides alone if the first one names nobody
        ranked=len(tiers) == 1
        and any(item["name"] == "priority" and item.get("enablePreemptable") is not False for item in plugins),
        levels=max([0, *(level for level in levels if isinstance(level, int))]),
    )
