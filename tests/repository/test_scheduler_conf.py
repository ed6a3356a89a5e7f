"""The scheduler's configuration that roles/volcano writes is one that Volcano reads, and says what was asked for."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import jinja2
import pytest
import yaml

from gangplank.scheduling.settings import read

TEMPLATE = Path(__file__).resolve().parents[2] / "roles/volcano/templates/scheduler.conf.j2"
ACTIONS = [list(some) for pair in (("reclaim", "preempt"), ("gangreclaim", "gangpreempt"))
           for count in range(3) for some in combinations(pair, count)]  # fmt: skip


def rendered(plugin: str, actions: list[str]) -> str:
    environment = jinja2.Environment(trim_blocks=True, autoescape=False, undefined=jinja2.StrictUndefined)  # noqa: S701  # YAML, as Ansible renders it
    return environment.from_string(TEMPLATE.read_text()).render(volcano_queue_plugin=plugin, volcano_actions=actions)


@pytest.mark.parametrize("plugin", ["capacity", "proportion"])
@pytest.mark.parametrize("actions", ACTIONS, ids=str)
def test_has_the_plugin_the_actions_and_one_tier(plugin: str, actions: list[str]) -> None:
    text = rendered(plugin, actions)
    configuration = read(text)
    assert configuration.actions == ("enqueue", "allocate", "backfill", *actions)
    assert {"capacity", "proportion"} & {*configuration.plugins} == {plugin}
    assert configuration.hierarchy == (plugin == "capacity")
    assert len(yaml.safe_load(text)["tiers"]) == 1, "of several tiers the first one that finds victims decides alone"
    assert ("overcommit" in configuration.plugins) == (not actions), "who may not wait in line displaces nobody"
