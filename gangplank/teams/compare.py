"""The plan of one run: a folder of teams compared with the live cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gangplank.cluster.situation import scheduler_configuration
from gangplank.teams import namespaces as namespaces_of_teams
from gangplank.teams import read_cluster as cluster
from gangplank.teams.admission import probes
from gangplank.teams.idle_fields import idle_fields
from gangplank.teams.load import load
from gangplank.teams.metadata import team_of
from gangplank.teams.objects import team_objects
from gangplank.teams.plan import plan
from gangplank.teams.removal import namespaces_of, removal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.cluster.client import Kube
    from gangplank.teams.plan import TeamsPlan


def plan_teams(kube: Kube, folder: str, remove: Sequence[str] = (), remove_claims: Sequence[str] = ()) -> TeamsPlan:
    """What a run has to do; SpecError for wrong files, KubeError for a cluster that does not answer."""
    site, teams = load(folder, cluster.capacity(kube))
    live = cluster.objects(kube)
    desired = team_objects(teams, site, cluster.devices(kube))
    todo = plan(desired, live, remove, cluster.namespaces(kube))
    with_file = [team.name for team in teams]
    namespaces = namespaces_of(set(remove) - set(with_file), live)
    leaving = removal(
        remove,
        with_file,
        live,
        {namespace: cluster.unfinished(kube, namespace) for namespace in namespaces},
        {namespace: cluster.claims(kube, namespace) for namespace in namespaces},
        remove_claims,
    )
    queues = [item["metadata"]["name"] for item in todo.remove if item["kind"] == "Queue"]
    busy = [f"{text}. Fix: wait for it, or keep the queue in its file" for text in cluster.in_queues(kube, queues)]
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
        remove=(*leaving.remove, *todo.remove),
        refused=(*todo.refused, *leaving.refused, *busy, *held),
        notes=(*todo.notes, *leaving.notes, *idle_fields(teams, site, scheduler_configuration(kube))),
        probes=tuple(probes(todo.probe, kube.serves)),
        count=len(desired),
    )
