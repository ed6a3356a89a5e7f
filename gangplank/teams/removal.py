"""What goes when a team is named for removal: access first, its queue and namespace last, its claims only if named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.k8s.plan import Plan
from gangplank.teams.plan import KEPT, team_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gangplank.spec import Json

ORDER = ("RoleBinding", "ServiceAccount", "LimitRange", "NetworkPolicy", "ResourceQuota", "PersistentVolumeClaim")


def namespaces_of(teams: Collection[str], live: Sequence[Json]) -> dict[str, str]:
    """The live namespaces of teams: namespace to team."""
    return {
        item["metadata"]["name"]: team_of(item)
        for item in live
        if item["kind"] == "Namespace" and team_of(item) in teams
    }


def removal(
    teams: Collection[str],
    with_file: Collection[str],
    live: Sequence[Json],
    running: Mapping[str, Sequence[str]],
    claims: Mapping[str, Sequence[str]],
    going: Collection[str],
) -> Plan:
    """What to remove of teams that were named; its notes say what stays.

    `running` and `claims` are by namespace: jobs and pods that have not ended, and all claims there; `going` are the
    claims that may be deleted with all that is on them, as namespace/name.
    """
    refused = [
        f"teams_remove: team {team} has a file. Expected a team without one; fix: remove its file, or the name here"
        for team in sorted(set(teams) & set(with_file))
    ]
    spaces = namespaces_of(set(teams) - set(with_file), live)
    for space, team in sorted(spaces.items()):
        if running.get(space):
            some = ", ".join(list(running[space])[:5])
            fix = f"wait for them, or: gangplank delete NAME -n {space}"
            refused.append(f"teams_remove: team {team} has work that has not ended: {some}. Fix: {fix}")
    every = {f"{space}/{name}" for space in claims for name in claims[space]}
    refused += [
        f"teams_remove_claims: got {name}, expected one of {', '.join(sorted(every)) or 'no claims'}"
        for name in sorted(set(going) - every)
        if name.partition("/")[0] in spaces
    ]
    if refused:
        return Plan(refused=tuple(refused))
    found: list[Json] = []
    notes = []
    for space, team in sorted(spaces.items()):
        left = [name for name in claims.get(space, ()) if f"{space}/{name}" not in going]
        own = [item for item in live if team_of(item) == team and item["kind"] not in {*KEPT, "Queue"}]
        found += sorted(own, key=lambda item: ORDER.index(item["kind"]))
        found += [claim(space, name) for name in claims.get(space, ()) if name not in left]
        if left:
            named = ",".join(f"{space}/{name}" for name in left)
            notes.append(
                f"team {team}: {', '.join(left)} and the namespace {space} stay, and nobody has access. "
                f"-e teams_remove_claims={named} deletes them with all that is on them"
            )
        else:
            found += [item for item in live if item["kind"] == "Namespace" and item["metadata"]["name"] == space]
    queues = [item for item in live if item["kind"] == "Queue" and team_of(item) in set(spaces.values())]
    # A child is named <team>-<child>, so the longer names go first.
    found += sorted(queues, key=lambda item: -len(item["metadata"]["name"]))
    return Plan(remove=tuple(found), notes=tuple(notes))


def claim(namespace: str, name: str) -> Json:
    """A claim as it is named for deletion."""
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta}
