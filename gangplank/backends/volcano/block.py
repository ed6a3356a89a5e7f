"""The fields of a job file that only Volcano has."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangplank.backends.volcano.policies import ACTIONS, EVENTS, check
from gangplank.reading.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangplank.spec import Json

_DURATION = re.compile(r"(\d+(\.\d+)?(ns|us|ms|s|m|h))+", re.ASCII)
ROLES = ("master", "worker")
PLUGINS = ("env", "pytorch", "ssh", "svc")
NOT_YET = ("tensorflow", "mpi", "ray", "hcclrank")  # other frameworks' plugins: nothing here would wire their ranks


@dataclass(frozen=True)
class VolcanoBlock:
    """What only Volcano has."""

    plugins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policies: tuple[Json, ...] | None = None  # None: the defaults of manifests.py
    depends_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # task: tasks that must run first
    min_task_member: Mapping[str, int] = field(default_factory=dict)
    network_topology: Json | None = None
    volumes: tuple[Json, ...] = ()
    restart_policy: str = "Never"  # so that the gang restarts as one, see docs/restarts.md


def policies(fields: Fields) -> tuple[dict[str, Any], ...] | None:
    """Volcano's policies, each with an action and either events or an exit code."""
    if fields.raw("policies") is None:
        return None
    result, before = [], len(fields.problems)
    for index, item in enumerate(fields.mappings("policies")):
        inner = Fields(item, fields.at(f"policies[{index}]"), fields.problems)
        policy: dict[str, Any] = {}
        event, events, code = (
            inner.choice("event", "", ("", *EVENTS)),
            inner.words("events"),
            inner.maybe("exitCode", 1),
        )
        for name in events:
            if name not in EVENTS:
                inner.bad("events", name, f"one of {', '.join(EVENTS)}")
        if bool(event or events) == (code is not None):
            inner.bad("event", event or None, "either event (or events) or exitCode")
        optional = {"event": event, "events": list(events), "exitCode": code}
        policy.update({name: value for name, value in optional.items() if value})
        policy["action"] = inner.choice("action", "", ACTIONS)
        if not policy["action"] and "action" not in inner.map:
            inner.bad("action", None, f"one of {', '.join(ACTIONS)}")
        if timeout := inner.text("timeout", what="a duration as Go writes it, e.g. 10m", ok=_DURATION):
            policy["timeout"] = timeout
        inner.done()
        result.append(policy)
    if len(fields.problems) == before:
        check(result, fields.at("policies"), fields.problems)
    return tuple(result)


def read_block(fields: Fields) -> VolcanoBlock:
    """Volcano's own fields."""
    plugins = fields.inner("plugins")
    arguments = {}
    for name in plugins.map:
        if name in NOT_YET:
            plugins.bad(name, plugins.map[name], f"a plugin for PyTorch ({name} is not supported yet)", "remove it")
        elif name not in PLUGINS:
            plugins.bad(name, plugins.map[name], f"one of {', '.join(PLUGINS)}")
        else:
            arguments[name] = plugins.words(name)
    members = fields.inner("min_task_member")
    depends = fields.inner("depends_on")
    block = VolcanoBlock(
        plugins=arguments,
        policies=policies(fields),
        depends_on={role: depends.words(role) for role in ROLES if depends.map.get(role) is not None},
        min_task_member={role: members.integer(role, 0) for role in ROLES if members.map.get(role) is not None},
        network_topology=topology(fields.inner("network_topology")),
        volumes=volumes(fields),
        restart_policy=fields.choice("restart_policy", "Never", ("OnFailure", "Never")),
    )
    for inner in (members, depends):
        inner.known.extend(ROLES)
        inner.done()
    return block


def volumes(fields: Fields) -> tuple[Json, ...]:
    """Volcano's own volumes: it checks them when it makes the pods, long after the submission."""
    items = fields.mappings("volumes")
    for index, item in enumerate(items):
        place = item.get("mountPath")
        if not isinstance(place, str) or not place:
            fields.bad(f"volumes[{index}].mountPath", place, "a path in the containers")
        if bool(item.get("volumeClaimName")) == bool(item.get("volumeClaim")):
            expected = "a claim's name in volumeClaimName, or the spec of one to be made in volumeClaim"
            fields.bad(f"volumes[{index}]", item, expected)
    return items


def topology(fields: Fields) -> dict[str, Any] | None:
    """Where Volcano may place the gang: within how many tiers of the network."""
    if not fields.map:
        return None
    limits: dict[str, Any] = {"mode": fields.choice("mode", "hard", ("hard", "soft"))}
    tier, name = fields.maybe("highest_tier_allowed", 0), fields.text("highest_tier_name")
    if tier is not None and name:
        fields.bad("highest_tier_name", name, "one of highest_tier_allowed and highest_tier_name")
    if tier is not None:
        limits["highestTierAllowed"] = tier
    if name:
        limits["highestTierName"] = name
    fields.done()
    return limits
