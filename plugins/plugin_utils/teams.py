"""The teams of a play's inventory: the variables of the hosts of a group, as Ansible has resolved them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.base import plain

from gangplank.errors import Problem, SpecError
from gangplank.teams.inventory import Inventory, is_value, refuse_earlier_layout

if TYPE_CHECKING:
    from collections.abc import Mapping


def inventory_of(variables: Mapping[str, Any], group: str) -> Inventory:
    """Every team of the inventory, whatever --limit says; a template that cannot be rendered is one of its errors."""
    sources = tuple(path for name in variables.get("ansible_inventory_sources") or () if (path := Path(name)).exists())
    refuse_earlier_layout(sources)
    extra = frozenset(name for name in load_extra_vars(DataLoader()) if is_value(name))
    values: dict[str, dict[str, Any]] = {}
    problems: dict[str, list[Problem]] = {}
    for team in variables["groups"].get(group, ()):
        own = variables["hostvars"][team]
        values[team] = {}
        for name in filter(is_value, list(own)):
            try:
                values[team][str(name)] = plain(own[name])
            except AnsibleError as error:
                reason = " ".join(str(error).split())
                problem = Problem(str(name), f"a template without a value ({reason})", "one that Ansible can render")
                problems.setdefault(team, []).append(problem)
    inventory = Inventory(values, sources, extra, group)
    errors = tuple(SpecError(lines, inventory.home(team)) for team, lines in problems.items())
    return Inventory(values, sources, extra, group, errors)
