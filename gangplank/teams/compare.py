"""The plan of one run: the teams of an inventory compared with the live cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gangplank.cluster.snapshot import scheduler_configuration
from gangplank.teams import namespaces as namespaces_of_teams
from gangplank.teams import read_cluster as cluster
from gangplank.teams.admission import probes
from gangplank.teams.drift import identity
from gangplank.teams.idle_fields import idle_fields
from gangplank.teams.load import teams_of, variable
from gangplank.teams.metadata import team_of
from gangplank.teams.objects import team_objects
from gangplank.teams.plan import absent, plan
from gangplank.teams.queue_problems import queue_problems
from gangplank.teams.removal import namespaces_of, removal
from gangplank.teams.shares import account_problems

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json
    from gangplank.teams.drift import Identity
    from gangplank.teams.inventory import Inventory
    from gangplank.teams.plan import TeamsPlan
    from gangplank.teams.spec import TeamSpec


def plan_teams(
    kube: Kube,
    inventory: Inventory,
    remove: Sequence[str] = (),
    remove_claims: Sequence[str] = (),
    limit: Collection[str] | None = None,
) -> TeamsPlan:
    """What a run has to do; SpecError for wrong values, KubeError for a cluster that does not answer.

    All teams are checked; with a limit, only teams in it, what all teams share, and teams to remove are changed. Names
    to remove may be empty, as those of a list that ends with a comma.
    """
    remove, remove_claims = ([name for text in words if (name := text.strip())] for words in (remove, remove_claims))
    site, teams = teams_of(inventory, cluster.capacity(kube))
    live = cluster.objects(kube)
    stored = cluster.claims(kube)
    kept = {team.namespace: undescribed(team, stored.get(team.namespace, {})) for team in teams}
    theirs = {one for team in teams if team.service_accounts for one in cluster.accounts(kube, team.namespace)}
    desired = [item for item in team_objects(teams, site, cluster.devices(kube), kept) if identity(item) not in theirs]
    todo = limited(desired, live, remove, cluster.namespaces(kube), limit, cluster.others(kube))
    with_file = [team.name for team in teams]
    spaces = namespaces_of({team_of(item) for item in live} - {""}, live)  # of teams that left the inventory too
    accounts = [f"{source}: {variable(str(problem))}" for source, problem in account_problems(teams, spaces)]
    namespaces = namespaces_of(set(remove) - set(with_file), live)
    leaving = removal(
        remove,
        with_file,
        live,
        {namespace: cluster.unfinished(kube, namespace) for namespace in namespaces},
        {namespace: list(stored.get(namespace, ())) for namespace in namespaces},
        remove_claims,
    )
    ended = [item for item in leaving.remove if item["kind"] == "Queue"]
    queues = queue_problems(kube, todo, ended, live)
    ending = [
        item
        for item in live
        if item["kind"] == "Namespace"
        and "deletionTimestamp" in item["metadata"]
        and team_of(item) in {*with_file, *remove}
    ]
    held = [line for item in ending for line in namespaces_of_teams.held(kube, item)]
    return replace(
        todo,
        differences=(*todo.differences, *absent(leaving.remove)),
        remove=(*leaving.remove, *todo.remove),
        refused=(*todo.refused, *accounts, *leaving.refused, *queues, *held),
        notes=(*todo.notes, *leaving.notes, *idle_fields(teams, site, scheduler_configuration(kube))),
        probes=tuple(probes(todo.probe, kube.serves)),
        count=len(desired),
    )


def undescribed(team: TeamSpec, stored: Mapping[str, str]) -> list[str]:
    """The sizes of the volume claims in a team's namespace that its file does not describe, or no more: they stay."""
    described = {claim.name for claim in team.claims}
    return [size for name, size in sorted(stored.items()) if name not in described]


def limited(
    desired: Sequence[Json],
    live: Sequence[Json],
    remove: Sequence[str],
    namespaces: Collection[str],
    limit: Collection[str] | None,
    foreign: Collection[Identity] = (),
) -> TeamsPlan:
    """The plan for the teams of a limit; amounts that other teams still have to give up are refused to them."""
    everything = plan(desired, live, remove, namespaces, foreign)
    others = {team_of(item) for item in desired} - {"", *(limit or ())}
    if limit is None or not others:
        return everything
    mine, ours = ([item for item in items if team_of(item) not in others] for items in (desired, live))
    part = plan(mine, ours, remove, namespaces, foreign)
    owed = sorted({team_of(item) for item in everything.lower} & others)
    if owed and any(item["kind"] == "Queue" for item in part.write):
        teams = ", ".join(owed)
        fix = f"run without it, or with --limit {','.join(sorted({*limit, *owed}))}"
        line = f"--limit: got a team without {teams}, whose queues give up something, expected both together"
        return replace(part, refused=(*part.refused, f"{line}. Fix: {fix}"))
    return part
