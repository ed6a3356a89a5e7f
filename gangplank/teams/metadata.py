"""How objects of teams are recognised: their labels, and the annotations of their namespace for the admission."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends.pod_template import MANAGED_BY, TEAM_LABEL
from gangplank.backends.queueing import QUEUE_SYSTEM

if TYPE_CHECKING:
    from gangplank.spec import Json
    from gangplank.teams.spec import TeamSpec

PART_LABEL = "gangplank.dev/part"  # jobs have the other two labels as well
TEAM_PART = {PART_LABEL: "team"}  # of one team
SHARED_PART = {PART_LABEL: "teams"}  # of all teams
SCHEDULER = QUEUE_SYSTEM.scheduler

# Annotations of a team's namespace, writable only by a cluster administrator: what the admission allows in it.
QUEUES = "gangplank.dev/queues"
SCHEDULERS = "gangplank.dev/schedulers"
PRIORITIES = "gangplank.dev/priorities"
ACCOUNTS = "gangplank.dev/service-accounts"
IMAGES = "gangplank.dev/images"
TOLERATIONS = "gangplank.dev/tolerations"
NODE_LABELS = "gangplank.dev/node-labels"
RUNTIME_CLASSES = "gangplank.dev/runtime-classes"
SECRETS = "gangplank.dev/secrets"
RESOURCES = "gangplank.dev/resources"
DEVICE_CLASSES = "gangplank.dev/device-classes"
DOMAINS = "gangplank.dev/domains"
PODS = "gangplank.dev/pods"


def team_of(item: Json) -> str:
    """The team that an object belongs to; empty if all teams share it."""
    labels = item["metadata"].get("labels") or {}
    return str(labels.get(TEAM_LABEL, "")) if labels.get(PART_LABEL) != SHARED_PART[PART_LABEL] else ""


def metadata(name: str, team: TeamSpec | None = None, *, cluster: bool = False) -> Json:
    """The metadata of an object of one team, or of all teams; `cluster` is for a team's objects without a namespace."""
    if team is None:
        return {"name": name, "labels": {**MANAGED_BY, **SHARED_PART}}
    place = {} if cluster else {"namespace": team.namespace}
    return {"name": name, **place, "labels": {**MANAGED_BY, **TEAM_PART, TEAM_LABEL: team.name}}
