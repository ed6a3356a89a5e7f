"""The work of one run: a folder of teams beside the cluster as it is."""

from __future__ import annotations

from dataclasses import dataclass
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
    from gangplank.spec import Json
    from gangplank.teams.drift import Difference


@dataclass(frozen=True)
class Step:
    """Objects that are written in one call, each as a JSON merge patch where it is there already."""

    name: str
    objects: tuple[Json, ...]


@dataclass(frozen=True)
class Work:
    """All that a run has to do."""

    differences: tuple[Difference, ...]
    remove: tuple[Json, ...]
    steps: tuple[Step, ...]
    refused: tuple[str, ...]
    notes: tuple[str, ...]
    count: int  # of objects that the files want
    probe: str  # a namespace in which the admission has to refuse a job of another queue; empty: nothing to wait for

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.remove or self.steps)


def work(kube: Kube, folder: str, remove: Sequence[str] = (), remove_claims: Sequence[str] = ()) -> Work:
    """What a run has to do; SpecError for wrong files, KubeError for a cluster that cannot be asked."""
    site, teams = load(folder, cluster.capacity(kube))
    live = cluster.objects(kube)
    wanted = team_objects(teams, site)
    found = plan(wanted, live, remove, cluster.namespaces(kube))
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
    queues = [item["metadata"]["name"] for item in found.remove if item["kind"] == "Queue"]
    busy = [f"{text}. Cure: wait for it, or keep the queue in its file" for text in cluster.in_queues(kube, queues)]
    claims = ("ServiceAccount", "PersistentVolumeClaim")  # after the quota that has to leave room for them
    order = {
        "queues that give up something": found.lower,
        "for all teams": [item for item in found.write if not item["metadata"].get("namespace")],
        "queues that were closed": found.reopen,
        "in the namespaces": sorted(
            (item for item in found.write if item["metadata"].get("namespace")), key=lambda item: item["kind"] in claims
        ),
    }
    guards = any(item["kind"].startswith("ValidatingAdmission") for item in found.write)
    return Work(
        differences=found.differences,
        remove=(*gone.remove, *found.remove),
        steps=tuple(Step(name, tuple(items)) for name, items in order.items() if items),
        refused=(*found.refused, *gone.refused, *busy),
        notes=(*found.notes, *gone.notes, *idle(teams, site, cluster.scheduler_configuration(kube))),
        count=len(wanted),
        probe=teams[0].namespace if guards and teams else "",
    )
