"""The configuration of Volcano's scheduler, as far as it decides about queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True)
class Configuration:
    """The parts of a scheduler configuration that decide about queues."""

    actions: tuple[str, ...]
    plugins: tuple[str, ...]
    hierarchy: bool  # of the plugin capacity


def read(text: str) -> Configuration:
    """The configuration in a text; one that cannot be parsed is empty.

    >>> read('{actions: "enqueue, reclaim", tiers: [{plugins: [{name: capacity, enableHierarchy: true}]}]}')
    Configuration(actions=('enqueue', 'reclaim'), plugins=('capacity',), hierarchy=True)
    """
    try:
        value: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        value = None
    settings = value if isinstance(value, dict) else {}
    plugins = [item for tier in settings.get("tiers") or [] for item in tier.get("plugins") or []]
    return Configuration(
        actions=tuple(word.strip() for word in str(settings.get("actions", "")).split(",")),
        plugins=tuple(item["name"] for item in plugins),
        hierarchy=any(item["name"] == "capacity" and item.get("enableHierarchy") is True for item in plugins),
    )
