"""Namespaces of teams: created but never taken over, as other objects, and what keeps one from its deletion."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gangplank.backends.pod_template import TEAM_LABEL
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.client import group_path
from gangplank.errors import KubeError, shown
from gangplank.teams.metadata import PART_LABEL, team_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

NAMESPACES = "/api/v1/namespaces"
REMAINING = "NamespaceContentRemaining"  # the condition of a namespace that lists what is left in it
RESOURCE = re.compile(r"([a-z0-9-]+)\.([a-z0-9.-]*) has \d+ resource")  # configmaps. and jobs.batch


def foreign(desired: Json, live: Json | None) -> str:
    """Why a namespace that exists cannot become a team's; "" if it is the team's. None is one without our labels."""
    owner = team_of(live) if live else ""
    return "" if owner == team_of(desired) else taken(desired, live)


# What messages call a kind, and kubectl
WORDS = {
    "Namespace": ("namespace", "namespace"),
    "Queue": ("queue", f"{QUEUE_SYSTEM.queue.plural}.{QUEUE_SYSTEM.queue.group}"),
    "PriorityClass": ("PriorityClass", "priorityclass"),
}


def taken(desired: Json, live: Json | None) -> str:
    """Why an object that exists is not taken over. None is one without our labels."""
    name, team, owner = desired["metadata"]["name"], team_of(desired), team_of(live) if live else ""
    word, resource = WORDS[desired["kind"]]
    belongs = f"belongs to team {owner}" if owner else f"does not belong to {'a team' if team else 'the teams'}"
    of_live = (live or {"metadata": {}})["metadata"].get("labels") or {}
    label = "label --overwrite" if PART_LABEL in of_live else "label"
    ours = desired["metadata"]["labels"]
    own = " ".join(f"{key}={ours[key]}" for key in (PART_LABEL, TEAM_LABEL) if key in ours)
    place = " under team_namespace" if desired["kind"] == "Namespace" else ""
    return (
        f"{f'team {team}' if team else 'all teams'}: {word}: got {shown(name)}, which exists and {belongs}, expected a "
        f"{word} of the {'team' if team else 'site'}'s own. Fix: choose another name{place}, or hand it over: "
        f"kubectl {label} {resource} {name} {own}"
    )


def create(kube: Kube, namespaces: Sequence[Json]) -> tuple[list[str], list[str]]:
    """Create the namespaces of new teams: the names of those that are new, and why others are refused.

    A write that merges would take over a namespace that another user created since the plan.
    """
    created, refused = [], []
    for item in namespaces:
        name = item["metadata"]["name"]
        try:
            kube.post(NAMESPACES, item)
            created.append(name)
        except KubeError as error:
            if error.status != 409:
                raise
            refused.append(foreign(item, kube.call("GET", f"{NAMESPACES}/{name}")))
    return created, [line for line in refused if line]


def held(kube: Kube, namespace: Json) -> list[str]:
    """The objects whose finalizers keep a namespace from its deletion, a line each."""
    name = namespace["metadata"]["name"]
    conditions = namespace.get("status", {}).get("conditions") or []
    left = [one.get("message", "") for one in conditions if one["type"] == REMAINING and one["status"] == "True"]
    lines = []
    for plural, group in RESOURCE.findall(" ".join(left)):
        api_version = kube.call("GET", f"/apis/{group}")["preferredVersion"]["groupVersion"] if group else "v1"
        items = (kube.get(f"{group_path(api_version)}/namespaces/{name}/{plural}") or {"items": []})["items"]
        for item in items:
            finalizers = ", ".join(item["metadata"].get("finalizers") or [])
            path = f"{plural}.{group}".rstrip(".") + f"/{item['metadata']['name']}"
            patch = "--type=merge -p '{\"metadata\":{\"finalizers\":null}}'"
            if finalizers:
                lines.append(
                    f"namespace {name}: got {path} with the finalizers {finalizers}, expected nothing that keeps the "
                    f"namespace from its deletion. Fix: kubectl -n {name} patch {path} {patch}"
                )
    return lines
