"""What is removed with a team: access first, its queue and namespace last, its volume claims only if they are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.k8s.plan import Plan
from gangplank.teams.metadata import team_of
from gangplank.teams.plan import KEPT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gangplank.spec import Json

CLUSTER_WIDE = ("ClusterRoleBinding", "Queue")
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
    deleted_claims: Collection[str],
) -> Plan:
    """What to remove of the named teams; the notes say what stays.

    `running` and `claims` are by namespace: jobs and pods that have not ended, and all volume claims. `deleted_claims`
    are those that may be deleted with their data, as namespace/name.
    """
    refused = [
        f"teams_remove: got {team}, expected a team that left the inventory. Fix: take {team} out of the group "
        "teams, or leave it out of teams_remove"
        for team in sorted(set(teams) & set(with_file))
    ]
    namespaces = namespaces_of(set(teams) - set(with_file), live)
    for namespace, team in sorted(namespaces.items()):
        if running.get(namespace):
            some = ", ".join(list(running[namespace])[:5])
            fix = f"wait for it to end, or: gangplank delete NAME -n {namespace}"
            refused.append(f"teams_remove: team {team} has work that has not ended: {some}. Fix: {fix}")
    paths = {f"{namespace}/{name}" for namespace in claims for name in claims[namespace]}
    refused += [
        f"teams_remove_claims: got {path}, expected one of {', '.join(sorted(paths)) or 'no claims'}"
        for path in sorted(set(deleted_claims) - paths)
        if path.partition("/")[0] in namespaces
    ]
    others = namespaces_of({team_of(item) for item in live} - {"", *teams}, live)
    refused += [
        f"teams_remove_claims: got {path}, expected claims of a team that teams_remove names. Fix: "
        f"-e teams_remove={others[path.partition('/')[0]]} if that team leaves, or leave the claim out"
        for path in sorted(deleted_claims)
        if path.partition("/")[0] in others
    ]
    if refused:
        return Plan(refused=tuple(refused))
    objects: list[Json] = []
    unknown = sorted(set(teams) - {*map(team_of, live)})
    notes = [f"teams_remove: nothing in the cluster is of a team {team}" for team in unknown]
    for namespace, team in sorted(namespaces.items()):
        kept = [name for name in claims.get(namespace, ()) if f"{namespace}/{name}" not in deleted_claims]
        own = [item for item in live if team_of(item) == team and item["kind"] not in {*KEPT, *CLUSTER_WIDE}]
        objects += sorted(own, key=lambda item: ORDER.index(item["kind"]))
        objects += [claim(namespace, name) for name in claims.get(namespace, ()) if name not in kept]
        if kept:
            option = ",".join(f"{namespace}/{name}" for name in kept)
            notes.append(
                f"team {team}: {', '.join(kept)} and the namespace {namespace} stay, and no member has access. "
                f"-e teams_remove_claims={option} deletes them with all their data"
            )
        else:
            objects += [item for item in live if item["kind"] == "Namespace" and item["metadata"]["name"] == namespace]
    # Also of a team whose namespace an earlier run has removed.
    gone = set(teams) - set(with_file) - {""}  # of no team is what all share
    shared = [item for item in live if item["kind"] in CLUSTER_WIDE and team_of(item) in gone]
    # A child queue is named <team>-<child>, so longer names are removed first.
    objects += sorted(shared, key=lambda item: (CLUSTER_WIDE.index(item["kind"]), -len(item["metadata"]["name"])))
    return Plan(remove=tuple(objects), notes=tuple(notes))


def claim(namespace: str, name: str) -> Json:
    """A volume claim, with what its deletion needs."""
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta}
