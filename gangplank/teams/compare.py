"""The plan of one run: a folder of teams beside the cluster as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gangplank.teams import read_cluster as cluster
from gangplank.teams.idle_fields import idle
from gangplank.teams.load import load
from gangplank.teams.objects import team_objects
from gangplank.teams.plan import plan
from gangplank.teams.removal import namespaces_of, removal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.cluster.client import Kube
    from gangplank.teams.plan import TeamsPlan


def work(kube: Kube, folder: str, remove: Sequence[str] = (), remove_claims: Sequence[str] = ()) -> TeamsPlan:
    """What a run has to do; SpecError for wrong files, KubeError for a cluster that cannot be asked."""
    site, teams = load(folder, cluster.capacity(kube))
    live = cluster.objects(kube)
    wanted = team_objects(teams, site)
    todo = plan(wanted, live, remove, cluster.namespaces(kube))
    with_file = [team.name for team in teams]
    spaces = namespaces_of(set(remove) - set(with_file), live)
    gone = removal(
        remove,
        with_file,
        live,
        {space: cluster.unfinished(kube, space) for space in spaces},
        {space: cluster.claims(kube, space) for space in spaces},
        remove_claims,
    )
    queues = [item["metadata"]["name"] for item in todo.remove if item["kind"] == "Queue"]
    busy = [f"{text}. Fix: wait for it, or keep the queue in its file" for text in cluster.in_queues(kube, queues)]
    guards = any(item["kind"].startswith("ValidatingAdmission") for item in todo.write)
    return replace(
        todo,
        remove=(*gone.remove, *todo.remove),
        refused=(*todo.refused, *gone.refused, *busy),
        notes=(*todo.notes, *gone.notes, *idle(teams, site, cluster.scheduler_configuration(kube))),
        count=len(wanted),
        probe=teams[0].namespace if guards and teams else "",
    )
