"""The configuration of Volcano's scheduler, as far as it decides about queues."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import yaml

LEVELS = "ancestorReclaimLevel"
OVERCOMMIT, FACTOR = "overcommit", "overcommit-factor"  # a plugin, and its argument
USUAL = 1.2  # times the cluster


@dataclass(frozen=True)
class Configuration:
    """The parts of a scheduler configuration that decide about queues."""

    actions: tuple[str, ...]
    plugins: tuple[str, ...]
    hierarchy: bool  # of the plugin capacity
    ranked: bool = True  # a job displaces only jobs of a lower priority
    levels: int = 0  # of the plugin capacity: the queues above whose deserved amounts count as the queue's own
    line: Fraction | None = None  # times the cluster that may run or be in line together; None: no limit


def read(text: str) -> Configuration:
    """The configuration in a text; one that cannot be parsed is empty.

    >>> settings = read('{actions: "enqueue, reclaim", tiers: [{plugins: [{name: capacity, enableHierarchy: true}]}]}')
    >>> settings.actions, settings.plugins, settings.hierarchy, settings.ranked
    (('enqueue', 'reclaim'), ('capacity',), True, False)
    >>> read("tiers: [{plugins: [{name: overcommit, arguments: {overcommit-factor: 1.5}}]}]").line
    Fraction(3, 2)
    """
    try:
        value: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        value = None
    settings = value if isinstance(value, dict) else {}
    tiers = [tier.get("plugins") or [] for tier in settings.get("tiers") or []]
    plugins = [item for tier in tiers for item in tier]
    levels = [(item.get("arguments") or {}).get(LEVELS) for item in plugins]
    lines = [(item.get("arguments") or {}).get(FACTOR) for item in plugins if item["name"] == OVERCOMMIT]
    factors = [one if isinstance(one, int | float) and one >= 1 else USUAL for one in lines]
    return Configuration(
        actions=tuple(word.strip() for word in str(settings.get("actions", "")).split(",")),
        plugins=tuple(item["name"] for item in plugins),
        hierarchy=any(item["name"] == "capacity" and item.get("enableHierarchy") is True for item in plugins),
        # of several tiers, a later one decides alone if the first one names nobody
        ranked=len(tiers) == 1
        and any(item["name"] == "priority" and item.get("enablePreemptable") is not False for item in plugins),
        levels=max([0, *(level for level in levels if isinstance(level, int))]),
        line=Fraction(str(factors[0])) if factors else None,
    )
